package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/video"
)

// Bench is the verb bench.
func Bench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure loading and decoding, side by side with the peers",
		Example: `  robocache bench load ./my_dataset --runners engine,robocache,lerobot
  robocache bench decode ./my_dataset --runners robocache,ffmpeg
  robocache bench ops --quick
  robocache bench peers ./my_dataset --workload av1-global`,
		// Without RunE an unknown measurement would print the help and exit with 0.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("bench " + strconv.Quote(args[0]) + ": expected load, decode, ops, peers, formats or soak")
			}
			return cmd.Help()
		},
	}
	c.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(renamedFlags[name], name))
	})
	c.AddCommand(newBenchLoad(), newBenchDecode(), newBenchOps(), newBenchPeers(), newBenchFormats(), newBenchSoak(), newRunLoad(), newRunResume(), newRunDecode(), newRunMemcpy(), newRunRead(), newRunMessages())
	return c
}

// renamedFlags are earlier names of flags: they are still read.
var renamedFlags = map[string]string{"arms": "runners", "check-pictures": "check-frames"}

// benchFlags are shared by the measurements.
type benchFlags struct {
	runners []string
	repeats int
	out     string
	python  string
	json    bool
	timeout time.Duration
}

func (f *benchFlags) add(c *cobra.Command, runners, known string) {
	c.Flags().StringSliceVar(&f.runners, "runners", strings.Split(runners, ","), "who runs: "+known)
	c.Flags().IntVar(&f.repeats, "repeats", 3, "interleaved repeats, a fresh process each")
	c.Flags().StringVar(&f.out, "out", "", "write JSON, CSV and an HTML report into this folder")
	c.Flags().StringVar(&f.python, "python", "", "interpreter of the Python runners (default: .venv/bin/python, else python3)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "longest time of one run")
}

func (f *benchFlags) tools() (runners.Tools, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return runners.Tools{}, nil, err
	}
	t := runners.Tools{Self: self, Python: f.python}
	if t.Python == "" {
		t.Python = "python3"
		if p, err := filepath.Abs(".venv/bin/python"); err == nil {
			if _, err := os.Stat(p); err == nil {
				t.Python = p
			}
		}
	}
	// In a checkout, our Python package stands beside the binary's folder.
	if p := filepath.Join(filepath.Dir(filepath.Dir(self)), "python"); fileExists(filepath.Join(p, "robocache", "__init__.py")) {
		t.PythonPath = p
	}
	done, err := t.Unpack()
	return t, done, err
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

// run measures by what is given, and writes and prints the report.
func (f *benchFlags) run(cmd *cobra.Command, name string, r *bench.Report, measure func(log func(string, ...any)) ([]bench.Result, error)) error {
	r.Command = "robocache " + strings.Join(os.Args[1:], " ")
	r.Machine = report.ThisMachine(version)
	errs := cmd.ErrOrStderr()
	results, err := measure(func(format string, a ...any) { fmt.Fprintf(errs, format+"\n", a...) })
	if err != nil {
		return err
	}
	r.Results = results
	if f.out != "" {
		if err := r.Write(f.out, name); err != nil {
			return err
		}
		fmt.Fprintf(errs, "wrote %s.{json,csv,html}\n", filepath.Join(f.out, name))
	}
	if f.json {
		return printJSON(cmd.OutOrStdout(), r)
	}
	table(cmd.OutOrStdout(), r.Table())
	fmt.Fprintf(cmd.OutOrStdout(), "  median (min–max) of the repeats; CPU s a 1,000 %s; %s, %d cores\n", r.Unit, r.Machine.CPU, r.Machine.Cores)
	return nil
}

func newBenchDecode() *cobra.Command {
	var f benchFlags
	var pattern string
	var count int
	c := &cobra.Command{
		Use:   "decode URI|FILE.mp4...",
		Short: "decoding to RGB on one thread, against the ffmpeg CLI, torchcodec and PyAV",
		Example: `  robocache bench decode ./my_dataset --runners robocache,ffmpeg,torchcodec,pyav
  robocache bench decode clip.mp4 --pattern random --count 500`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := videoFiles(args)
			if err != nil {
				return err
			}
			tools, done, err := f.tools()
			if err != nil {
				return err
			}
			defer done()
			runners, err := bench.DecodeRunners(f.runners, pattern, count, files, tools)
			if err != nil {
				return err
			}
			return f.run(cmd, "decode-"+pattern, &bench.Report{Title: "bench decode, " + pattern, Unit: "frames", Workload: map[string]any{"files": files, "pattern": pattern, "count": count}}, func(log func(string, ...any)) ([]bench.Result, error) {
				return bench.Run(cmd.Context(), runners, f.repeats, f.timeout, log)
			})
		},
	}
	f.add(c, "robocache", "robocache, ffmpeg, torchcodec, pyav")
	c.Flags().StringVar(&pattern, "pattern", "sequential", "sequential or random")
	c.Flags().IntVar(&count, "count", 500, "frames wanted, with --pattern random")
	return c
}

