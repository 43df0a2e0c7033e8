package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache/bench"
)

// addWorkloadFlags adds the flags of `robocache-bench load`, for scenarios and for whole epochs.
func addWorkloadFlags(c *cobra.Command, w *bench.Workload) {
	f := c.Flags()
	f.StringVar(&w.RowsHZ, "rows-hz", "", "rate of the rows, for datasets that state none")
	f.IntVar(&w.BatchSize, "batch-size", 32, "samples per batch (scenarios: --batch-sizes)")
	f.IntVar(
		&w.Workers,
		"workers",
		2,
		"threads of robocache, worker processes of peers (default in scenarios: that of the "+
			"scenario, at most one per core)",
	)
	f.IntVar(
		&w.Epochs,
		"epochs",
		1,
		"measure this many whole epochs after a warm-up epoch, instead of a window of seconds",
	)
	f.IntVar(
		&w.Rows,
		"rows",
		0,
		"resample whole trajectories of a robomimic file with timestamps to this many rows at "+
			"--hz; runners robocache and torch",
	)
	f.Float64Var(&w.HZ, "hz", 50, "rate of the rows of --rows")
	f.StringVar(&w.Video, "video", "one", "cameras: one, all or none")
	f.IntVar(&w.Window, "window", 0, "frames and rows per window (0: single)")
	f.IntVar(&w.Seed, "seed", 0, "seed of the order")
	f.StringVar(
		&w.Shuffle,
		"shuffle",
		"",
		"global, pool or file (default: the scenario's; global for the local ones, pool for "+
			"streaming)",
	)
	f.StringVar(&w.Cache, "cache", "", "cache for decoded frames: ram, or a folder")
	f.StringVar(
		&w.CacheBudget,
		"cache-budget",
		"",
		"size of the cache in bytes, or for example 4GiB",
	)
	f.StringVar(
		&w.MemoryBudget,
		"memory-budget",
		"",
		"memory of the loader in bytes, or for example 4GiB",
	)
	f.StringVar(&w.CacheFormat, "cache-format", "", "auto, yuv, rgb or encoded")
	f.StringVar(
		&w.PoolSize,
		"pool-size",
		"",
		"size of the resident images of --shuffle pool in bytes, or for example 1GiB",
	)
	f.IntVar(
		&w.PoolEpisodes,
		"pool-episodes",
		0,
		"resident episodes of --shuffle pool (0: as memory allows)",
	)
	f.StringVar(&w.ImageSize, "image-size", "", "HxW: scale images while decoding")
	f.StringVar(&w.Device, "device", "cpu", "device of the batches of robocache: cpu or cuda")
	f.StringVar(
		&w.Decode,
		"decode",
		"",
		"device that decodes video: cpu, gpu or auto (robocache: with --device cuda)",
	)
	f.StringVar(
		&w.DeviceMemory,
		"device-memory-budget",
		"",
		"device memory for resident frames in bytes, or for example 4GiB (default: the loader's)",
	)
	f.StringVar(&w.Episodes, "episodes", "", "positions, as 0-9,12 (default: all)")
	f.BoolVar(&w.DropLast, "drop-last", false, "drop the incomplete last step of an epoch")
	f.IntVar(&w.Warmup, "warmup", 5, "batches before the window")
	f.IntVar(
		&w.Prefetch,
		"prefetch",
		0,
		"batches planned ahead (default in scenarios: 2; peers: per worker; 0: the runner's "+
			"choice)",
	)
	f.Float64Var(
		&w.StepMS,
		"step-ms",
		0,
		"step time of the consumer whose waiting time is measured (0: 1.25 times that of the "+
			"loader)",
	)
}

