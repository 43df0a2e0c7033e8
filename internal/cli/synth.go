package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/verbs"
)

func newSynth() *cobra.Command {
	var r verbs.SynthRequest
	c := &cobra.Command{
		Use:   "synth DST",
		Short: "make a synthetic dataset: seeded, with video, several cameras, jitter and gaps",
		Long: `synth writes a dataset of a planar arm that reaches for coloured discs, seen by cameras. The same
seed and options give the same bytes. Each image carries a bar code of its episode and row, so
that a test can check which frame it got. Without options it writes LeRobot v3.0 with 4 episodes
of 2 s and two cameras of 128×96, and 'robocache doctor' finds no fault in it.

The same seed gives the same samples, timestamps and losses in every format. MCAP stores them on
their own clocks. In formats with one clock, such as LeRobot, a stream with another clock is a
column with the samples of each row, with <key>.recorded and <key>.count. There --hz, --late,
--offset, --skew, --dropout, --depth, clouds and texts resample streams with their own clocks to a
grid. '--episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333' makes many short
trajectories of several rates: rows at 30 Hz, joints at 100, force at 333.

Presets are sets of options for training. heterogeneous: 5000 trajectories of 1 to 4 s, robot i
mod 5 at 30, 50, 100, 125 or 333 Hz, action 7, proprio 14. rtx: 1000 episodes of 5 s, vision 512
at 30 Hz, proprio 14 at 100, action 7 at 10. abc: 130000 episodes of 1 to 3 s, two arms of 8
joints and action 16 at 10 Hz, five tasks. MCAP and robomimic keep these clocks; other formats
get a grid (--hz, default 50).`,
		Example: `  robocache synth ./demo
  robocache synth ./demo --episodes 20 --seconds 10 --cameras 3 --size 640x480
  robocache synth ./demo --rates camera=30,joints=100,force=333 --jitter 2ms --gaps 0.01 --seed 7
  robocache synth ./demo.mcap --format mcap --rates camera=30,joints=100,force=333,cloud=10,text=2 --late 300ms --skew 50
  robocache synth ./many --format robomimic --episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333
  robocache synth ./robots.hdf5 --format robomimic --preset heterogeneous --cap 200`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&r.Format, "format", robocache.DefaultFormat(), "the format to write")
	optionalInt(c, &r.Episodes, "episodes", 4, "episodes")
	c.Flags().Float64Var(&r.Seconds, "seconds", 2, "length of each")
	c.Flags().
		StringVar(
			&r.Rates,
			"rates",
			verbs.DefaultRates,
			"Hz a stream: camera, joints, force, cloud, text; or LO..HI: rows at LO, force at "+
				"HI, joints between",
		)
	optionalInt(c, &r.Cameras, "cameras", 2, "cameras (0: none)")
	c.Flags().StringVar(&r.Size, "size", verbs.DefaultSize, "of the images")
	c.Flags().
		DurationVar(
			&r.Jitter,
			"jitter",
			0,
			"largest deviation of a recorded timestamp, such as 2ms",
		)
	c.Flags().Float64Var(&r.Gaps, "gaps", 0, "share of samples lost")
	c.Flags().Uint64Var(&r.Seed, "seed", 0, "the same seed gives the same bytes")
	c.Flags().Float64Var(&r.Spread, "spread", 0, "episodes are up to this share longer or shorter")
	c.Flags().DurationVar(&r.Late, "late", 0, "streams begin up to this late")
	c.Flags().DurationVar(&r.Offset, "offset", 0, "timestamps of a stream are off by up to this")
	c.Flags().
		Float64Var(
			&r.Skew,
			"skew",
			0,
			"clocks of streams run fast or slow by up to this many parts in a million",
		)
	c.Flags().
		DurationVar(&r.Dropout, "dropout", 0, "each stream is silent for this long once an episode")
	c.Flags().IntVar(&r.Points, "points", 512, "largest number of points of a cloud")
	c.Flags().BoolVar(&r.Depth, "depth", false, "a depth image beside each of camera 0")
	c.Flags().
		StringVar(
			&r.HZ,
			"hz",
			"",
			"the grid, for formats that keep one clock (default: the camera's rate)",
		)
	c.Flags().
		StringArrayVar(
			&r.WriteOption,
			"write-option",
			nil,
			"a choice of the format that is written as key=value; may be given several times",
		)
	c.Flags().
		StringVar(
			&r.Codec,
			"codec",
			"",
			"LeRobot: av1 (default), h264, hevc, or png for images in the table; other formats: "+
				"png (default), jpeg or raw",
		)
	c.Flags().IntVar(&r.GOP, "gop", 0, "images between key images (0: 2, LeRobot's)")
	c.Flags().StringSliceVar(&r.Task, "task", nil, "task text, may be given several times")
	c.Flags().
		StringVar(
			&r.Preset,
			"preset",
			"",
			strings.Join(synth.Presets(), " or ")+": a set of numbers in place of the arm",
		)
	c.Flags().
		IntVar(
			&r.Cap,
			"cap",
			0,
			"preset heterogeneous: most rows of a trajectory, spread over its time",
		)
	for _, other := range []string{
		"seconds",
		"rates",
		"cameras",
		"size",
		"jitter",
		"gaps",
		"spread",
		"late",
		"offset",
		"skew",
		"dropout",
		"points",
		"depth",
		"codec",
		"gop",
		"task",
	} {
		c.MarkFlagsMutuallyExclusive("preset", other)
	}
	rejectEmpty(c, "format", "rates", "size")
	return addRun(c, &r, verbs.Synth, func(w io.Writer, made *synth.Report) {
		rate := fmt.Sprintf("at %g fps", made.FPS)
		if made.FPS == 0 {
			rate = "at rates of their own"
		}
		fmt.Fprintf(
			w,
			"wrote %s: %s, %d episodes, %d frames %s, seed %d\n  %s\n",
			made.URI,
			r.Format,
			made.Episodes,
			made.Frames,
			rate,
			made.Seed,
			strings.Join(made.Keys, ", "),
		)
		printFindings(w, made.Findings)
	})
}
