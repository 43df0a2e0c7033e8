package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/submit"
)

func newBench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure loading and decoding, side by side with the peers",
		Example: `  robocache bench load ./my_dataset --runners engine,robocache,lerobot
  robocache bench decode ./my_dataset --runners robocache,ffmpeg
  robocache bench ops --quick
  robocache bench peers ./my_dataset --workload av1-global
  robocache bench all --time 15m --out results`,
		// Without RunE an unknown measurement would print the help and exit with 0.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("bench " + strconv.Quote(args[0]) + ": expected load, decode, ops, peers, formats, soak, train, all or report")
			}
			return cmd.Help()
		},
	}
	c.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(renamedFlags[name], name))
	})
	c.AddCommand(newBenchLoad(), newBenchDecode(), newBenchOps(), newBenchPeers(), newBenchFormats(), newBenchSoak(), newBenchTrain(), newBenchAll(), newBenchReport(), &cobra.Command{
		Use: "run KIND JOB", Hidden: true, Args: cobra.ExactArgs(2), // a runner: the harness starts it in a process of its own
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Serve(cmd.Context(), args[0], args[1], cmd.OutOrStdout())
		},
	})
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
	resume  bool
	timeout time.Duration
	done    func()
}

// verb is what a measurement does.
func (f *benchFlags) verb(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		f.done = func() {}
		defer func() { f.done() }()
		if err := do(cmd, args); err != nil {
			return err
		}
		return nil
	}
}

// add gives a verb the flags that all have.
func (f *benchFlags) add(c *cobra.Command, timeout time.Duration, of string) {
	c.Flags().StringVar(&f.out, "out", "", "write JSON, CSV, Markdown, plots and an HTML report into this folder")
	c.Flags().StringVar(&f.python, "python", "", "interpreter of the Python runners (default: the one that runs this, else .venv/bin/python, else python3)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().DurationVar(&f.timeout, "timeout", timeout, "longest time of one "+of)
}

// addRepeats gives it those of fresh processes.
func (f *benchFlags) addRepeats(c *cobra.Command) {
	c.Flags().IntVar(&f.repeats, "repeats", 3, "interleaved repeats, a fresh process each")
}

// addResume gives it --resume.
func (f *benchFlags) addResume(c *cobra.Command) {
	c.Flags().BoolVar(&f.resume, "resume", false, "go on with an interrupted run: what --out's rows.jsonl has is not run again")
}

// finished has the runs that are over, in --out; nil without it.
func (f *benchFlags) finished() (*bench.Finished, error) {
	if err := require(!f.resume || f.out != "", "--resume: expected --out DIR, where the interrupted run left its rows.jsonl"); err != nil {
		return nil, err
	}
	if f.out == "" {
		return nil, nil
	}
	return bench.OpenFinished(filepath.Join(f.out, "rows.jsonl"), f.resume)
}

// addRunners says who may run.
func (f *benchFlags) addRunners(c *cobra.Command, usual, known string) {
	c.Flags().StringSliceVar(&f.runners, "runners", strings.Split(usual, ","), "who runs: "+known)
}

// command is the line that reports show.
func command() string { return "robocache " + strings.Join(arguments, " ") }

// require fails with a misuse of the options.
func require(ok bool, what string) error {
	if !ok {
		return misuse(what)
	}
	return nil
}

// logTo says how it goes, on stderr.
func logTo(cmd *cobra.Command) func(format string, a ...any) {
	errs := cmd.ErrOrStderr()
	return func(format string, a ...any) { fmt.Fprintf(errs, format+"\n", a...) }
}

// measured is what a verb has to show.
type measured interface{ Document() *report.Document }

// show writes and prints a report, as JSON or as text. Why it does not count is exit code 1; a bar that is missed, 3.
func (f *benchFlags) show(cmd *cobra.Command, r measured, files string) error {
	d := r.Document()
	if f.out != "" {
		if err := d.Write(f.out); err != nil {
			return err
		}
		logTo(cmd)("wrote %s", filepath.Join(f.out, files))
	}
	if f.json {
		if err := printJSON(cmd.OutOrStdout(), d.Raw); err != nil {
			return err
		}
	} else {
		d.Markdown(cmd.OutOrStdout())
	}
	if d.Wrong != "" {
		return errors.New(cmd.CommandPath() + ": " + d.Wrong)
	}
	if d.Missed != nil {
		logTo(cmd)("missed: %s", strings.Join(d.Missed, "; "))
		return errFindings
	}
	return nil
}

// tools are the runners' programs; they are removed when the verb ends.
func (f *benchFlags) tools() (runners.Tools, error) {
	self, err := submit.Itself()
	if err != nil {
		return runners.Tools{}, err
	}
	interpreter, err := f.interpreter()
	if err != nil {
		return runners.Tools{}, err
	}
	t := runners.Tools{Self: self, Python: interpreter}
	// In a checkout, our Python package stands beside the binary's folder.
	if p := filepath.Join(filepath.Dir(filepath.Dir(self[0])), "python"); fileExists(filepath.Join(p, "robocache", "__init__.py")) {
		t.PythonPath = p
	}
	if f.done, err = t.Unpack(); err != nil {
		return runners.Tools{}, err
	}
	return t, nil
}

// interpreter is the runners'.
func (f *benchFlags) interpreter() (string, error) {
	if self, err := submit.Itself(); err != nil {
		return "", err
	} else if f.python == "" && len(self) > 1 {
		return self[0], nil // another environment may have another version of this package, or none
	}
	if p, err := filepath.Abs(".venv/bin/python"); f.python == "" && err == nil && fileExists(p) {
		return p, nil
	}
	return cmp.Or(f.python, "python3"), nil
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

// passes measures whole passes of a workload through runners, and shows the report.
func (f *benchFlags) passes(cmd *cobra.Command, r *bench.Report, w bench.Workload, threads []int) error {
	r.Command, r.Machine = command(), report.ThisMachine(version)
	tools, err := f.tools()
	if err != nil {
		return err
	}
	if r.Results, err = bench.Passes(cmd.Context(), f.runners, w, threads, tools, f.repeats, f.timeout, logTo(cmd)); err != nil {
		return err
	}
	return f.show(cmd, r, r.Name+".{json,csv,md,html}")
}

func newBenchDecode() *cobra.Command {
	var f benchFlags
	var w bench.Workload
	c := &cobra.Command{
		Use:   "decode URI|FILE.mp4...",
		Short: "decoding to RGB on one thread, against the ffmpeg CLI, torchcodec and PyAV",
		Example: `  robocache bench decode ./my_dataset --runners robocache,ffmpeg,torchcodec,pyav
  robocache bench decode clip.mp4 --pattern random --count 500`,
		Args: cobra.MinimumNArgs(1),
		RunE: f.verb(func(cmd *cobra.Command, args []string) error {
			var err error
			if w.Files, err = bench.VideoFiles(args); err != nil {
				return err
			}
			return f.passes(cmd, &bench.Report{Name: "decode-" + w.Pattern, Title: "bench decode, " + w.Pattern, Unit: "frames", Workload: map[string]any{"files": w.Files, "pattern": w.Pattern, "count": w.Count}}, w, nil)
		}),
	}
	f.add(c, 10*time.Minute, "run")
	f.addRepeats(c)
	f.addRunners(c, "robocache", "robocache, ffmpeg, torchcodec, pyav")
	c.Flags().StringVar(&w.Pattern, "pattern", "sequential", "sequential or random")
	c.Flags().IntVar(&w.Count, "count", 500, "frames wanted, with --pattern random")
	return c
}
