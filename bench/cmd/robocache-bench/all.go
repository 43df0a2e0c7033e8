package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
)

// newAll returns the verb all.
func newAll(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	a := &bench.All{Revision: version}
	c := &cobra.Command{
		Use: "all",
		Short: "run the whole suite within a time: synthesise, load, decode, train, and write a " +
			"page of results",
		Long: `all runs the parts of the suite with the other verbs, each within its share of the time: ` +
			strings.Join(
				bench.AllNames(),
				", ",
			) + `.

A part is skipped, with its reason and its command, if this machine cannot run it or if no time is
left. Completed commands are saved as lines of rows.jsonl in --out. --resume runs the missing ones,
also after a kill. The results are README.md, benchmark_results.json, report.html and plots/.
Exit code 1: a runner failed or delivered wrong data; 3: a bar is missed.`,
		Example: `  robocache-bench all --time 15m --out results
  robocache-bench all --time 2m --out results --parts synth,load
  robocache-bench all --time 15m --out results --resume
  robocache-bench report results`,
		Args: cobra.NoArgs,
		RunE: f.withCleanup(func(cmd *cobra.Command, _ []string) error {
			a.Out, a.Log = f.out, logTo(cmd)
			if err := a.Check(); err != nil {
				return err
			}
			var err error
			if a.Tools, err = f.unpackTools(); err != nil {
				return err
			}
			began := time.Now()
			if a.Work, err = filepath.Abs(cmp.Or(a.Work, filepath.Join(a.Out, "sets"))); err !=
				nil {
				return err
			}
			if a.Done,
				err = bench.OpenFinished(filepath.Join(a.Out, "rows.jsonl"), a.Resume); err != nil {
				return err
			}
			defer a.Done.Close()
			devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
			a.GPUs = len(devices)
			r, err := a.Run(cmd.Context())
			if err != nil {
				return err
			}
			r.Command, r.Took = f.commandLine, time.Since(began).Seconds()
			files := "README.md, benchmark_results.json, report.html"
			if r.Document().Plots() {
				files += ", plots/"
			}
			return f.showReport(cmd, r, files)
		}),
	}
	fl := c.Flags()
	fl.DurationVar(&a.Time, "time", 15*time.Minute, "time for all parts together")
	fl.StringVar(&f.out, "out", "", "folder for the results")
	fl.StringVar(&a.Work, "work", "", "folder for the sets (default: sets in --out)")
	fl.StringSliceVar(&a.Parts, "parts", nil, "parts to run: "+strings.Join(bench.AllNames(), ", "))
	fl.BoolVar(
		&a.Resume,
		"resume",
		false,
		"resume an interrupted run: results in rows.jsonl are reused",
	)
	fl.StringVar(
		&f.python,
		"python",
		"",
		"interpreter of the Python runners (default: .venv/bin/python, else python3)",
	)
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// newReport returns the verb report.
func newReport(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var page string
	c := &cobra.Command{
		Use: "report RUN [RUN2]",
		Short: "show the results of a run, or compare two runs; exit code 3 if a figure became " +
			"worse beyond both spreads",
		Long: "RUN is the folder of robocache-bench all, or a JSON report of any measurement " +
			"(load.json, train.json, peers.json …).",
		Example: `  robocache-bench report results
  robocache-bench report before after
  robocache-bench report before/train.json after/train.json --out compared
  robocache-bench report --performance docs/perf >docs/PERFORMANCE.md`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := misuseUnless((page == "") == (len(args) > 0),
				"robocache-bench report: expected RUN, RUN RUN2, or --performance FOLDER"); err !=
				nil {
				return err
			}
			if page != "" {
				return bench.Performance(page, cmd.OutOrStdout())
			}
			rows, err := bench.ReadRows(args[0])
			if err != nil {
				return err
			}
			worse := 0
			d := &report.Document{
				Name:    "report",
				Title:   "robocache-bench report",
				Command: f.commandLine,
				Raw:     rows,
			}
			if len(args) == 2 {
				rowsValue, err := bench.ReadRows(args[1])
				if err != nil {
					return err
				}
				d.Sheet, worse = bench.Compare(rows, rowsValue)
				d.Add(
					"",
					d.Sheet,
					fmt.Sprintf(
						"%s, then %s: medians (min–max). %d figures are worse by more than 3 %%, "+
							"beyond both spreads.",
						args[0],
						args[1],
						worse,
					),
				)
			} else if r, err := bench.ReadAllReport(args[0]); err == nil {
				d = r.Document()
			} else {
				d.Sheet = &report.Table{Head: []string{"what", "metric", "median (min–max)"}}
				for _, r := range rows {
					d.Sheet.Add(r.Name, r.Metric, report.Short(r.Value))
				}
				d.Add("", d.Sheet)
			}
			if f.out != "" {
				if err := d.Write(f.out); err != nil {
					return err
				}
			}
			if d.Markdown(cmd.OutOrStdout()); worse > 0 {
				return errFindings
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.out, "out", "", "write JSON, CSV, Markdown and HTML into this folder")
	c.Flags().
		StringVar(&page, "performance", "", "print the page of page.tmpl and the results in this "+
			"folder: docs/PERFORMANCE.md")
	return c
}
