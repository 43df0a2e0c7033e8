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
file, or stores them in the dataset.`,
		Example: `  robocache stats ./my_dataset
  robocache stats ./my_dataset --frames none --out stats.json
  robocache stats ./my_dataset --write`,
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
	addEpisodes(c, &r.Episodes)
	rejectEmpty(c, "frames")
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
