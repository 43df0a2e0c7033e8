package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// sharedFlags are the flags that several verbs have.
type sharedFlags struct {
	line    string // the command line, which reports show
	runners []string
	repeats int
	out     string
	python  string
	json    bool
	resume  bool
	timeout time.Duration
	done    func()
}

// verb wraps a measurement: what tools unpacked is removed when it ends.
func (f *sharedFlags) verb(
	do func(cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		f.done = func() {}
		defer func() { f.done() }()
		return do(cmd, args)
	}
}

// add adds the flags that all measurements have.
func (f *sharedFlags) add(c *cobra.Command, timeout time.Duration, of string) {
	c.Flags().
		StringVar(&f.out, "out", "", "write JSON, CSV, Markdown, plots and an HTML report into "+
			"this folder")
	c.Flags().
		StringVar(&f.python, "python", "", "interpreter of the Python runners (default: "+
			".venv/bin/python, else python3)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().DurationVar(&f.timeout, "timeout", timeout, "longest time of one "+of)
}

// addRepeats adds --repeats, for verbs that start fresh processes.
func (f *sharedFlags) addRepeats(c *cobra.Command) {
	c.Flags().IntVar(&f.repeats, "repeats", 3, "interleaved repeats, a fresh process each")
}

// addResume adds --resume.
func (f *sharedFlags) addResume(c *cobra.Command) {
	c.Flags().
		BoolVar(&f.resume, "resume", false, "go on with an interrupted run: what --out's "+
			"rows.jsonl has is not run again")
}

// finished opens the file of finished runs in --out. It returns nil without --out.
func (f *sharedFlags) finished() (*bench.Finished, error) {
	if err := require(!f.resume || f.out != "",
		"--resume: expected --out DIR, where the interrupted run left its rows.jsonl"); err != nil {
		return nil, err
	}
	if f.out == "" {
		return nil, nil
	}
	return bench.OpenFinished(filepath.Join(f.out, "rows.jsonl"), f.resume)
}

// addRunners adds --runners.
func (f *sharedFlags) addRunners(c *cobra.Command, usual, known string) {
	c.Flags().StringSliceVar(&f.runners, "runners", strings.Split(usual, ","), "who runs: "+known)
}

// logTo returns a function that writes a line to stderr.
func logTo(cmd *cobra.Command) func(format string, a ...any) {
	errs := cmd.ErrOrStderr()
	return func(format string, a ...any) { fmt.Fprintf(errs, format+"\n", a...) }
}

// measured is a result that can be shown.
type measured interface{ Document() *report.Document }

// show writes and prints a report, as JSON or as text. A report that does not count is an error; a
// missed bar is errFindings.
func (f *sharedFlags) show(cmd *cobra.Command, r measured, files string) error {
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

// tools unpacks the runners, which are removed when the verb ends, and finds the programs that they
// need.
func (f *sharedFlags) tools() (runners.Tools, error) {
	self, err := os.Executable()
	if err != nil {
		return runners.Tools{}, err
	}
	t := runners.Tools{Self: []string{self}, Python: f.interpreter()}
	// In a checkout, the Python package is beside the folder of the binary.
	if p := filepath.Join(filepath.Dir(filepath.Dir(self)),
		"python"); fileExists(filepath.Join(p, "robocache", "__init__.py")) {
		t.PythonPath = p
	}
	t.Product = product(self, t.Python)
	if f.done, err = t.Unpack(); err != nil {
		return runners.Tools{}, err
	}
	return t, nil
}

// product returns the command robocache: the binary beside this one, else the one on PATH, else the
// module of the interpreter.
func product(self, python string) []string {
	if beside := filepath.Join(filepath.Dir(self), "robocache"); fileExists(beside) {
		return []string{beside}
	}
	if found, err := exec.LookPath("robocache"); err == nil {
		return []string{found}
	}
	return []string{python, "-m", "robocache"}
}

// interpreter returns the interpreter of the Python runners.
func (f *sharedFlags) interpreter() string {
	if p, err := filepath.Abs(".venv/bin/python"); f.python == "" && err == nil && fileExists(p) {
		return p
	}
	return cmp.Or(f.python, "python3")
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

// passes measures whole passes of a workload through runners, and shows the report.
func (f *sharedFlags) passes(
	cmd *cobra.Command,
	r *bench.Report,
	w bench.Workload,
	threads []int,
) error {
	r.Command, r.Machine = f.line, report.ThisMachine(version)
	tools, err := f.tools()
	if err != nil {
		return err
	}
	if r.Results, err = bench.Passes(cmd.Context(), f.runners, w, threads, tools, f.repeats,
		f.timeout, logTo(cmd)); err != nil {
		return err
	}
	return f.show(cmd, r, r.Name+".{json,csv,md,html}")
}

func newDecode(line string) *cobra.Command {
	f := sharedFlags{line: line}
	var w bench.Workload
	c := &cobra.Command{
		Use:   "decode URI|FILE.mp4...",
		Short: "decoding to RGB on one thread, against the ffmpeg CLI, torchcodec and PyAV",
		Example: `  robocache-bench decode ./my_dataset --runners robocache,ffmpeg,torchcodec,pyav
  robocache-bench decode clip.mp4 --pattern random --count 500`,
		Args: cobra.MinimumNArgs(1),
		RunE: f.verb(func(cmd *cobra.Command, args []string) error {
			var err error
			if w.Files, err = bench.VideoFiles(args); err != nil {
				return err
			}
			return f.passes(
				cmd,
				&bench.Report{
					Name:  "decode-" + w.Pattern,
					Title: "robocache-bench decode, " + w.Pattern,
					Unit:  "frames",
					Workload: map[string]any{
						"files":   w.Files,
						"pattern": w.Pattern,
						"count":   w.Count,
					},
				},
				w,
				nil,
			)
		}),
	}
	f.add(c, 10*time.Minute, "run")
	f.addRepeats(c)
	f.addRunners(c, "robocache", "robocache, ffmpeg, torchcodec, pyav")
	c.Flags().StringVar(&w.Pattern, "pattern", "sequential", "sequential or random")
	c.Flags().IntVar(&w.Count, "count", 500, "frames wanted, with --pattern random")
	return c
}
