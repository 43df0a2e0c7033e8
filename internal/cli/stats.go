package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/verbs"
)

func newStats() *cobra.Command {
	var r verbs.StatsRequest
	c := &cobra.Command{
		Use:   "stats URI",
		Short: "exact count, min, max, mean, std and quantiles of every feature",
		Long: `stats computes statistics of every row of every numeric feature in float64, with exact quantiles,
and of the images of every camera (scaled to [0,1], per channel). It prints them, writes them to a
file, or stores them in the dataset.

--for gives the statistics that a trainer computes itself. lerobot's stats.json has quantiles that
are the mean of those of the episodes. openpi and gr00t count windows of actions, after the actions
in --relative became relative to the state: norm_stats.json, or stats.json and relative_stats.json
in the folder --out. all writes the files of all three into folders below --out, from one pass over
the data. With --partials, the next run reads only new and changed episodes.`,
		Example: `  robocache stats ./my_dataset
  robocache stats ./my_dataset --frames none --out stats.json
  robocache stats ./my_dataset --write
  robocache stats ./my_dataset --for openpi --relative 0-5 --out assets/my_dataset
  robocache stats ./my_dataset --for gr00t --relative left_arm,right_arm --write
  robocache stats ./my_dataset --for all --frames none --out assets --partials ~/partials`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	addGrid(c, &r.HZ)
	c.Flags().StringVar(&r.Out, "out", "", "write stats.json here")
	c.Flags().BoolVar(&r.Write, "write", false, "write into the dataset (meta/stats.json)")
	c.Flags().
		StringVar(
			&r.Frames,
			"frames",
			"sampled",
			"images to use: sampled (as LeRobot chooses them), all, none",
		)
	c.Flags().StringSliceVar(&r.Keys, "keys", nil, "only these features")
	c.Flags().
		BoolVar(
			&r.SkipBad,
			"skip-bad",
			false,
			"leave out episodes that cannot be read (exit code 3) instead of failing",
		)
	flags := c.Flags()
	flags.StringVar(&r.For, "for", "",
		"as a trainer computes them: lerobot, openpi, gr00t, all (default: exact, of all rows)")
	flags.StringVar(&r.Partials, "partials", "",
		"a folder that keeps what was read, so that the next run reads only new episodes")
	flags.IntVar(
		&r.Horizon,
		"horizon",
		0,
		"rows of an action window (default 50 for openpi, 16 for gr00t)",
	)
	flags.StringSliceVar(
		&r.Relative,
		"relative",
		nil,
		"actions relative to the state: columns for openpi (0-5,7), groups of modality.json for gr00t",
	)
	flags.BoolVar(&r.Exact, "exact", false,
		"openpi: exact quantiles of all windows, in place of its histograms over batches of 32")
	flags.StringVar(&r.State, "state", "", `the stream of the state (default "observation.state")`)
	flags.StringVar(&r.Action, "action", "", `the stream of the action (default "action")`)
	addEpisodes(c, &r.Episodes)
	rejectEmpty(c, "frames", "for", "partials")
	return addRun(c, &r, verbs.Stats, func(w io.Writer, s *verbs.Statistics) {
		if r.Out == "" && !r.Write {
			printStats(w, s)
		}
	})
}

func printStats(w io.Writer, s *verbs.Statistics) {
	rows := [][]string{{"feature", "count", "index", "min", "q01", "mean", "q99", "max", "std"}}
	for _, f := range s.Features {
		fs := s.Stats[f.Key]
		if fs == nil {
			continue
		}
		for i := range fs.Mean {
			row := []string{f.Key, strconv.FormatInt(fs.Count, 10), strconv.Itoa(i)}
			for _, v := range [][]float64{
				fs.Min,
				fs.Quantiles["q01"],
				fs.Mean,
				fs.Quantiles["q99"],
				fs.Max,
				fs.Std,
			} {
				cell := "–"
				if i < len(v) {
					cell = strconv.FormatFloat(v[i], 'g', 6, 64)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	printTable(w, rows)
}
