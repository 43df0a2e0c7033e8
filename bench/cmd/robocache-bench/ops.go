package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench/ops"
)

// newOps returns the verb ops.
func newOps(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var r ops.Run
	var names []string
	var quick, sweep, list bool
	c := &cobra.Command{
		Use: "ops",
		Short: "measure the kernels resample, fuse and voxelize on CPU or GPU, with their peers, " +
			"a copy as the limit, and the bars",
		Long: `ops measures resample, fuse and voxelize on a device. Each row is checked before it is timed:
RoboCache must match the reference bit for bit, and some values of each peer are compared. A wrong
runner gives no figure.

Then the runners are interleaved: RoboCache (on a GPU in a CUDA graph), the peers (NumPy, torch
eager, torch.compile, …), and the limit, a copy of the bytes that the work must touch. Figures are µs
per call, hot (the same buffers in every call) and cold (buffers that together are four times as
large as the caches).`,
		Example: `  robocache-bench ops --quick
  robocache-bench ops --rows resample,fuse3 --threads 1 --runners torch
  robocache-bench ops --device cuda --sweep --out report
  robocache-bench ops --list`,
		Args: cobra.NoArgs,
		RunE: f.withCleanup(func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			if err := misuseUnless(r.Device == "cpu" ||
				r.Device == "cuda", "--device: cpu or cuda"); err != nil {
				return err
			}
			if err := misuseUnless(r.Rounds >= 1 && r.Seconds > 0 && len(r.Threads) > 0,
				"--rounds, --seconds and --threads: expected more than 0"); err != nil {
				return err
			}
			if err := misuseUnless(slices.Min(r.Threads) >= 1, "--threads: at least 1"); err !=
				nil {
				return err
			}
			if err := misuseUnless(r.Clock == "wall" || r.Clock == "cpu" && r.Device == "cpu" &&
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
				r.Seconds = 0.02 // event timers of the device vary little between calls
			}
			if quick { // defaults of --quick; explicit options win
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
			tools, err := f.unpackTools()
			if err != nil {
				return err
			}
			r.Tools, r.Timeout, r.Command, r.Revision, r.Log, r.Runners = tools, f.timeout,
				f.commandLine, version, logTo(cmd), f.runners
			measure, err := ops.Measure(cmd.Context(), r)
			if err != nil {
				return err
			}
			return f.showReport(cmd, measure, "ops-"+r.Device+".{json,csv,md,html}")
		}),
	}
	c.Flags().StringVar(&r.Device, "device", "cpu", "cpu or cuda")
	c.Flags().
		StringSliceVar(&names, "rows", nil, "names of rows, or prefixes of names (--list); "+
			"default: all except the sweeps")
	c.Flags().
		BoolVar(&quick, "quick", false, "a few rows and short rounds, without torch.compile, "+
			"which compiles each shape for half a minute")
	c.Flags().
		BoolVar(&sweep, "sweep", false, "include the curves: sizes from launch-bound to "+
			"memory-bound, odd widths, ragged lengths")
	c.Flags().BoolVar(&list, "list", false, "list the rows with their bars")
	c.Flags().
		IntSliceVar(
			&r.Threads,
			"threads",
			[]int{1, 2},
			"numbers of threads of every runner on the CPU, one result each",
		)
	c.Flags().IntVar(&r.Rounds, "rounds", 5, "number of interleaved rounds")
	c.Flags().Float64Var(&r.Seconds, "seconds", 0.1, "seconds per runner and round (cuda: 0.02)")
	c.Flags().
		StringVar(&r.Clock, "clock", "wall", "wall, or cpu: CPU time of the thread, for "+
			"--threads 1 on a busy machine")
	c.Flags().
		StringSliceVar(&f.runners, "runners", nil, "peers by name or family (torch, numpy, "+
			"np.interp, memcpy, reference, none); default: all that are installed")
	f.addCommon(c, 10*time.Minute, "answer of a peer")
	return c
}
