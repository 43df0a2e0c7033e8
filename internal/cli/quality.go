package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/verbs"
)

func newQuality() *cobra.Command {
	var r verbs.QualityRequest
	c := &cobra.Command{
		Use:   "quality URI",
		Short: "measure every episode, and list those that differ from the others",
		Long: `quality computes a table with one row of metrics per episode: motion, gripper, consistency of state
and action, clocks, images, and comparisons within the set. docs/quality.md describes each metric.

The table is written into the dataset (meta/quality.parquet, or NAME.quality.parquet beside a file),
or to --out. Expressions read it: 'q.idle < 0.3' of edit, find and the viewer. An interrupted run
continues with the episodes that it measured.

Findings compare an episode with the others of its task, or of the dataset if the task has fewer
than 20. The exit code is 3 if there are findings.`,
		Example: `  robocache quality ./my_dataset
  robocache quality ./my_dataset --frames none
  robocache quality ./my_dataset --html report.html
  robocache quality s3://lab/set --out quality.parquet --frames sample
  robocache edit keep ./my_dataset ./clean --where 'q.idle < 0.3'`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	flags := c.Flags()
	flags.StringVar(&r.Out, "out", "", "the table to write: .parquet, .csv or .json; - for none "+
		"(default: the table of a local dataset)")
	flags.StringVar(&r.HTML, "html", "", "write a report with the worst episodes, distributions "+
		"and coverage as one HTML page")
	flags.StringVar(&r.Frames, "frames", "all", "images to measure: all, sample, none")
	flags.StringVar(&r.Budget, "budget", "256MiB", "memory for the numbers of one episode")
	flags.IntVar(&r.Threads, "threads", 0, "episodes at once (default: the number of CPUs)")
	flags.BoolVar(&r.Verbose, "verbose", false, "list every finding")
	addEpisodes(c, &r.Episodes)
	rejectEmpty(c, "frames", "budget")
	return addRun(c, &r, verbs.MeasureQuality, func(w io.Writer, q *verbs.Quality) {
		printQuality(w, q, r.Verbose)
	})
}

// printQuality prints a row for each metric with values, and the findings.
func printQuality(w io.Writer, q *verbs.Quality, isVerbose bool) {
	fmt.Fprintf(w, "%d episodes of %s\n", q.Episodes, q.URI)
	rows := [][]string{{"metric", "group", "unit", "episodes", "min", "median", "max", "findings"}}
	number := func(v *float64) string { return strconv.FormatFloat(*v, 'g', 4, 64) }
	for i := range q.Metrics {
		m := &q.Metrics[i]
		if m.Count == 0 {
			continue
		}
		rows = append(rows, []string{
			m.Name, m.Group, m.Unit, strconv.Itoa(m.Count), number(m.Min), number(m.Median),
			number(m.Max), strconv.Itoa(m.Findings),
		})
	}
	printTable(w, rows)
	if isVerbose {
		printFindings(w, q.Findings)
	} else {
		printSummary(w, q.Findings)
	}
}
