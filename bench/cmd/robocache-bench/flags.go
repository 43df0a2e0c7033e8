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

// sharedFlags holds the flags that several verbs have.
type sharedFlags struct {
	commandLine string // the command line, for reports
	runners     []string
	repeats     int
	out         string
	python      string
	json        bool
	resume      bool
	timeout     time.Duration
	cleanup     func()
}

// withCleanup wraps a measurement. It removes the files that tools unpacked when the measurement
// ends.
func (f *sharedFlags) withCleanup(
	do func(cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		f.cleanup = func() {}
		defer func() { f.cleanup() }()
		return do(cmd, args)
	}
}

// addCommon adds the flags that all measurements have.
func (f *sharedFlags) addCommon(c *cobra.Command, timeout time.Duration, of string) {
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
	c.Flags().IntVar(&f.repeats, "repeats", 3, "interleaved repeats, each in a fresh process")
}

// addResume adds --resume.
func (f *sharedFlags) addResume(c *cobra.Command) {
	c.Flags().
		BoolVar(&f.resume, "resume", false, "resume an interrupted run: results in rows.jsonl of "+
			"--out are reused")
}

// openFinished opens the file of completed runs in --out. It returns nil without --out.
func (f *sharedFlags) openFinished() (*bench.Finished, error) {
	if err := misuseUnless(!f.resume || f.out != "",
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
	c.Flags().StringSliceVar(&f.runners, "runners", strings.Split(usual, ","), "runners: "+known)
}

// logTo returns a function that writes a line to stderr.
func logTo(cmd *cobra.Command) func(format string, a ...any) {
	errs := cmd.ErrOrStderr()
	return func(format string, a ...any) { fmt.Fprintf(errs, format+"\n", a...) }
}

// documented is a result that can be shown.
type documented interface{ Document() *report.Document }

// showReport writes a report to --out and prints it, as JSON or text. It returns an error if the
// report is wrong, and errFindings if a bar was missed.
func (f *sharedFlags) showReport(cmd *cobra.Command, r documented, files string) error {
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

// unpackTools unpacks the Python runners and locates the programs that they need. The verb removes
// the unpacked files when it ends.
func (f *sharedFlags) unpackTools() (runners.Tools, error) {
	self, err := os.Executable()
	if err != nil {
		return runners.Tools{}, err
	}
	t := runners.Tools{Self: []string{self}, Python: f.pythonInterpreter()}
	// In a checkout, the Python package is next to the folder of the binary.
	if p := filepath.Join(filepath.Dir(filepath.Dir(self)),
		"python"); fileExists(filepath.Join(p, "robocache", "__init__.py")) {
		t.PythonPath = p
	}
	t.Product = productCommand(self, t.Python)
	if f.cleanup, err = t.Unpack(); err != nil {
		return runners.Tools{}, err
	}
	return t, nil
}

// productCommand returns the command robocache. It prefers the binary next to this one, then the
// one on PATH, then the Python module.
func productCommand(self, python string) []string {
	if beside := filepath.Join(filepath.Dir(self), "robocache"); fileExists(beside) {
		return []string{beside}
	}
	if found, err := exec.LookPath("robocache"); err == nil {
		return []string{found}
	}
	return []string{python, "-m", "robocache"}
}

// pythonInterpreter returns the interpreter of the Python runners.
func (f *sharedFlags) pythonInterpreter() string {
	if p, err := filepath.Abs(".venv/bin/python"); f.python == "" && err == nil && fileExists(p) {
		return p
	}
	return cmp.Or(f.python, "python3")
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

// runPasses measures whole passes of a workload and shows the report.
func (f *sharedFlags) runPasses(
	cmd *cobra.Command,
	r *bench.Report,
	w bench.Workload,
	threads []int,
) error {
	r.Command, r.Machine = f.commandLine, report.ThisMachine(version)
	tools, err := f.unpackTools()
	if err != nil {
		return err
	}
	if r.Results, err = bench.Passes(cmd.Context(), f.runners, w, threads, tools, f.repeats,
		f.timeout, logTo(cmd)); err != nil {
		return err
	}
	return f.showReport(cmd, r, r.Name+".{json,csv,md,html}")
}

// newDecode returns the verb decode.
func newDecode(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var w bench.Workload
	c := &cobra.Command{
		Use:   "decode URI|FILE.mp4...",
		Short: "compare decoding to RGB on one thread with the ffmpeg CLI, torchcodec and PyAV",
		Example: `  robocache-bench decode ./my_dataset --runners robocache,ffmpeg,torchcodec,pyav
  robocache-bench decode clip.mp4 --pattern random --count 500`,
		Args: cobra.MinimumNArgs(1),
		RunE: f.withCleanup(func(cmd *cobra.Command, args []string) error {
			var err error
			if w.Files, err = bench.VideoFiles(args); err != nil {
				return err
			}
			return f.runPasses(
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
	f.addCommon(c, 10*time.Minute, "run")
	f.addRepeats(c)
	f.addRunners(c, "robocache", "robocache, ffmpeg, torchcodec, pyav")
	c.Flags().StringVar(&w.Pattern, "pattern", "sequential", "sequential or random")
	c.Flags().IntVar(&w.Count, "count", 500, "number of frames, with --pattern random")
	return c
}
