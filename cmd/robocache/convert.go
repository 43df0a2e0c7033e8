package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/stats"
)

func newConvert() *cobra.Command {
	var open openFlags
	var opt convert.Options
	var to, fps, frames string
	c := &cobra.Command{
		Use:   "convert SRC DST",
		Short: "convert a dataset to LeRobot v3.0",
		Long: `convert writes any readable dataset as LeRobot v3.0. Rows keep their bits; video is copied without re-encoding where it can be,
joined on one grid without drift; statistics are recounted; what was dropped, renamed or re-encoded is said, and kept in
meta/conversion.json. DST must be empty. A killed conversion goes on with --resume.`,
		Example: `  robocache convert ./old_v2 ./new_v3
  robocache convert ./set ./part --episodes 0,3,5 --video-codec h264 --gop 8
  robocache convert ./set ./out --dry-run --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if to != "lerobot" {
				return &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Msg: "--to " + to, Hint: "lerobot (v3.0) is the one format written"}
			}
			if fps != "" {
				rate, err := robocache.RateOf(fps)
				if err != nil {
					return misuse("--fps: " + err.Error())
				}
				opt.FPS = rate
			}
			opt.Frames = stats.FramePolicy(frames)
			if opt.Encode.Codec == "" && opt.VideoCodec != "copy" {
				opt.Encode.Codec = opt.VideoCodec
			}
			ds, err := open.open(ctx, args[0])
			if err != nil {
				return err
			}
			defer ds.Close()
			bar := progress(cmd, "convert")
			opt.Progress = func(p convert.Progress) { bar(p.Frames, p.TotalFrames) }
			r, err := convert.ToLeRobot(ctx, ds, args[1], opt)
			if err != nil {
				return err
			}
			if open.json {
				if err := printJSON(cmd.OutOrStdout(), r); err != nil {
					return err
				}
			} else {
				printConversion(cmd.OutOrStdout(), args[1], r)
			}
			for _, e := range r.Episodes {
				if e.New < 0 {
					return errFindings
				}
			}
			return nil
		},
	}
	open.add(c)
	c.Flags().StringVar(&to, "to", "lerobot", "the format to write")
	c.Flags().IntSliceVar(&opt.Episodes, "episodes", nil, "only these episodes, in this order")
	c.Flags().StringSliceVar(&opt.Keys, "keys", nil, "only these features (the bookkeeping columns always)")
	c.Flags().StringVar(&opt.VideoCodec, "video-codec", "copy", "copy, av1, h264 or hevc")
	c.Flags().IntVar(&opt.Encode.GOP, "gop", 0, "pictures between key pictures, when encoding (0: 2, LeRobot's)")
	c.Flags().IntVar(&opt.Encode.CRF, "crf", 0, "quality, when encoding (0: 30, LeRobot's)")
	c.Flags().StringVar(&opt.Encode.Preset, "preset", "", "the encoder's preset, when encoding")
	c.Flags().BoolVar(&opt.CopyOnly, "copy-only", false, "refuse video that cannot be copied, instead of encoding it")
	c.Flags().StringVar(&fps, "fps", "", "the rate of the rows, where the source does not say it (rows are not resampled)")
	c.Flags().StringVar(&frames, "frames", "sampled", "pictures looked at for statistics: sampled, all, none")
	c.Flags().BoolVar(&opt.SkipBad, "skip-bad", false, "leave out episodes that cannot be read (exit code 3) instead of failing")
	c.Flags().BoolVar(&opt.Resume, "resume", false, "go on where a killed conversion with the same options stopped")
	c.Flags().BoolVar(&opt.DryRun, "dry-run", false, "say what would be done")
	return c
}

func printConversion(w io.Writer, dst string, r *convert.Report) {
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	fmt.Fprintf(w, "%s %s: LeRobot v3.0, %d episodes, %d frames at %s fps, from %s %s\n", verb, dst, r.NumEpisodes, r.NumFrames, r.FPS, r.SourceFormat, r.SourceVersion)
	fmt.Fprintf(w, "  video segments: %d copied, %d encoded\n", r.Copied, r.Encoded)
	for what, list := range map[string][]string{"added": r.Added, "dropped": r.Dropped} {
		if len(list) > 0 {
			fmt.Fprintf(w, "  features %s: %v\n", what, list)
		}
	}
	for from, to := range r.Renamed {
		fmt.Fprintf(w, "  feature renamed: %s → %s\n", from, to)
	}
	printFindings(w, r.Findings)
}