// videoFiles finds the mp4 files below the folders given; files stand for themselves.
func videoFiles(args []string) ([]string, error) {
	var files []string
	for _, a := range args {
		st, err := os.Stat(a)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"file": a})
		}
		if !st.IsDir() {
			files = append(files, a)
			continue
		}
		err = filepath.WalkDir(a, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Ext(p) == ".mp4" {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"file": a})
		}
	}
	if len(files) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "bench decode", Where: robocache.Where{"file": args[0]}, Msg: "no .mp4 here"}
	}
	return files, nil
}

// runner is a hidden verb that runs a workload once, in a process of its own, and prints its outcome: the harness starts it.
func runner(use string, args cobra.PositionalArgs, run func(ctx context.Context, args []string, out io.Writer) (bench.Outcome, error)) *cobra.Command {
	return &cobra.Command{Use: use, Hidden: true, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		o, err := run(cmd.Context(), args, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		return printOutcome(cmd.OutOrStdout(), o)
	}}
}

func newRunDecode() *cobra.Command {
	var pattern string
	var count int
	c := runner("run-decode FILE...", cobra.MinimumNArgs(1), func(ctx context.Context, args []string, out io.Writer) (bench.Outcome, error) {
		if _, err := video.ActiveBackend(); err != nil {
			return bench.Outcome{}, err
		}
		return bench.DecodeRun(ctx, args, pattern, count, out)
	})
	c.Flags().StringVar(&pattern, "pattern", "sequential", "")
	c.Flags().IntVar(&count, "count", 500, "")
	return c
}

// newRunMemcpy is the limit of a warm cache.
func newRunMemcpy() *cobra.Command {
	var size, batch, threads int
	var seconds float64
	c := runner("run-memcpy", cobra.NoArgs, func(context.Context, []string, io.Writer) (bench.Outcome, error) {
		if size < 1 || batch < 1 || threads < 1 {
			return bench.Outcome{}, misuse(fmt.Sprintf("run-memcpy: %d bytes, batch %d, %d threads: expected more than 0", size, batch, threads))
		}
		return bench.CopyRun(size, batch, threads, seconds), nil
	})
	c.Flags().IntVar(&size, "frame-bytes", 640*480*3, "")
	c.Flags().IntVar(&batch, "batch-size", 32, "")
	c.Flags().IntVar(&threads, "workers", 2, "")
	c.Flags().Float64Var(&seconds, "seconds", 3, "")
	return c
}

func newRunRead() *cobra.Command {
	var j bench.ReadJob
	c := runner("run-read URI", cobra.ExactArgs(1), func(ctx context.Context, args []string, out io.Writer) (bench.Outcome, error) {
		j.URI = args[0]
		return bench.ReadRun(ctx, j, out)
	})
	c.Flags().StringVar(&j.RowsHZ, "rows-hz", "", "")
	c.Flags().StringVar(&j.Key, "key", "", "")
	c.Flags().IntVar(&j.Batch, "batch", 1, "")
	c.Flags().IntVar(&j.Windows, "windows", 0, "")
	c.Flags().Float64Var(&j.Seconds, "seconds", 3, "")
	return c
}

func newRunMessages() *cobra.Command {
	var seconds float64
	c := runner("run-messages FILE TYPE", cobra.ExactArgs(2), func(_ context.Context, args []string, out io.Writer) (bench.Outcome, error) {
		return bench.MessagesRun(args[0], args[1], seconds, out)
	})
	c.Flags().Float64Var(&seconds, "seconds", 3, "")
	return c
}
