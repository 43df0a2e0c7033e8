package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/submit"
)

// Exit codes in addition to those of the error classes (robocache.ClassOf). They are the same in
// every verb.
const (
	exitDone        = 0
	exitMisuse      = 2
	exitFindings    = 3
	exitNever       = 42
	exitInternal    = 70
	exitTemporary   = 75
	exitInterrupted = 130
)

const exitHelp = `
Exit codes: 0 done, 1 failed, 2 misuse, 3 done with findings or skipped episodes, 10 not found, 11 malformed input,
12 unsupported, 13 resource limit, 42 can never succeed, 70 internal error (please report it), 75 temporary (retry),
130 interrupted.`

// errFindings means that the verb succeeded and has findings.
var errFindings = errors.New("done, with findings")

func misuse(msg string) error { return robocache.Misuse("", nil, "%s", msg) }

// exitCode maps an error class to the exit code of the process. No other function does this.
func exitCode(ctx context.Context, err error) int {
	var child *submit.Failed
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, robocache.ErrInternal):
		return exitInternal
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, shard.ErrNever):
		return exitNever
	case errors.Is(err, shard.ErrStopped):
		return exitTemporary
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &child):
		return child.ExitCode()
	case errors.Is(err, robocache.ErrMisuse),
		strings.HasPrefix(err.Error(), "unknown command"),
		strings.Contains(err.Error(), "arg(s)"),
		strings.HasPrefix(err.Error(), "required flag"),
		strings.HasPrefix(err.Error(), "if any flags in the group"):
		return exitMisuse // an error of cobra, which has no error type for misuse
	}
	_, code := robocache.ClassOf(err)
	return code
}

func withExitCodes(c *cobra.Command) {
	if c.Long == "" {
		c.Long = c.Short
	}
	if c.Runnable() {
		c.Long += "\n" + exitHelp
	}
	for _, sub := range c.Commands() {
		withExitCodes(sub)
	}
}
