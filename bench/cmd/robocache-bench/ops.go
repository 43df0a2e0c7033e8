package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench/ops"
)

func newOps(line string) *cobra.Command {
	f := sharedFlags{line: line}
	var r ops.Run
	var names []string
	var quick, sweep, list bool
	c := &cobra.Command{
		Use: "ops",
		Short: "the kernels: resample, fuse and voxelize, on CPU or GPU, with their peers, the " +
			"copy that is the limit, and the bars",
		Long: `ops measures resample, fuse and voxelize on a device. Of each row ours is first compared with the reference, bit for bit, and some values of each
peer too: a wrong runner gives no figure. Then the runners take turns: ours in this process (on a GPU in a CUDA graph), the peers (NumPy, torch eager,
torch.compile, …) in Python processes that are kept, and copies of as many bytes as the work cannot do without: the limit. Figures are µs a call,
hot (the same buffers again and again) and cold (buffers that together are four times the caches).`,
		Example: `  robocache-bench ops --quick
  robocache-bench ops --rows resample,fuse3 --threads 1 --runners torch
  robocache-bench ops --device cuda --sweep --out report
  robocache-bench ops --list`,
		Args: cobra.NoArgs,
		RunE: f.verb(func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			if err := require(r.Device == "cpu" ||
				r.Device == "cuda", "--device: cpu or cuda"); err != nil {
				return err
			}
			if err := require(r.Rounds >= 1 && r.Seconds > 0 && len(r.Threads) > 0,
				"--rounds, --seconds and --threads: expected more than 0"); err != nil {
				return err
			}
			if err := require(slices.Min(r.Threads) >= 1, "--threads: at least 1"); err != nil {
				return err
			}
			if err := require(r.Clock == "wall" || r.Clock == "cpu" && r.Device == "cpu" &&
				slices.Equal(r.Threads, []int{1}),
				"--clock: wall, or cpu with --device cpu --threads 1"); err != nil {
				return err
			}
			var err error
			if r.Rows, err = ops.RowsNamed(r.Device, names, quick, sweep || list); err != nil {
				return err
			}
			if list {
				for _, r := range r.Rows {
					listCase(cmd, r.Name+": "+r.Title, r.Bars)
				}
				return nil
			}
			if r.Device == "cuda" && !given("seconds") {
				r.Seconds = 0.02 // events of a device tell the same time again and again
			}
			if quick { // what was not asked for otherwise
				r.Without = []string{"torch.compile"}
				for name, value := range map[string]string{
					"rounds":  "3",
					"seconds": "0.02",
					"threads": "1",
				} {
					if !given(name) {
						if err := cmd.Flags().Set(name, value); err != nil {
							return err
						}
					}
				}
			}
			tools, err := f.tools()
			if err != nil {
				return err
			}
			r.Tools, r.Timeout, r.Command, r.Revision, r.Log, r.Runners = tools, f.timeout, f.line,
				version, logTo(cmd), f.runners
			measure, err := ops.Measure(cmd.Context(), r)
			if err != nil {
				return err
			}
			return f.show(cmd, measure, "ops-"+r.Device+".{json,csv,md,html}")
		}),
	}
	c.Flags().StringVar(&r.Device, "device", "cpu", "cpu or cuda")
	c.Flags().
		StringSliceVar(&names, "rows", nil, "which rows: names or beginnings of names (--list); "+
			"default: all but the sweeps")
	c.Flags().
		BoolVar(&quick, "quick", false, "a few rows, short rounds, without torch.compile, which "+
			"takes half a minute a shape to begin")
	c.Flags().
		BoolVar(&sweep, "sweep", false, "the curves too: sizes from launch-bound to "+
			"memory-bound, odd widths, ragged lengths")
	c.Flags().BoolVar(&list, "list", false, "list the rows with their bars")
	c.Flags().
		IntSliceVar(
			&r.Threads,
			"threads",
			[]int{1, 2},
			"cpu: threads of every runner, a result each",
		)
	c.Flags().IntVar(&r.Rounds, "rounds", 5, "how often the runners take turns")
	c.Flags().Float64Var(&r.Seconds, "seconds", 0.1, "of a runner in a round (cuda: 0.02)")
	c.Flags().
		StringVar(&r.Clock, "clock", "wall", "wall, or cpu: the thread's own CPU time, for "+
			"--threads 1 on a machine that is not quiet")
	c.Flags().
		StringSliceVar(&f.runners, "runners", nil, "peers by name or family (torch, numpy, "+
			"np.interp, memcpy, reference, none); default: all that are there")
	f.add(c, 10*time.Minute, "answer of a peer")
	return c
}
