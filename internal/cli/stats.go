package cli

import (
	"fmt"
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
	var out, frames string
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
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			opt.Frames = stats.FramePolicy(frames)
			switch opt.Frames {
			case stats.SampledFrames, stats.AllFrames, stats.NoFrames:
			default:
				return misuse("--frames: expected sampled, all or none, found " + strconv.Quote(frames))
			}
			if write && (open.hz != "" || open.split != "") {
				return misuse("--write puts statistics of all rows as they are into the dataset; those of --hz or --split are for --out")
			}
			if opt.Keys != nil && len(opt.Keys) == 0 {
				return misuse("--keys names no feature")
			}
			ds, err := open.open(ctx, args[0])
			if err != nil {
				return err
			}
			defer ds.Close()
			var findings []robocache.Finding
			opt.OnFinding = func(f robocache.Finding) { findings = append(findings, f) }
			bar := progress(cmd, "stats")
			opt.Progress = func(done, total int) { bar(int64(done), int64(total)) }
			s, err := stats.Compute(ctx, ds, opt)
			if err != nil {
				return err
			}
			if opt.SkipBad {
				findings = append(lost(ds), findings...)
			}
			text, err := stats.Marshal(s)
			if err != nil {
				return err
			}
			folder, name := filepath.Dir(out), filepath.Base(out)
			if write {
				f, err := robocache.FormatNamed(ds.Info().Format)
				if err != nil || f.StatsFile == "" {
					return &robocache.Error{Class: robocache.ErrUnsupported, Op: "stats --write", Msg: "format " + ds.Info().Format + " has no place for statistics", Hint: "use --out FILE"}
				}
				folder, name = args[0], f.StatsFile
			}
			if write || out != "" {
				if err := writeWhole(cmd, folder, name, append(text, '\n')); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s in %s\n", name, folder)
			}
			w := cmd.OutOrStdout()
			switch {
			case open.json:
				fmt.Fprintf(w, "%s\n", text)
			case out == "" && !write:
				rows := [][]string{{"feature", "count", "index", "min", "q01", "mean", "q99", "max", "std"}}
				num := func(v []float64, i int) string {
					if i >= len(v) {
						return "–"
					}
					return strconv.FormatFloat(v[i], 'g', 6, 64)
				}
				for _, f := range ds.Info().Features {
					fs := s[f.Key]
					if fs == nil {
						continue
					}
					for i := range fs.Mean {
						rows = append(rows, []string{f.Key, strconv.FormatInt(fs.Count, 10), strconv.Itoa(i), num(fs.Min, i), num(fs.Quantiles["q01"], i), num(fs.Mean, i), num(fs.Quantiles["q99"], i), num(fs.Max, i), num(fs.Std, i)})
					}
				}
				table(w, rows)
			}
			if len(findings) > 0 {
				printFindings(cmd.ErrOrStderr(), findings)
			}
			if slices.ContainsFunc(findings, func(f robocache.Finding) bool { return f.Severity != robocache.SeverityInfo }) {
				return errFindings
			}
			return nil
		},
	}
	open.add(c)
	open.addGrid(c)
	c.Flags().StringVar(&out, "out", "", "write stats.json here")
	c.Flags().BoolVar(&write, "write", false, "write into the dataset (meta/stats.json)")
	c.Flags().StringVar(&frames, "frames", "sampled", "images looked at: sampled (as LeRobot chooses them), all, none")
	c.Flags().StringSliceVar(&opt.Keys, "keys", nil, "only these features")
	c.Flags().BoolVar(&opt.SkipBad, "skip-bad", false, "leave out episodes that cannot be read (exit code 3) instead of failing")
	c.Flags().IntSliceVar(&opt.Episodes, "episodes", nil, "only these episodes")
	return c
}

// lost are the findings of opening about files that cannot be read.
func lost(ds robocache.Dataset) (out []robocache.Finding) {
	for _, f := range ds.Info().Findings {
		if f.Lost {
			out = append(out, f)
		}
	}
	return out
}

// writeWhole writes a file of a store so that it appears whole or not at all.
func writeWhole(cmd *cobra.Command, folder, name string, text []byte) error {
	s, err := store.OpenWritable(folder)
	if err != nil {
		return err
	}
	defer store.Close(s)
	w, err := s.Create(cmd.Context(), name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(text); err != nil {
		return robocache.At(err, robocache.Where{"file": name})
	}
	return w.Commit()
}
