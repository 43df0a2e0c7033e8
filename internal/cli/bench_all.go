package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
)

func newBenchAll() *cobra.Command {
	a := &bench.All{Revision: version}
	var asJSON bool
	c := &cobra.Command{
		Use:   "all",
		Short: "the whole suite in one command, within a time: synthesise, load, decode, train, and a page of results",
		Long: `all runs the parts of the suite by the other verbs, each within its share of the time: ` + strings.Join(bench.AllNames(), ", ") + `.
A part that this machine cannot run, or for which no time is left, is skipped with its reason and its command. What is over is a line of rows.jsonl
in --out: --resume runs what is missing, also after a kill. It writes README.md, benchmark_results.json, report.html and plots/. Exit code 1: a runner
gave wrong data, or failed.`,
		Example: `  robocache bench all --time 15m --out results
  robocache bench all --time 2m --out results --parts synth,load
  robocache bench all --time 15m --out results --resume
  robocache bench report results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := a.Check(); err != nil {
				return err
			}
			began := time.Now()
			if a.Self, err = os.Executable(); err != nil {
				return err
			}
			if a.Python == "" {
				a.Python = "python3"
				if p, err := filepath.Abs(".venv/bin/python"); err == nil && fileExists(p) {
					a.Python = p
				}
			}
			if a.Work == "" {
				a.Work = filepath.Join(a.Out, "sets")
			}
			if a.Work, err = filepath.Abs(a.Work); err != nil {
				return err
			}
			if a.Done, err = bench.OpenFinished(filepath.Join(a.Out, "rows.jsonl"), a.Resume); err != nil {
				return err
			}
			defer a.Done.Close()
			devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
			a.GPUs, a.Log = len(devices), logTo(cmd)
			r, err := a.Run(cmd.Context())
			if err != nil {
				return err
			}
			r.Command, r.Took = command(), time.Since(began).Seconds()
			if err := r.Write(a.Out); err != nil {
				return err
			}
			logTo(cmd)("wrote %s", filepath.Join(a.Out, "README.md, benchmark_results.json, report.html, plots/"))
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				fmt.Fprint(cmd.OutOrStdout(), r.Markdown())
			}
			if why := r.Failed(); why != "" {
				return errors.Join(err, errors.New("bench all: "+why))
			}
			return err
		},
	}
	f := c.Flags()
	f.DurationVar(&a.Time, "time", 15*time.Minute, "for all parts together")
	f.StringVar(&a.Out, "out", "", "folder of the results")
	f.StringVar(&a.Work, "work", "", "folder of the sets that are made (default: sets in --out)")
	f.StringSliceVar(&a.Parts, "parts", nil, "some parts: "+strings.Join(bench.AllNames(), ", "))
	f.BoolVar(&a.Resume, "resume", false, "go on with an interrupted run: what rows.jsonl has is not run again")
	f.StringVar(&a.Python, "python", "", "interpreter of the Python runners (default: .venv/bin/python, else python3)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newBenchReport() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "report RUN [RUN2]",
		Short: "show a run's files again, or compare two runs: what got worse beyond both spreads is exit code 3",
		Long:  "RUN is the folder of bench all, or a JSON report of any measurement (load.json, train.json, peers.json …).",
		Example: `  robocache bench report results
  robocache bench report before after
  robocache bench report before/train.json after/train.json --out compared`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := bench.ReadRows(args[0])
			if err != nil {
				return err
			}
			d := &report.Document{Title: "robocache bench report", Command: command(), Raw: rows}
			worse := 0
			if len(args) == 2 {
				others, err := bench.ReadRows(args[1])
				if err != nil {
					return err
				}
				d.Sheet, worse = bench.Compare(rows, others)
				d.Sections = []report.Section{{Text: []string{fmt.Sprintf("%s, then %s: medians (min–max). %d figures are worse by more than 3 %%, beyond both spreads.", args[0], args[1], worse)}, Table: d.Sheet}}
			} else if r, err := bench.ReadAllReport(args[0]); err == nil {
				if out != "" {
					return r.Write(out)
				}
				fmt.Fprint(cmd.OutOrStdout(), r.Markdown())
				return nil
			} else {
				d.Sheet = &report.Table{Head: []string{"what", "metric", "median (min–max)"}}
				for _, r := range rows {
					d.Sheet.Add(r.Name, r.Metric, report.Short(r.Value))
				}
				d.Sections = []report.Section{{Table: d.Sheet}}
			}
			if out != "" {
				if err := d.Write(out, "report"); err != nil {
					return err
				}
			}
			d.Markdown(cmd.OutOrStdout())
			if worse > 0 {
				return errFindings
			}
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "", "write JSON, CSV, Markdown and HTML into this folder")
	return c
}
