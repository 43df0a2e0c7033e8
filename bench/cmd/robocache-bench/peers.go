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

// newPeers returns the verb peers.
func newPeers(line string) *cobra.Command {
	c := newCases(line, "peers", "av1-global", "av1-pool")
	c.Use = "peers [URI]"
	c.Short = "run the same workloads through RoboCache and its peers, interleaved, and check " +
		"the bars"
	c.Long = `peers runs the same workload through lerobot, its streaming class, a plain PyTorch DataLoader with
torchcodec, a plain PyAV episode pool, robomimic, and RoboCache. Runs are interleaved, each in a
fresh process. Decoding alone and memcpy are measured as limits.

The sets (AV1, H.264 of GOP 30 and 250, a table) are made from URI in the work folder. Without URI,
they are made from g1_v30_exact in $ROBOCACHE_TESTDATA. The output is the table of
docs/PERFORMANCE.md. All workloads take about an hour on two cores.`
	c.Example = `  robocache-bench peers ./my_dataset --workload av1-global,av1-pool
  robocache-bench peers --all --repeats 5 --out report
  robocache-bench peers --list`
	return c
}

// newFormats returns the verb formats.
func newFormats(line string) *cobra.Command {
	c := newCases(line, "formats", "calvin", "recordings")
	c.Use, c.Args = "formats", cobra.NoArgs
	c.Short = "compare RoboCache with the usual reader packages: HDF5, CALVIN, MCAP, ROS 2, " +
		"Zarr, RLDS"
	c.Long = `formats reads the same data through the usual Python packages and through RoboCache. Runs are
interleaved, each in a fresh process. The data is made in the work folder; Zarr and RLDS data need
$ROBOCACHE_TESTDATA. Runners of one case must read the same values, otherwise they fail.`
	c.Example = `  robocache-bench formats --workload calvin,recordings --repeats 3
  robocache-bench formats --all --out report
  robocache-bench formats --list`
	return c
}

// newClients returns the verb clients.
func newClients(line string) *cobra.Command {
	c := newCases(line, "clients", caseNames("clients")...)
	c.Use = "clients [FOLDER]"
	c.Short = "compare RoboCache with the loaders of openpi, GR00T, diffusion_policy and OpenVLA"
	c.Long = `clients runs the data loaders of training repositories and RoboCache on the same datasets, up to the
inputs of the model. Runs are interleaved, each in a fresh process.

A client runs if its package is installed, or if ROBOCACHE_CLIENT_NAME lists the folders of its
checkout and of those that it imports, as in PYTHONPATH. ROBOCACHE_CLIENT_NAME_PYTHON is its
interpreter. Other clients are skipped, with the reason. NAME is OPENPI, NORM_STATS, GR00T,
DIFFUSION_POLICY or OPENVLA. The datasets are in FOLDER (default: $ROBOCACHE_TESTDATA).`
	c.Example = `  robocache-bench clients
  ROBOCACHE_CLIENT_DIFFUSION_POLICY=~/diffusion_policy robocache-bench clients --out report
  robocache-bench clients --list`
	return c
}

// newCases returns a verb that runs the cases of a table.
func newCases(line, name string, usual ...string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	w := bench.CaseWork{Name: name}
	var names []string
	var all, list bool
	var work string
	var episodes int
	c := &cobra.Command{
		Args: cobra.MaximumNArgs(1),
		RunE: f.withCleanup(func(cmd *cobra.Command, args []string) error {
			if err := misuseUnless(!all ||
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
			if err := misuseUnless(f.repeats >= 1, "--repeats: at least 1"); err != nil {
				return err
			}
			w.Command, w.Revision = f.commandLine, version
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
			if w.Done, err = f.openFinished(); err != nil {
				return err
			}
			defer w.Done.Close()
			if w.Tools, err = f.unpackTools(); err != nil {
				return err
			}
			w.Sets.Tools = w.Tools
			// The report is written after each family, so that an interruption loses little.
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
			return f.showReport(cmd, p, name+".{json,csv,md,html}")
		}),
	}
	f.addCommon(c, 30*time.Minute, "run")
	f.addRepeats(c)
	f.addResume(c)
	c.Flags().BoolVar(&all, "all", false, "run all workloads")
	c.Flags().StringSliceVar(&names, "workload", usual, "names of workloads (--list)")
	c.Flags().BoolVar(&list, "list", false, "list the workloads, their runners and bars")
	c.Flags().
		StringVar(&work, "work", "bench-out/sets", "folder for the derived sets, which are reused")
	c.Flags().
		IntVar(&episodes, "episodes", 12, "episodes of each set, chosen at random with --seed; "+
			"repeated if the dataset has fewer (0: all)")
	c.Flags().IntVar(&w.BatchSize, "batch-size", 32, "samples per batch")
	c.Flags().
		IntVar(&w.Workers, "workers", 2, "threads of robocache, worker processes or threads of "+
			"peers")
	c.Flags().
		Float64Var(&w.Seconds, "seconds", 3, "minimum seconds of a window, which consists of "+
			"whole epochs")
	c.Flags().IntVar(&w.Seed, "seed", 0, "seed of the order and of the choice of episodes")
	return c
}

// listCase prints the title of a case and its bars.
func listCase(cmd *cobra.Command, title string, bars []report.Bar) {
	fmt.Fprintln(cmd.OutOrStdout(), title)
	for _, b := range bars {
		fmt.Fprintln(cmd.OutOrStdout(), "  bar:  "+b.Text)
	}
}

// peerSource returns the given dataset, or the default one of the test data.
func peerSource(name string, args []string) (string, error) {
	if len(args) == 1 || name == "formats" {
		return strings.Join(args, ""), nil
	}
	p := cmp.Or(os.Getenv("ROBOCACHE_TESTDATA"), filepath.Join("..", "shared", "data"))
	if name == "clients" {
		return p, nil
	}
	p = filepath.Join(p, "g1_v30_exact")
	if !fileExists(p) {
		return "", robocache.Misuse(
			"peers",
			robocache.Where{"dataset": p},
			"no dataset was given, and there is no test data",
		).
			WithHint("give a dataset, or set ROBOCACHE_TESTDATA")
	}
	return p, nil
}
