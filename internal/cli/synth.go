package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/synth"
)

func newSynth() *cobra.Command {
	var opt synth.Options
	var format, rates, size, hz string
	var writing []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "synth DST",
		Short: "make a synthetic dataset: seeded, with video, several cameras, jitter and gaps",
		Long: `synth writes a dataset of a planar arm that reaches for coloured discs, seen by cameras. The same seed and options
give the same bytes. Each image carries a bar code of its episode and row, so that a test can tell which frame it was given.
Without options: LeRobot v3.0, 4 episodes of 2 s, two cameras of 128×96; 'robocache doctor' finds nothing wrong with it.
The same seed gives the same samples, timestamps and losses in every format: MCAP has them on clocks of their own; in formats of one clock,
LeRobot among them, a stream beside the rows is a column of each row's samples, with <key>.recorded and <key>.count. --hz, and --late,
--offset, --skew, --dropout, --depth, clouds and texts, bring what is on clocks of its own onto a grid there. '--episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333' makes many short trajectories of
several rates: rows at 30 Hz, joints at 100, force at 333.`,
		Example: `  robocache synth ./demo
  robocache synth ./demo --episodes 20 --seconds 10 --cameras 3 --size 640x480
  robocache synth ./demo --rates camera=30,joints=100,force=333 --jitter 2ms --gaps 0.01 --seed 7
  robocache synth ./demo.mcap --format mcap --rates camera=30,joints=100,force=333,cloud=10,text=2 --late 300ms --skew 50
  robocache synth ./many --format robomimic --episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opt.Rates, err = synth.ParseRates(rates); err != nil {
				return err
			}
			w, h, ok := strings.Cut(size, "x")
			var err1, err2 error
			opt.Width, err1 = strconv.Atoi(w)
			opt.Height, err2 = strconv.Atoi(h)
			if !ok || err1 != nil || err2 != nil {
				return misuse("--size: expected WIDTHxHEIGHT such as 640x480, found " + strconv.Quote(size))
			}
			if opt.Cameras == 0 {
				opt.Cameras = -1
			}
			bar := progress(cmd, "synth")
			if format != "lerobot" || hz != "" || len(writing) > 0 || needsClocks(&opt) || opt.Codec == "jpeg" || opt.Codec == "raw" {
				return synthesize(cmd, args[0], format, opt, hz, writing, asJSON, func(p convert.Progress) { bar(int64(p.Episodes), int64(p.TotalEpisodes)) })
			}
			if opt.Codec == "" {
				opt.Codec = "av1"
			}
			opt.Progress = func(done, of int) { bar(int64(done), int64(of)) }
			r, err := synth.Write(cmd.Context(), args[0], opt)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %d episodes, %d frames at %g fps, seed %d\n  %s\n", args[0], r.Episodes, r.Frames, r.FPS, r.Seed, strings.Join(r.Keys, ", "))
			printFindings(cmd.OutOrStdout(), r.Findings)
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "lerobot", "the format to write")
	c.Flags().IntVar(&opt.Episodes, "episodes", 4, "episodes")
	c.Flags().Float64Var(&opt.Seconds, "seconds", 2, "length of each")
	c.Flags().StringVar(&rates, "rates", "camera=30", "Hz a stream: camera, joints, force, cloud, text; or LO..HI: rows at LO, force at HI, joints between")
	c.Flags().IntVar(&opt.Cameras, "cameras", 2, "cameras (0: none)")
	c.Flags().StringVar(&size, "size", "128x96", "of the images")
	c.Flags().DurationVar(&opt.Jitter, "jitter", 0, "largest deviation of a recorded timestamp, such as 2ms")
	c.Flags().Float64Var(&opt.Gaps, "gaps", 0, "share of samples lost")
	c.Flags().Uint64Var(&opt.Seed, "seed", 0, "the same seed gives the same bytes")
	c.Flags().Float64Var(&opt.Spread, "spread", 0, "episodes are up to this share longer or shorter")
	c.Flags().DurationVar(&opt.Late, "late", 0, "streams begin up to this late")
	c.Flags().DurationVar(&opt.Offset, "offset", 0, "timestamps of a stream are off by up to this")
	c.Flags().Float64Var(&opt.Skew, "skew", 0, "clocks of streams run fast or slow by up to this many parts in a million")
	c.Flags().DurationVar(&opt.Dropout, "dropout", 0, "each stream is silent for this long once an episode")
	c.Flags().IntVar(&opt.Points, "points", 512, "largest number of points of a cloud")
	c.Flags().BoolVar(&opt.Depth, "depth", false, "a depth image beside each of camera 0")
	c.Flags().StringVar(&hz, "hz", "", "the grid, for formats that keep one clock (default: the camera's rate)")
	c.Flags().StringArrayVar(&writing, "write-option", nil, "a choice of the format that is written as key=value; may be given several times")
	c.Flags().StringVar(&opt.Codec, "codec", "", "LeRobot: av1 (default), h264, hevc, or png for images in the table; other formats: png (default), jpeg or raw")
	c.Flags().IntVar(&opt.GOP, "gop", 0, "images between key images (0: 2, LeRobot's)")
	c.Flags().StringSliceVar(&opt.Tasks, "task", nil, "task text, may be given several times")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// needsClocks says that a dataset of the options has what rows of one clock cannot hold as it is.
func needsClocks(o *synth.Options) bool {
	_, cloud := o.Rates["cloud"]
	_, text := o.Rates["text"]
	return cloud || text || o.Late != 0 || o.Offset != 0 || o.Skew != 0 || o.Dropout != 0 || o.Depth
}

// keepsClocks says that streams of a format may have clocks of their own. One that does not exist has none, and is refused where it is written.
func keepsClocks(format string) bool {
	f, err := robocache.FormatNamed(format)
	return err == nil && f.Clocks
}

// synthesize writes a dataset that is made while it is written.
func synthesize(cmd *cobra.Command, dst, format string, opt synth.Options, hz string, writing []string, asJSON bool, bar func(convert.Progress)) error {
	out := convert.Options{Progress: bar}
	if format == "lerobot" && (opt.Codec == "av1" || opt.Codec == "h264" || opt.Codec == "hevc") {
		// The images are made as pixels, and encoded by the conversion.
		out.Encode.Codec, opt.Codec = opt.Codec, "raw"
		out.Encode.GOP = opt.GOP
	} else if format == "lerobot" && opt.Codec == "" {
		opt.Codec = "raw"
	} else if format == "lerobot" && (opt.Codec == "png" || opt.Codec == "jpeg") {
		out.Images = "images"
	}
	if hz != "" {
		rate, err := robocache.RateOf(hz)
		if err != nil {
			return misuse("--hz: " + err.Error())
		}
		out.Align = &align.Config{HZ: rate}
	}
	options, err := pairs("--write-option", writing)
	if err != nil {
		return err
	}
	// Formats of one clock get the samples as they are in rows, unless a grid is asked for, or what rows cannot hold.
	world := synth.New
	if !needsClocks(&opt) && hz == "" && !keepsClocks(format) {
		world = synth.NewRows
	}
	ds, err := world(opt)
	if err != nil {
		return err
	}
	r, err := convert.Write(cmd.Context(), ds, format, dst, out, options)
	if err != nil {
		return err
	}
	if ds.Info().Clock != "" && (hz != "" || !keepsClocks(format)) {
		r.Findings = append(r.Findings, robocache.Finding{Severity: robocache.SeverityInfo, Code: "resampled", Message: "the streams are on a grid: its values are made of the samples that were recorded, and are not they", Hint: "--format mcap keeps clocks"})
	}
	return printWritten(cmd.OutOrStdout(), dst, format, asJSON, r)
}
