// Command robocache-bench measures RoboCache side by side with its peers.
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
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
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

// newRoot returns the command. args is the command line that its reports show.
func newRoot(args []string) *cobra.Command {
	line := "robocache-bench " + strings.Join(args, " ")
	root := &cobra.Command{
		Use:     "robocache-bench",
		Version: version,
		Short:   "measure loading, decoding, kernels and training, side by side with the peers",
		Long: `robocache-bench measures RoboCache side by side with its peers: runners take turns, each run is a fresh process.

Exit codes: 0 done, 1 failed, 2 misuse, 3 a bar is missed or a figure is worse, 10 not found, 11 malformed input,
12 unsupported, 13 resource limit, 75 temporary (retry), 130 interrupted.`,
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
				return misuse(strconv.Quote(args[0]) +
					": expected load, decode, ops, peers, formats, soak, train, all or report")
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
		newSoak(),
		newTrain(line),
		newAll(line),
		newReport(line),
	)
	root.AddCommand(&cobra.Command{
		// a runner: the harness starts it in a process of its own
		Use: "run KIND JOB", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Serve(cmd.Context(), args[0], args[1], cmd.OutOrStdout())
		},
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse(err.Error()) })
	for _, c := range root.Commands() {
		if check := c.Args; check != nil {
			c.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return misuse(cmd.Name() + ": " + err.Error())
				}
				return nil
			}
		}
		completeFlags(c)
	}
	return root
}

// Exit codes beside those of the error classes (robocache.ClassOf).
const (
	exitDone        = 0
	exitFindings    = 3
	exitInterrupted = 130
)

// errFindings reports that a measurement was made and a bar was missed, or a figure got worse.
var errFindings = errors.New("done, with findings")

func misuse(message string) error { return robocache.Misuse("", nil, "%s", message) }

// require returns a misuse of the options unless ok.
func require(ok bool, message string) error {
	if !ok {
		return misuse(message)
	}
	return nil
}

// exitCode returns the process's exit code for err.
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
