package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/bench/report"
)

func newPeers(line string) *cobra.Command {
	c := newCases(line, "peers", "av1-global", "av1-pool")
	c.Use = "peers [URI]"
	c.Short = "the same workloads through the peers and ours, interleaved, with the bars beside " +
		"them"
	c.Long = `peers runs the same workload through lerobot, its streaming class, a plain PyTorch DataLoader with torchcodec, a plain PyAV
episode pool, robomimic, and ours, each run in a fresh process, in turn; beside them the limits: decoding alone, and memcpy.
It makes the sets that it wants (AV1, H.264 of GOP 30 and 250, a table) out of URI, in the work folder; without URI, out of
g1_v30_exact in $ROBOCACHE_TESTDATA. It prints the table of docs/PERFORMANCE.md. All workloads take about an hour on two cores.`
	c.Example = `  robocache-bench peers ./my_dataset --workload av1-global,av1-pool
  robocache-bench peers --all --repeats 5 --out report
  robocache-bench peers --list`
	return c
}

func newFormats(line string) *cobra.Command {
	c := newCases(line, "formats", "calvin", "recordings")
	c.Use, c.Args = "formats", cobra.NoArgs
	c.Short = "the formats beside the packages that their users read them with: HDF5, CALVIN, " +
		"MCAP, ROS 2, Zarr, RLDS"
	c.Long = `formats reads the same data through the usual Python packages and through ours, each run in a fresh process, in turn. The data is made
in the work folder, Zarr's and RLDS' out of $ROBOCACHE_TESTDATA. Runners of one case that read other values fail.`
	c.Example = `  robocache-bench formats --workload calvin,recordings --repeats 3
  robocache-bench formats --all --out report
  robocache-bench formats --list`
	return c
}

// newCases is a verb that runs cases of a table.
func newCases(line, name string, usual ...string) *cobra.Command {
	f := sharedFlags{line: line}
	w := bench.CaseWork{Name: name}
	var names []string
	var all, list bool
	var work string
	var episodes int
	c := &cobra.Command{
		Args: cobra.MaximumNArgs(1),
		RunE: f.verb(func(cmd *cobra.Command, args []string) error {
			if err := require(!all ||
				!cmd.Flags().Changed("workload"), "--all and --workload: give one of them"); err !=
				nil {
				return err
			}
			if all || list {
				names = nil
			}
			cases, err := bench.CasesNamed(name, names)
			if err != nil {
				return err
			}
			if list {
				for _, c := range cases {
					listCase(
						cmd,
						c.Name+": "+c.Title+"\n  runners: "+strings.Join(c.Runners, ", "),
						c.Bars,
					)
				}
				return nil
			}
			if err := require(f.repeats >= 1, "--repeats: at least 1"); err != nil {
				return err
			}
			w.Command, w.Revision = f.line, version
			peerSourceValue, err := peerSource(name, args)
			if err != nil {
				return err
			}
			absolute, err := filepath.Abs(work)
			if err != nil {
				return err
			}
			w.Sets = &bench.Sets{
				URI:      peerSourceValue,
				Work:     absolute,
				Episodes: episodes,
				Seed:     uint64(w.Seed),
				Log:      logTo(cmd),
			}
			if w.Done, err = f.finished(); err != nil {
				return err
			}
			defer w.Done.Close()
			if w.Tools, err = f.tools(); err != nil {
				return err
			}
			w.Sets.Tools = w.Tools
			// After each family: what an hour measured is not lost with its last minute.
			keep := func(p *bench.CaseReport) error {
				if f.out == "" {
					return nil
				}
				return p.Document().Write(f.out)
			}
			p, err := bench.RunCases(
				cmd.Context(),
				cases,
				w,
				f.repeats,
				f.timeout,
				keep,
				logTo(cmd),
			)
			if err != nil {
				return err
			}
			return f.show(cmd, p, name+".{json,csv,md,html}")
		}),
	}
	f.add(c, 30*time.Minute, "run")
	f.addRepeats(c)
	f.addResume(c)
	c.Flags().BoolVar(&all, "all", false, "every workload")
	c.Flags().StringSliceVar(&names, "workload", usual, "which, by name (--list)")
	c.Flags().BoolVar(&list, "list", false, "list the workloads, their runners and bars")
	c.Flags().
		StringVar(&work, "work", "bench-out/sets", "folder for the sets that are made; they are "+
			"used again")
	c.Flags().
		IntVar(&episodes, "episodes", 12, "episodes of each set: a seeded choice, or repeated "+
			"where there are fewer (0: all)")
	c.Flags().IntVar(&w.BatchSize, "batch-size", 32, "samples a batch")
	c.Flags().
		IntVar(&w.Workers, "workers", 2, "our threads; the peers' worker processes or threads")
	c.Flags().
		Float64Var(&w.Seconds, "seconds", 3, "least length of a measured window, in whole epochs")
	c.Flags().IntVar(&w.Seed, "seed", 0, "seed of the order and of the choice of episodes")
	return c
}

// listCase prints a case with its bars.
func listCase(cmd *cobra.Command, title string, bars []report.Bar) {
	fmt.Fprintln(cmd.OutOrStdout(), title)
	for _, b := range bars {
		fmt.Fprintln(cmd.OutOrStdout(), "  bar:  "+b.Text)
	}
}

// peerSource is the dataset given, or the real one of the test data.
func peerSource(name string, args []string) (string, error) {
	if len(args) == 1 || name == "formats" {
		return strings.Join(args, ""), nil
	}
	p := filepath.Join(
		cmp.Or(os.Getenv("ROBOCACHE_TESTDATA"), filepath.Join("..", "shared", "data")),
		"g1_v30_exact",
	)
	if !fileExists(p) {
		return "", robocache.Misuse(
			"peers",
			robocache.Where{"dataset": p},
			"no dataset was given, and the test data is not here",
		).
			WithHint("give a dataset, or set ROBOCACHE_TESTDATA")
	}
	return p, nil
}