// newLoad returns the verb load.
func newLoad(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var w bench.Workload
	var names, more []string
	var batches, threads []int
	var duration time.Duration
	var explain, submit, dry bool
	s := &bench.Suite{Links: bench.DefaultLinks()}
	hub, bucket := s.Links["hub"], s.Links["bucket"]
	c := &cobra.Command{
		Use: "load URI",
		Short: "run the data-loading benchmark: five scenarios on one set, with every metric " +
			"checked",
		Long: `Measures how fast batches come out of a dataset, in the scenarios of LeRobot's data-loading
benchmark: mmap_local, mmap_local_maxworkers, stream_hub, stream_bucket and stream_bucket_2node.
Streams come from http servers on the loopback with a stated latency and bandwidth. The last
scenario has two ranks that start together. The window begins and ends with the arrival of a batch.

Delivered images are compared with a sequential decode by ffmpeg, and samples are counted over
finished epochs. A run is also killed and resumed. Exit code 1 reports a wrong image, a lost or
doubled sample, or a resumed run with another order than the uninterrupted run.

With --epochs, the runners are compared over whole epochs instead.`,
		Example: `  robocache-bench load ./my_dataset
  robocache-bench load ./my_dataset --scenarios all --duration 60s --repeats 5 --out report --explain
  robocache-bench load ./my_dataset --scenario mmap_local --runners engine,robocache --batch-sizes 16,32,64,128,256 --out report
  robocache-bench load ./my_dataset --runners engine,robocache,lerobot --epochs 1 --repeats 5
  robocache-bench load ./my_dataset --threads 1,2,4,8,16 --shuffle pool --pool-size 1GiB --batch-size 64
  robocache-bench load ./robots.hdf5 --rows 200 --hz 50 --batch-size 64 --runners robocache,torch`,
		Args: cobra.ExactArgs(1),
		RunE: f.withCleanup(func(cmd *cobra.Command, args []string) error {
			w.URI = args[0]
			names, given := append(names, more...), cmd.Flags().Changed
			if err := misuseUnless(w.Rows > 0 || !given("hz"),
				"--hz needs --rows; --rows-hz sets the rate of rows without timestamps"); err !=
				nil {
				return err
			}
			if w.Rows == 0 {
				w.HZ = 0
			}
			if err := misuseUnless(
				w.Device == "cpu" ||
					w.Device == "cuda" && w.Rows == 0 &&
						!slices.ContainsFunc(
							f.runners,
							func(n string) bool { return n != "robocache" },
						),
				"--device: expected cpu, or cuda with --runners robocache only",
			); err != nil {
				return err
			}
			if err := misuseUnless(slices.Contains([]string{"", "cpu", "gpu", "auto"}, w.Decode),
				"--decode: expected cpu, gpu or auto"); err != nil {
				return err
			}
			if err := misuseUnless(threads == nil || slices.Min(threads) > 0 &&
				!given("workers"), "--threads: expected at least 1, and no --workers"); err != nil {
				return err
			}
			if given("epochs") || w.Rows > 0 || threads != nil {
				if err := misuseUnless(len(names) == 0 && !explain,
					"--epochs measures whole epochs; scenarios and --explain have a window of "+
						"seconds (--duration)"); err != nil {
					return err
				}
				w.Warmup, w.Probes, w.CheckFrames = 0, 0, 0
				r := &bench.Report{
					Name:     "load",
					Title:    "robocache-bench load",
					Unit:     "samples",
					Workload: map[string]any{"load": w},
				}
				if w.Rows > 0 {
					r.Title, r.Unit = "robocache-bench load, whole trajectories", "trajectories"
				}
				return f.runPasses(cmd, r, w, threads)
			}
			if len(names) == 0 {
				names = []string{"mmap_local"}
			}
			var err error
			if s.Scenarios, err = bench.ScenariosByName(names); err != nil {
				return err
			}
			if submit || dry {
				return slurmChain(cmd, s.Scenarios, args[0], dry)
			}
			if s.BatchSizes = batches; given("batch-size") && !given("batch-sizes") {
				s.BatchSizes = []int{w.BatchSize}
			}
			if !given("workers") {
				w.Workers = 0
			}
			if err := misuseUnless(duration > 0, "--duration: expected a time above 0"); err !=
				nil {
				return err
			}
			if err := misuseUnless(s.CacheState == "warm" ||
				s.CacheState == "cold", "--cache-state: expected warm or cold"); err != nil {
				return err
			}
			w.Duration, w.Prefetch = duration.Seconds(), cmp.Or(w.Prefetch, 2)
			s.URI, s.Base, s.Runners, s.Repeats, s.Program = args[0], w, f.runners, f.repeats, version
			if !given("repeats") {
				s.Repeats = 1
			}
			s.Timeout = max(f.timeout, 3*duration)
			s.Links["hub"], s.Links["bucket"] = hub, bucket
			if s.Node, err = thisNode(f.out); err != nil {
				return err
			}
			if s.Tools, err = f.unpackTools(); err != nil {
				return err
			}
			s.Log = logTo(cmd)
			results, err := bench.RunSuite(cmd.Context(), s)
			if err != nil {
				return err
			}
			r := &bench.SuiteReport{Command: f.commandLine, Explain: explain, Results: results}
			if s.Node != nil && s.Node.Rank > 0 {
				f.out = "" // only rank 0 writes the report
			}
			return f.showReport(cmd, r, "load.{json,csv,md,html}")
		}),
	}
	f.addCommon(c, 10*time.Minute, "run")
	f.addRepeats(c)
	f.addRunners(c, "engine", "engine (no Python), robocache (into torch), lerobot")
	addWorkloadFlags(c, &w)
	fl := c.Flags()
	fl.IntSliceVar(
		&threads,
		"threads",
		nil,
		"measure whole epochs (--epochs) with each number of threads; exit code 3 if more "+
			"threads are slower, beyond the spread",
	)
	fl.StringSliceVar(&names, "scenario", nil, "scenario to measure; default mmap_local")
	fl.StringSliceVar(&more, "scenarios", nil, "several scenarios, or all")
	fl.IntSliceVar(&batches, "batch-sizes", []int{64}, "batch sizes, one after the other")
	fl.DurationVar(
		&duration,
		"duration",
		time.Minute,
		"length of the window, which may contain several epochs",
	)
	fl.StringVar(
		&s.CacheState,
		"cache-state",
		"warm",
		"page cache before each run: warm (the set is read once) or cold (evicted)",
	)
	fl.IntVar(
		&s.Partitions,
		"num-partitions",
		1,
		"divide the set into this many parts with about equal numbers of frames",
	)
	fl.IntVar(&s.Partition, "partition-index", 0, "the part to measure")
	fl.IntVar(
		&s.MaxEpisodes,
		"max-episodes",
		0,
		"number of episodes, chosen at random with --seed (0: all)",
	)
	fl.IntVar(&w.Probes, "probes", 100, "samples of the pass on one thread (0: none)")
	fl.IntVar(
		&w.CheckFrames,
		"check-frames",
		32,
		"delivered images per rank that are compared with ffmpeg (0: none)",
	)
	fl.BoolVar(
		&s.Resume,
		"resume",
		true,
		"kill and resume a run, and compare it with an uninterrupted one",
	)
	fl.DurationVar(&hub.Latency, "hub-latency", hub.Latency, "latency of each request to the hub")
	fl.Float64Var(&hub.MBps, "hub-mbps", hub.MBps, "megabytes per second of the hub (0: no limit)")
	fl.DurationVar(
		&bucket.Latency,
		"bucket-latency",
		bucket.Latency,
		"latency of each request to the bucket",
	)
	fl.Float64Var(
		&bucket.MBps,
		"bucket-mbps",
		bucket.MBps,
		"megabytes per second of the bucket, per node (0: no limit)",
	)
	fl.BoolVar(
		&explain,
		"explain",
		false,
		"explain which stage limits the rate, and how much a faster one would help",
	)
	fl.BoolVar(
		&submit,
		"submit",
		false,
		"submit the scenarios to Slurm, one after the other; ACCOUNT, PARTITION and QOS set "+
			"account, partition and qos",
	)
	fl.BoolVar(&dry, "dry-run", false, "print what --submit would submit")
	return c
}

