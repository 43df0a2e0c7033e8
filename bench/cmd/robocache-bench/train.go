package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
)

func newTrain(line string) *cobra.Command {
	f := sharedFlags{line: line}
	var work, from string
	t := &bench.Train{}
	w, j := &t.Base, &t.Job
	c := &cobra.Command{
		Use: "train [URI]",
		Short: "train a policy through ours and the peers' loaders, and say what the GPU waited " +
			"for",
		Long: `train runs the same training, of the same weights, in the same order, through a plain torch DataLoader that reads the files itself, lerobot's class,
and ours, each run in a fresh process, in turn. The first and the last run of a repeat is headspace: the same loop on one batch that is on the
device already. A runner's utilisation is its rate divided by headspace's. Weights, order, batches (0, 1, 10 and 100 against a reader of its own;
the means of all of the first 200 against the other runners') and losses are compared: what differs is exit code 1.
Models: transformer (101.3 M parameters), diffusion, diffusion-lowdim, resnet18, act. Without URI the model's own set is made in the work folder.`,
		Example: `  robocache-bench train ./my_dataset --model resnet18 --out report
  robocache-bench train --model transformer --compile --out report
  robocache-bench train ./my_dataset --model resnet18 --runners torch,robocache-ram --image-size 224x224 --batch-size 256
  robocache-bench train ./my_dataset --model resnet18 --runners robocache-pool --threads 1,2,4,8,16
  robocache-bench train ./my_dataset --model resnet18 --mode video --image-size 224x224 --graph
  robocache-bench train ./my_dataset --model diffusion --gpus 2
  robocache-bench train ./my_dataset --model diffusion-lowdim --device cpu --tiny --batch-size 8 --steps 12 --warmup 3`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.verb(func(cmd *cobra.Command, args []string) error {
			if from != "" {
				r, err := bench.ReadTrainReport(from)
				if err != nil {
					return err
				}
				if err := f.show(cmd, r, "train.{json,csv,md,html}"); err != nil {
					return err
				}
				return nil
			}
			w.URI = strings.Join(args, "")
			var err error
			if t.Done, err = f.finished(); err != nil {
				return err
			}
			defer t.Done.Close()
			tools, err := f.tools()
			if err != nil {
				return err
			}
			if j.Device != "cpu" {
				w.Seconds = 10
			}
			t.Runners, t.Repeats, t.Timeout, t.Program, t.Tools, t.Log = f.runners, f.repeats, f.timeout, version, tools, logTo(
				cmd,
			)
			absolute, err := filepath.Abs(work)
			if err != nil {
				return err
			}
			t.Sets = &bench.Sets{Work: absolute, Tools: tools, Log: t.Log}
			r, err := t.Run(cmd.Context())
			if err != nil {
				return err
			}
			r.Command = f.line
			return f.show(cmd, r, "train.{json,csv,md,html}")
		}),
	}
	f.add(c, 30*time.Minute, "run")
	f.addRepeats(c)
	fl := c.Flags()
	fl.StringSliceVar(
		&f.runners,
		"runners",
		nil,
		"who runs beside headspace: h2d, torch, lerobot, robocache, robocache-pool, "+
			"robocache-ram, robocache-disk, robocache-gpu, robocache-gpu-pool, torchcodec-cuda, "+
			"dali (default: the mode's)",
	)
	fl.StringVar(
		&j.Model,
		"model",
		"resnet18",
		"transformer, diffusion, diffusion-lowdim, resnet18 or act",
	)
	fl.StringVar(
		&t.Mode,
		"mode",
		"compare",
		"compare (all that read on the CPU), baseline (torch, lerobot), robocache (h2d, ours), "+
			"video (ours on the CPU and on the GPU, torchcodec-cuda, dali) or headspace",
	)
	fl.IntVar(&w.BatchSize, "batch-size", 0, "samples a batch and GPU (0: the model's)")
	fl.IntVar(&j.Steps, "steps", 200, "steps of the window, at least; on a GPU also 10 s")
	fl.IntVar(
		&w.Warmup,
		"warmup",
		40,
		"steps before it, at most --steps; where a cache fills, an epoch",
	)
	fl.IntVar(&w.Seed, "seed", 42, "of weights, order, noise and crops")
	fl.StringVar(
		&j.Precision,
		"precision",
		"bf16",
		"bf16 (autocast; weights float32), tf32 or fp32",
	)
	fl.StringVar(
		&j.Loop,
		"loop",
		"async",
		"async, or sync: the loss is read after each step, as lerobot's trainer does",
	)
	fl.StringVar(&j.Timing, "timing", "on", "on, or off: no split of the step")
	fl.BoolVar(&j.Compile, "compile", false, "torch.compile, for all runners")
	fl.BoolVar(
		&j.Graph,
		"graph",
		false,
		"forward and backward as one CUDA graph, for all runners: for networks that are bound by "+
			"launches",
	)
	fl.StringVar(
		&w.ImageSize,
		"image-size",
		"",
		"HxW: ours scale while decoding, the peers' frames are scaled on the device",
	)
	fl.StringVar(
		&w.Shuffle,
		"shuffle",
		"global",
		"global or pool, of all runners but robocache-pool",
	)
	fl.StringVar(&w.Cache, "cache", "", "ram or disk, of robocache and robocache-pool")
	fl.StringVar(
		&w.Decode,
		"decode",
		"",
		"on what video is decoded for ours: cpu, gpu or auto (robocache-gpu, robocache-gpu-pool: "+
			"gpu)",
	)
	fl.StringVar(
		&w.DeviceMemory,
		"device-memory-budget",
		"",
		"bytes of the GPU's memory for resident frames, or 4GiB (default: the loader's own)",
	)
	fl.StringVar(&w.CacheBudget, "cache-budget", "", "bytes of the cache, or 4GiB")
	fl.StringVar(&w.PoolSize, "pool-size", "", "bytes of resident frames of a pool, or 1GiB")
	fl.IntVar(
		&w.Workers,
		"workers",
		0,
		"worker processes of torch and lerobot, threads of torchcodec-cuda, pipelines of dali "+
			"(0: 8, and the cores less two)",
	)
	fl.IntSliceVar(
		&t.Threads,
		"threads",
		nil,
		"of ours, one run each (default: one run with its own choice)",
	)
	fl.StringSliceVar(
		&t.States,
		"cache-state",
		nil,
		"cold, warm or both: bring the page cache into it before each run, and say the stalls of "+
			"reading and preparing",
	)
	fl.IntVar(
		&j.GPUs,
		"gpus",
		1,
		"GPUs, by torchrun and DistributedDataParallel, beside a run with one; each has its "+
			"share of the cores",
	)
	fl.DurationVar(
		&t.Monitor,
		"monitor",
		200*time.Millisecond,
		"between looks at the GPUs' counters",
	)
	fl.BoolVar(&j.Tiny, "tiny", false, "small networks and a small set, for a CPU")
	fl.StringVar(&j.Device, "device", "cuda", "cuda or cpu (no figures, for tests)")
	fl.StringVar(
		&work,
		"work",
		"bench-out/sets",
		"folder for the sets that are made; they are used again",
	)
	f.addResume(c)
	fl.StringVar(&from, "from", "", "a train.json: show it again, and with --out write its report")
	return c
}
