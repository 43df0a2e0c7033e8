package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/verbs"
)

func newCausality() *cobra.Command {
	var r verbs.CausalityRequest
	c := &cobra.Command{
		Use:   "causality URI",
		Short: "which observations of an alignment use samples that a robot does not have yet",
		Long: `causality reads timestamps and arrival times, and reports for each stream how many rows use a sample
from after the tick, how far after it, and how many use a sample that arrived after the tick. The
ticks are the dataset's rows, or a timeline with --hz. A sample arrives at its log time. Without
log times it is assumed to arrive with its timestamp. "needs delay" is the smallest delay with
which both neighbors had arrived at 99.9 % of the ticks: an interpolating mode is causal with it.

Actions and rewards are labels, and may look ahead. Observations from the future are reported as
information: the exit code is 0. It is 3 if an episode cannot be aligned.`,
		Example: `  robocache causality recording.mcap --hz 50
  robocache causality recording.mcap --hz 50 --align causal
  robocache causality ./my_dataset --hz 50 --align '{"modes": {"observation.state": "previous"}}' --json`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	c.Flags().StringVar(&r.HZ, "hz", "", "the rate of the timeline (default: the dataset's rows)")
	c.Flags().StringVar(&r.Align, "align", "", "the alignment: causal, a JSON or YAML file, or "+
		"the JSON itself")
	c.Flags().StringSliceVar(&r.Keys, "keys", nil, "only these streams")
	addEpisodes(c, &r.Episodes)
	c.Flags().StringVar(&r.TimeBudget, "time-budget", align.DefaultReportBudget.String(),
		"read no further episode after this time (0: read all)")
	return addRun(c, &r, verbs.ReportCausality, func(w io.Writer, report *verbs.Causality) {
		printCausality(w, report.CausalityReport)
	})
}

func printCausality(w io.Writer, r *align.CausalityReport) {
	ticks := "at the dataset's rows"
	if !r.HZ.Zero() {
		ticks = "at " + r.HZ.String() + " Hz"
	}
	fmt.Fprintf(w, "%d of %d episodes %s", r.Episodes, r.TotalEpisodes, ticks)
	if r.TimeBudget > 0 {
		fmt.Fprintf(w, " (time budget %g s)", r.TimeBudget)
	}
	fmt.Fprintln(w)
	rows := [][]string{{
		"key", "mode", "ticks", "future", "median ms", "max ms", "not arrived",
		"masked", "needs delay ms", "arrivals",
	}}
	for _, s := range r.Streams {
		mode := s.Mode
		if s.Label {
			mode += " (label)"
		}
		percent := func(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
		millis := func(seconds float64) string { return fmt.Sprintf("%.1f", 1000*seconds) }
		rows = append(rows, []string{
			s.Key, mode, strconv.FormatInt(s.Ticks, 10), percent(s.FutureShare),
			millis(s.MedianLookAhead), millis(s.MaxLookAhead), percent(s.NotArrivedShare),
			percent(s.MaskedShare), millis(s.NeededDelay), s.Arrivals,
		})
	}
	printTable(w, rows)
	printFindings(w, r.Findings)
}