// slurmChain submits one job per scenario, with the options of this command. If dry is true, it
// prints the script instead.
func slurmChain(cmd *cobra.Command, scenarios []bench.Scenario, uri string, dry bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	j := &bench.Slurm{
		Program:   []string{self},
		URI:       uri,
		Scenarios: scenarios,
		Account:   os.Getenv("ACCOUNT"),
		Partition: os.Getenv("PARTITION"),
		QOS:       os.Getenv("QOS"),
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "scenario", "scenarios", "submit", "dry-run":
			return
		case "workers":
			j.Workers, _ = cmd.Flags().GetInt("workers")
		}
		v := f.Value.String()
		if l, ok := f.Value.(pflag.SliceValue); ok {
			v = strings.Join(l.GetSlice(), ",")
		}
		j.Options = append(j.Options, "--"+f.Name+"="+v)
	})
	if dry {
		fmt.Fprint(cmd.OutOrStdout(), j.Script())
		return nil
	}
	jobs, err := j.Submit(cmd.Context())
	for i, id := range jobs {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", id, scenarios[i].Name)
	}
	return err
}

// thisNode returns the node that RANK and WORLD_SIZE describe. It returns nil if this process
// starts all ranks.
func thisNode(out string) (*bench.Node, error) {
	r, w := os.Getenv("RANK"), os.Getenv("WORLD_SIZE")
	if r == "" || w == "" || w == "1" {
		return nil, nil
	}
	rank, err1 := strconv.Atoi(r)
	world, err2 := strconv.Atoi(w)
	if err := misuseUnless(err1 == nil && err2 == nil && rank >= 0 && rank < world, "RANK="+r+
		" and WORLD_SIZE="+w+": expected integers, RANK below WORLD_SIZE"); err != nil {
		return nil, err
	}
	if err := misuseUnless(out != "",
		"RANK and WORLD_SIZE need --out, a folder that all nodes share"); err != nil {
		return nil, err
	}
	return &bench.Node{
		Rank:  rank,
		World: world,
		Dir: filepath.Join(
			out,
			"ranks-"+cmp.Or(os.Getenv("SLURM_JOB_ID"), os.Getenv("MASTER_PORT")),
		),
	}, nil
}
