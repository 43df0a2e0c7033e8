package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

func newSynth() *cobra.Command {
	var opt synth.Options
	var format, rates, size string
	var asJSON bool
	c := &cobra.Command{
		Use:   "synth DST",
		Short: "make a synthetic dataset: seeded, with video, several cameras, jitter and gaps",
		Long: `synth writes a LeRobot v3.0 dataset of a planar arm that reaches for coloured discs, seen by cameras. The same seed and options
give the same bytes. Each picture carries a bar code of its episode and row, so that a test can tell which frame it was given.
Without options: 4 episodes of 2 s, two cameras of 128×96; 'robocache doctor' finds nothing wrong with it.`,
		Example: `  robocache synth ./demo
  robocache synth ./demo --episodes 20 --seconds 10 --cameras 3 --size 640x480
  robocache synth ./demo --rates camera=30,joints=100,force=333 --jitter 2ms --gaps 0.01 --seed 7`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "lerobot" {
				return &robocache.Error{Class: robocache.ErrUnsupported, Op: "synth", Msg: "--format " + format, Hint: "lerobot is the one format written"}
			}
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
			opt.Progress = func(done, of int) { bar(int64(done), int64(of)) }
			r, err := synth.Write(cmd.Context(), args[0], opt)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %d episodes, %d frames at %g fps, seed %d\n  %s\n", args[0], r.Episodes, r.Frames, r.FPS, r.Seed, strings.Join(r.Keys, ", "))
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "lerobot", "the format to write")
	c.Flags().IntVar(&opt.Episodes, "episodes", 4, "episodes")
	c.Flags().Float64Var(&opt.Seconds, "seconds", 2, "length of each")
	c.Flags().StringVar(&rates, "rates", "camera=30", "Hz a stream: camera, joints, force")
	c.Flags().IntVar(&opt.Cameras, "cameras", 2, "cameras (0: none)")
	c.Flags().StringVar(&size, "size", "128x96", "of the pictures")
	c.Flags().DurationVar(&opt.Jitter, "jitter", 0, "largest deviation of a recorded stamp, such as 2ms")
	c.Flags().Float64Var(&opt.Gaps, "gaps", 0, "share of samples lost")
	c.Flags().Uint64Var(&opt.Seed, "seed", 0, "the same seed gives the same bytes")
	c.Flags().StringVar(&opt.Codec, "codec", "av1", "av1, h264, hevc, or png for pictures in the table")
	c.Flags().IntVar(&opt.GOP, "gop", 0, "pictures between key pictures (0: 2, LeRobot's)")
	c.Flags().StringSliceVar(&opt.Tasks, "task", nil, "task text, may be given several times")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
