package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

func newStats() *cobra.Command {
	var open openFlags
	var out, frames, episodes string
	var write bool
	var opt stats.Options
	c := &cobra.Command{
		Use:   "stats URI",
		Short: "exact count, min, max, mean, std and quantiles of every feature",
		Long: `stats counts every row of every numeric feature in float64, with exact quantiles, and the images of every camera
(scaled to [0,1] a channel). It prints them, writes them to a file, or into the dataset's own place.`,
		Example: `  robocache stats ./my_dataset
  robocache stats ./my_dataset --frames none --out stats.json
  robocache stats ./my_dataset --write`,
		Args: cobra.ExactArgs(1),
	}
	open.add(c)
	open.addGrid(c)
	c.Flags().StringVar(&out, "out", "", "write stats.json here")
	c.Flags().BoolVar(&write, "write", false, "write into the dataset (meta/stats.json)")
	c.Flags().StringVar(&frames, "frames", "sampled", "images looked at: sampled (as LeRobot chooses them), all, none")
	c.Flags().StringSliceVar(&opt.Keys, "keys", nil, "only these features")
	c.Flags().BoolVar(&opt.SkipBad, "skip-bad", false, "leave out episodes that cannot be read (exit code 3) instead of failing")
	addEpisodes(c, &episodes)
	return answers(c, func(cmd *cobra.Command, args []string) (*counted, error, error) {
		ctx := cmd.Context()
		opt.Frames = stats.FramePolicy(frames)
		switch {
		case opt.Frames != stats.SampledFrames && opt.Frames != stats.AllFrames && opt.Frames != stats.NoFrames:
			return nil, nil, misuse("--frames: expected sampled, all or none, found " + strconv.Quote(frames))
		case write && (open.hz != "" || open.split != ""):
			return nil, nil, misuse("--write puts statistics of all rows as they are into the dataset; those of --hz or --split are for --out")
		case opt.Keys != nil && len(opt.Keys) == 0:
			return nil, nil, misuse("--keys names no feature")
		}
		ds, err := open.open(ctx, args[0])
		if err != nil {
			return nil, nil, err
		}
		defer ds.Close()
		if opt.Episodes, err = ds.Info().ParseEpisodes(episodes); err != nil {
			return nil, nil, err
		}
		var findings []robocache.Finding
		opt.OnFinding = func(f robocache.Finding) { findings = append(findings, f) }
		show := inUnit(newProgress(cmd, "stats"), "streams")
		opt.Progress = func(done, total int) { show(int64(done), int64(total)) }
		r := &counted{features: ds.Info().Features, quiet: out != "" || write}
		if r.stats, err = stats.Compute(ctx, ds, opt); err != nil {
			return nil, nil, err
		}
		if opt.SkipBad { // the findings of opening about files that cannot be read
			lost := slices.DeleteFunc(slices.Clone(ds.Info().Findings), func(f robocache.Finding) bool { return !f.Lost })
			findings = append(lost, findings...)
		}
		folder, name := filepath.Dir(out), filepath.Base(out)
		if write {
			f, err := robocache.FormatNamed(ds.Info().Format)
			if err != nil || f.StatsFile == "" {
				return nil, nil, robocache.Unsupported("stats --write", nil, "format %s has no place for statistics", ds.Info().Format).
					WithHint("use --out FILE")
			}
			folder, name = args[0], f.StatsFile
		}
		if r.quiet {
			encoded, err := stats.Marshal(r.stats)
			if err != nil {
				return nil, nil, err
			}
			if err := store.WriteFile(ctx, folder, name, append(encoded, '\n')); err != nil {
				return nil, nil, err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s in %s\n", name, folder)
		}
		printFindings(cmd.ErrOrStderr(), findings)
		return r, verdict(findings), nil
	}, printStats)
}

// counted is the answer of stats.
type counted struct {
	stats    robocache.Stats
	features []robocache.Feature
	quiet    bool // it was written to a file
}

// JSON is the text of stats.json.
func (r *counted) JSON() ([]byte, error) { return stats.Marshal(r.stats) }

func printStats(w io.Writer, r *counted) {
	if r.quiet {
		return
	}
	rows := [][]string{{"feature", "count", "index", "min", "q01", "mean", "q99", "max", "std"}}
	for _, f := range r.features {
		fs := r.stats[f.Key]
		if fs == nil {
			continue
		}
		for i := range fs.Mean {
			row := []string{f.Key, strconv.FormatInt(fs.Count, 10), strconv.Itoa(i)}
			for _, v := range [][]float64{fs.Min, fs.Quantiles["q01"], fs.Mean, fs.Quantiles["q99"], fs.Max, fs.Std} {
				cell := "–"
				if i < len(v) {
					cell = strconv.FormatFloat(v[i], 'g', 6, 64)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	table(w, rows)
}
