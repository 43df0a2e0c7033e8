package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
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
	c := &cobra.Command{
		Use:   "synth DST",
		Short: "make a synthetic dataset: seeded, with video, several cameras, jitter and gaps",
		Long: `synth writes a dataset of a planar arm that reaches for coloured discs, seen by cameras. The same seed and options
give the same bytes. Each image carries a bar code of its episode and row, so that a test can tell which frame it was given.
Without options: LeRobot v3.0, 4 episodes of 2 s, two cameras of 128×96; 'robocache doctor' finds nothing wrong with it.
The same seed gives the same samples, timestamps and losses in every format: MCAP has them on clocks of their own; in formats of one clock,
LeRobot among them, a stream beside the rows is a column of each row's samples, with <key>.recorded and <key>.count. --hz, and --late,
--offset, --skew, --dropout, --depth, clouds and texts, bring what is on clocks of its own onto a grid there. '--episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333' makes many short trajectories of
several rates: rows at 30 Hz, joints at 100, force at 333.
Presets are sets of numbers for training. heterogeneous: 5000 trajectories of 1 to 4 s, robot i mod 5 at 30, 50, 100, 125 or 333 Hz, action 7, proprio 14;
rtx: 1000 episodes of 5 s, vision 512 at 30 Hz, proprio 14 at 100, action 7 at 10. MCAP and robomimic keep their clocks; other formats get a grid (--hz, 50).`,
		Example: `  robocache synth ./demo
  robocache synth ./demo --episodes 20 --seconds 10 --cameras 3 --size 640x480
  robocache synth ./demo --rates camera=30,joints=100,force=333 --jitter 2ms --gaps 0.01 --seed 7
  robocache synth ./demo.mcap --format mcap --rates camera=30,joints=100,force=333,cloud=10,text=2 --late 300ms --skew 50
  robocache synth ./many --format robomimic --episodes 5000 --seconds 1 --spread 0.8 --cameras 0 --rates 30..333
  robocache synth ./robots.hdf5 --format robomimic --preset heterogeneous --cap 200`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&format, "format", robocache.DefaultFormat(), "the format to write")
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
	c.Flags().StringVar(&opt.Preset, "preset", "", strings.Join(synth.Presets(), " or ")+": a set of numbers in place of the arm")
	c.Flags().IntVar(&opt.Cap, "cap", 0, "preset heterogeneous: most rows of a trajectory, spread over its time")
	for _, other := range []string{"seconds", "rates", "cameras", "size", "jitter", "gaps", "spread", "late", "offset", "skew", "dropout", "points", "depth", "codec", "gop", "task"} {
		c.MarkFlagsMutuallyExclusive("preset", other)
	}
	return answers(c, func(cmd *cobra.Command, args []string) (r *synth.Report, found, err error) {
		if opt.Rates, err = synth.ParseRates(rates); err != nil {
			return r, found, err
		}
		w, h, ok := strings.Cut(size, "x")
		var err1, err2 error
		opt.Width, err1 = strconv.Atoi(w)
		opt.Height, err2 = strconv.Atoi(h)
		if !ok || err1 != nil || err2 != nil {
			return nil, nil, misuse("--size: expected WIDTHxHEIGHT such as 640x480, found " + strconv.Quote(size))
		}
		if opt.Cameras == 0 {
			opt.Cameras = -1
		}
		f, err := convert.Writer(format)
		if err != nil {
			return r, found, err
		}
		if opt.Preset != "" && !cmd.Flags().Changed("episodes") {
			opt.Episodes = 0
		}
		ds, options, err := synth.For(opt, f, hz != "")
		if err != nil {
			return r, found, err
		}
		pairsValue, err := pairs("--write-option", writing)
		if err != nil {
			return r, found, err
		}
		maps.Copy(options, pairsValue)
		if opt.Preset != "" && !f.KeepsClocks(options) && hz == "" {
			hz = synth.GridHZ
		}
		var out convert.Options
		if hz != "" {
			rateOfValue, err := rateOf("--hz", hz)
			if err != nil {
				return r, found, err
			}
			out.Align = &align.Config{HZ: rateOfValue}
		}
		out.Options, out.Progress = options, newProgress(cmd, "synth")
		write, err := convert.Write(cmd.Context(), ds, format, args[0], out)
		if err != nil {
			return r, found, err
		}
		r = ds.Report(args[0], write)
		if out.Align != nil {
			r.FPS = out.Align.HZ.Float()
		}
		if (ds.Info().Clock != "" || opt.Preset != "") && (hz != "" || !f.KeepsClocks(options)) {
			r.Findings = append(r.Findings, robocache.Finding{Severity: robocache.SeverityInfo, Code: "resampled", Message: "the streams are on a grid: its values are made of the samples that were recorded, and are not they", Hint: "a format that keeps clocks: --format " + strings.Join(keepClocks(), ", ")})
		}
		return r, nil, nil
	}, func(w io.Writer, r *synth.Report) {
		rate := fmt.Sprintf("at %g fps", r.FPS)
		if r.FPS == 0 {
			rate = "at rates of their own"
		}
		fmt.Fprintf(w, "wrote %s: %s, %d episodes, %d frames %s, seed %d\n  %s\n", r.URI, format, r.Episodes, r.Frames, rate, r.Seed, strings.Join(r.Keys, ", "))
		printFindings(w, r.Findings)
	})
}

// keepsClocks says that streams of a format may have clocks of their own. One that does not exist has none, and is refused where it is written.
func keepsClocks(format string) bool {
	f, err := robocache.FormatNamed(format)
	return err == nil && f.Clocks
}

// keepClocks lists the formats of which keepsClocks holds.
func keepClocks() []string {
	return slices.DeleteFunc(convert.Formats(), func(name string) bool { return !keepsClocks(name) })
}
