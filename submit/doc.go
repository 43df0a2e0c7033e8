// Package submit runs the shards of a manifest as local processes, as a Slurm array job, or as an
// Indexed Job of Kubernetes.
//
// The package uses only the command line: `robocache run --manifest M --shard I` and its exit code,
// `status --json`, and `commit`. Receipts determine which shards are done. A shard may therefore be
// started twice, anywhere, by any engine, and nothing is lost or duplicated.
//
// # Contract
//
//	submit.S1  The exit code of run decides. 0 and 3 mean done. 2, 10, 11, 12, 42 and 70 are
//	           final, because a retry cannot help. All other codes and signals are retried.
//	submit.S2  A shard is tried 1 + Retries times. The pause between attempts doubles, with full
//	           jitter. Other shards may run during the pause.
//	submit.S3  After a final failure no new shard is started and running shards are asked to
//	           stop, unless a partial commit is requested.
//	submit.S4  If the caller's context ends, processes receive SIGTERM. A process that does not
//	           end within Grace is killed.
//	submit.S5  Schedulers treat every code except 0 as a failure, so scripts map 3 to 0. Receipts
//	           keep the count, and status and commit return 3.
//	submit.S6  Names, paths and addresses are quoted in scripts and YAML. Scripts contain no
//	           credentials.
package submit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/shard"
)

// Final lists the exit codes of run after which a retry cannot help (submit.S1).
var Final = []int{2, 10, 11, 12, 42, 70}

// Plan holds the information about a manifest that an engine needs.
type Plan struct {
	// Command line of robocache on the workers: a path, or "python -m robocache" split into words.
	Program  []string
	Manifest string // path or URI of the manifest on the workers
	Total    int
	Missing  []int  // shards without a receipt, ascending
	ID       string // name of the plan in logs
}

// Look runs `status` and returns the plan. An exit code that reports missing shards is not an
// error.
func Look(ctx context.Context, program []string, manifest string) (*Plan, error) {
	var errs bytes.Buffer
	c := newCommand(ctx, program, "status", "--manifest", manifest, "--json")
	c.Stderr = &errs
	out, err := c.Output()
	var s struct {
		Run     string         `json:"run"`
		Total   int            `json:"total"`
		Missing shard.Episodes `json:"missing"`
	}
	if c.ProcessState == nil {
		return nil, robocache.Misuse("submit", robocache.Where{"option": "--program"}, "").
			WithCause(err)
	}
	if err != nil && !json.Valid(out) {
		return nil, &Failed{
			Verb: "status",
			Code: exitCode(c),
			Last: lastLine(errs.String()),
			Err:  err,
		}
	}
	if err := json.Unmarshal(out, &s); err != nil || s.Total < 1 {
		return nil, robocache.Malformed("submit", robocache.Where{
			"manifest": manifest,
		}, "status --json gave no number of shards").
			WithCause(err)
	}
	return &Plan{program, manifest, s.Total, s.Missing, s.Run}, nil
}

// Failed is the error of a verb that ended with an unsuccessful exit code.
type Failed struct {
	Verb  string // status, run or commit
	Shard int    // only for run
	Code  int    // -1 if a signal ended the process or it was not started
	Tries int    // only for run
	Last  string // last line of its stderr
	Err   error
}

func (f *Failed) Error() string {
	what := f.Verb
	if f.Verb == "run" {
		what = fmt.Sprintf("shard %d, try %d", f.Shard, f.Tries)
	}
	if f.Code < 0 {
		return fmt.Sprintf("submit: %s: %v: %s", what, f.Err, f.Last)
	}
	return fmt.Sprintf("submit: %s: exit code %d: %s", what, f.Code, f.Last)
}

func (f *Failed) Unwrap() error { return f.Err }

// ExitCode returns the exit code for the caller, which is that of the verb.
func (f *Failed) ExitCode() int {
	if f.Code < 0 {
		return 75
	}
	return f.Code
}

// newCommand returns a command for the program. Canceling ctx sends SIGTERM (submit.S4).
func newCommand(ctx context.Context, program []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program[0], append(slices.Clone(program[1:]), args...)...)
	c.Cancel = func() error { return c.Process.Signal(terminateSignal) }
	c.WaitDelay = Grace
	return c
}

// exitCode returns the exit code of a process. It returns -1 if a signal ended the process or it
// did not start.
func exitCode(c *exec.Cmd) int {
	if c.ProcessState == nil {
		return -1
	}
	return c.ProcessState.ExitCode()
}

// lastLine returns the program's last message, or the last line if the text has no message.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range slices.Backward(lines) {
		if message, found := strings.CutPrefix(line, "robocache:"); found {
			return strings.TrimSpace(message)
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// Ranges formats ascending numbers for Slurm: 0-3,7.
func Ranges(n []int) string {
	text, _ := shard.Episodes(n).MarshalText()
	return string(text)
}

// Itself returns the command line of this program for child processes. In a wheel, it is a Python
// module.
func Itself() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"option": "--program"})
	}
	if base := filepath.Base(path); strings.HasPrefix(base, "python") {
		// Use the link in a virtual environment, which determines the packages.
		if called, err := exec.LookPath(os.Args[0]); err == nil {
			path, _ = filepath.Abs(called)
		}
		return []string{path, "-m", "robocache"}, nil
	}
	return []string{path}, nil
}
