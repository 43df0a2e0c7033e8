// Command robocache-bench compares RoboCache with its peers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench"
	_ "github.com/goatnote-inc/robocache/format/all"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
	_ "github.com/goatnote-inc/robocache/video/nvdec"
)

// version is set by the build.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(runCommandLine(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// runCommandLine runs a command line and returns the exit code.
func runCommandLine(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil && code != exitFindings {
		fmt.Fprintln(
			stderr,
			"robocache-bench:",
			strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted"),
		)
	}
	return code
}

// newRoot returns the root command. args is the command line that reports show.
func newRoot(args []string) *cobra.Command {
	line := "robocache-bench " + strings.Join(args, " ")
	root := &cobra.Command{
		Use:     "robocache-bench",
		Version: version,
		Short:   "measure loading, decoding, kernels and training, side by side with the peers",
		Long: `robocache-bench compares RoboCache with its peers. Runs are interleaved, each in a fresh process.

Exit codes: 0 done, 1 failed, 2 misuse, 3 a bar is missed or a figure is worse, 10 not found,
11 malformed input, 12 unsupported, 13 resource limit, 75 temporary (retry), 130 interrupted.`,
		Example: `  robocache-bench load ./my_dataset --runners engine,robocache,lerobot
  robocache-bench decode ./my_dataset --runners robocache,ffmpeg
  robocache-bench ops --quick
  robocache-bench peers ./my_dataset --workload av1-global
  robocache-bench all --time 15m --out results`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		// Without RunE an unknown measurement would print the help and exit with 0.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuseError(strconv.Quote(args[0]) +
					": expected load, decode, ops, peers, formats, clients, soak, train, quality, all " +
					"or report")
			}
			return cmd.Help()
		},
	}
	root.AddCommand(
		newLoad(line),
		newDecode(line),
		newOps(line),
		newPeers(line),
		newFormats(line),
		newClients(line),
		newSoak(),
		newTrain(line),
		newQuality(line),
		newAll(line),
		newReport(line),
	)
	root.AddCommand(&cobra.Command{
		// the harness starts a runner as its own process with this command
		Use: "run KIND JOB", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Serve(cmd.Context(), args[0], args[1], cmd.OutOrStdout())
		},
	})
	root.SetFlagErrorFunc(
		func(_ *cobra.Command, err error) error { return misuseError(err.Error()) },
	)
	for _, c := range root.Commands() {
		if check := c.Args; check != nil {
			c.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return misuseError(cmd.Name() + ": " + err.Error())
				}
				return nil
			}
		}
		completeFlags(c)
	}
	return root
}

// Exit codes in addition to those of the error classes (robocache.ClassOf).
const (
	exitDone        = 0
	exitFindings    = 3
	exitInterrupted = 130
)

// errFindings reports that the measurement succeeded, but a bar was missed or a figure became
// worse.
var errFindings = errors.New("done, with findings")

// misuseError returns an error of the class misuse.
func misuseError(message string) error { return robocache.Misuse("", nil, "%s", message) }

// misuseUnless returns a misuse error with the message if ok is false.
func misuseUnless(ok bool, message string) error {
	if !ok {
		return misuseError(message)
	}
	return nil
}

// exitCode returns the exit code for err.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFindings):
		return exitFindings
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	_, code := robocache.ClassOf(err)
	return code
}

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
