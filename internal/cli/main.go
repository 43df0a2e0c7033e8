// Package cli implements the command line, with one file per verb. The command robocache runs it,
// and so does the C library for the Python command.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/crash"
	_ "github.com/goatnote-inc/robocache/live/transport/all"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
	_ "github.com/goatnote-inc/robocache/video/nvdec"
)

// version is set by Main.
var version = "unknown"

// Main runs a command line on the streams of the process and returns the exit code. It ends early
// if the process is interrupted.
func Main(args []string, programVersion string) int {
	version = programVersion
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return runCommand(ctx, newRoot(), args, os.Stdout, os.Stderr)
}

// runCommand runs a command line with the given streams and returns the exit code.
func runCommand(
	ctx context.Context,
	root *cobra.Command,
	args []string,
	stdout, stderr io.Writer,
) int {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeValues(root) // cobra keeps the completions until the process ends
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := execute(ctx, root)
	code := exitCode(ctx, err)
	if err != nil && code != exitFindings {
		fmt.Fprintln(
			stderr,
			"robocache:",
			strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted"),
		)
	}
	return code
}

// execute runs the command. A panic in any verb becomes an internal error.
func execute(ctx context.Context, root *cobra.Command) (err error) {
	defer crash.Recover("robocache", &err)
	return root.ExecuteContext(ctx)
}

// Command returns the whole command line. It is used to generate man pages.
func Command(programVersion string) *cobra.Command {
	version = programVersion
	return newRoot()
}

func newRoot() *cobra.Command {
	var level string
	root := &cobra.Command{
		Use:     "robocache",
		Version: fullVersion(),
		Short:   "a data engine for robot learning",
		Long: `robocache reads robot datasets in place, proves that they are what they claim, converts them
and makes synthetic ones.

  robocache synth /tmp/demo              make a small dataset with video
  robocache inspect /tmp/demo            see what is in it
  robocache doctor /tmp/demo             see what is wrong with it

A URI is a path, file://, http(s)://, s3://bucket/prefix, gs://bucket/prefix or hf://datasets/owner/name
(docs/stores.md). The same in Python: import robocache; help(robocache).`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			robocache.SetWords(wordsOf(cmd))
			return setLog(cmd.ErrOrStderr(), level)
		},
	}
	root.PersistentFlags().
		StringVar(
			&level,
			"log-level",
			cmp.Or(os.Getenv("ROBOCACHE_LOG_LEVEL"), "warn"),
			"debug, info, warn or error; logs go to stderr (default: ROBOCACHE_LOG_LEVEL)",
		)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		// Verbs that do not resample have no --hz. In older versions it was the rate of the rows.
		if err.Error() == "unknown flag: --hz" {
			return robocache.Misuse("", nil, "%s", err.Error()).
				WithHint("--rows-hz says the rate of rows that keep no clock; inspect, stats " +
					"and convert resample with --hz")
		}
		return flagError(err)
	})
	root.AddCommand(
		newInspect(),
		newDoctor(),
		newDiff(),
		newCausality(),
		newQuality(),
		newIndex(),
		newStats(),
		newPlot(),
		newFind(),
		newEmbed(),
		newConvert(),
		newEdit(),
		newSynth(),
		newPlan(),
		newRun(),
		newCommit(),
		newStatus(),
		newGC(),
		newSubmit(),
		newView(),
		newLive(),
		newPull(),
		newPush(),
		newCache(),
		newSelfTest(),
		newVersion(),
	)
	for _, c := range root.Commands() {
		withExitCodes(c)
	}
	return root
}

// mustConfigure panics if the definition of a command is wrong. That is always a bug.
func mustConfigure(err error) {
	if err != nil {
		panic(err)
	}
}

func setLog(w io.Writer, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return misuse("--log-level: " + err.Error())
	}
	opt := &slog.HandlerOptions{Level: l}
	var h slog.Handler = slog.NewJSONHandler(w, opt)
	if isTerminal(w) {
		h = slog.NewTextHandler(w, opt)
	}
	slog.SetDefault(slog.New(h))
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
