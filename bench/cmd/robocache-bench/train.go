package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
)

// newTrain returns the verb train.
func newTrain(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var work, from string
	t := &bench.Train{}
	w, j := &t.Base, &t.Job
	c := &cobra.Command{
		Use: "train [URI]",
		Short: "train a policy with RoboCache and with the peers' loaders, and measure what the " +
			"GPU waits for",
		Long: `train runs the same training with several loaders: a plain torch DataLoader that reads the files
itself, lerobot's class, and RoboCache. Weights and order are the same. Runs are interleaved, each in
a fresh process. The first and the last run of a repeat is headspace: the same loop on one batch that
is already on the device. The utilisation of a runner is its rate divided by that of headspace.

Weights, order, batches and losses are compared, and a difference is exit code 1. Batches 0, 1, 10
and 100 are compared with a plain reader, and the means of the first 200 with the other runners.
Models: transformer (101.3 M parameters), diffusion, diffusion-lowdim, resnet18, act. Without URI,
the default set of the model is made in the work folder.`,
		Example: `  robocache-bench train ./my_dataset --model resnet18 --out report
  robocache-bench train --model transformer --compile --out report
  robocache-bench train ./my_dataset --model resnet18 --runners torch,robocache-ram --image-size 224x224 --batch-size 256
  robocache-bench train ./my_dataset --model resnet18 --runners robocache-pool --threads 1,2,4,8,16
  robocache-bench train ./my_dataset --model resnet18 --mode video --image-size 224x224 --graph
  robocache-bench train ./my_dataset --model diffusion --gpus 2
  robocache-bench train ./my_dataset --model diffusion-lowdim --device cpu --tiny --batch-size 8 --steps 12 --warmup 3`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.withCleanup(func(cmd *cobra.Command, args []string) error {
			if from != "" {
				r, err := bench.ReadTrainReport(from)
				if err != nil {
					return err
				}
				return f.showReport(cmd, r, "train.{json,csv,md,html}")
			}
			w.URI = strings.Join(args, "")
			var err error
			if t.Done, err = f.openFinished(); err != nil {
				return err
			}
			defer t.Done.Close()
			tools, err := f.unpackTools()
			if err != nil {
				return err
			}
			if j.Device != "cpu" {
				w.Seconds = 10
			}
			t.Runners, t.Repeats, t.Timeout = f.runners, f.repeats, f.timeout
			t.Program, t.Tools, t.Log = version, tools, logTo(cmd)
			absolute, err := filepath.Abs(work)
			if err != nil {
				return err
			}
			t.Sets = &bench.Sets{Work: absolute, Tools: tools, Log: t.Log}
			r, err := t.Run(cmd.Context())
			if err != nil {
				return err
			}
			r.Command = f.commandLine
			return f.showReport(cmd, r, "train.{json,csv,md,html}")
		}),
	}
	f.addCommon(c, 30*time.Minute, "run")
	f.addRepeats(c)
	fl := c.Flags()
	fl.StringSliceVar(
		&f.runners,
		"runners",
		nil,
		"runners in addition to headspace: h2d, torch, lerobot, robocache, robocache-pool, "+
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
		"compare (all that read on the CPU), baseline (torch, lerobot), robocache (h2d, "+
			"robocache), video (robocache on the CPU and on the GPU, torchcodec-cuda, dali) or "+
			"headspace",
	)
	fl.IntVar(&w.BatchSize, "batch-size", 0, "samples per batch and GPU (0: the model's)")
	fl.IntVar(&j.Steps, "steps", 200, "minimum steps of the window; on a GPU also at least 10 s")
	fl.IntVar(
		&w.Warmup,
		"warmup",
		40,
		"steps before the window, at most --steps; an epoch if a cache fills",
	)
	fl.IntVar(&w.Seed, "seed", 42, "seed of weights, order, noise and crops")
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
	fl.StringVar(&j.Timing, "timing", "on", "on, or off: do not time the parts of a step")
	fl.BoolVar(&j.Compile, "compile", false, "torch.compile, for all runners")
	fl.BoolVar(
		&j.Graph,
		"graph",
		false,
		"run forward and backward as one CUDA graph, for all runners; for networks that are "+
			"limited by launches",
	)
	fl.StringVar(
		&w.ImageSize,
		"image-size",
		"",
		"HxW: robocache scales while decoding, frames of peers are scaled on the device",
	)
	fl.StringVar(
		&w.Shuffle,
		"shuffle",
		"global",
		"global or pool, for all runners except robocache-pool",
	)
	fl.StringVar(&w.Cache, "cache", "", "ram or disk, for robocache and robocache-pool")
	fl.StringVar(
		&w.Decode,
		"decode",
		"",
		"device that decodes video for robocache: cpu, gpu or auto (robocache-gpu, "+
			"robocache-gpu-pool: gpu)",
	)
	fl.StringVar(
		&w.DeviceMemory,
		"device-memory-budget",
		"",
		"GPU memory for resident frames in bytes, or for example 4GiB (default: the loader's)",
	)
	fl.StringVar(
		&w.CacheBudget,
		"cache-budget",
		"",
		"size of the cache in bytes, or for example 4GiB",
	)
	fl.StringVar(
		&w.PoolSize,
		"pool-size",
		"",
		"size of the resident frames of a pool in bytes, or for example 1GiB",
	)
	fl.IntVar(
		&w.Workers,
		"workers",
		0,
		"worker processes of torch and lerobot, threads of torchcodec-cuda, pipelines of dali "+
			"(0: two runs, with 8 and with the number of cores minus two)",
	)
	fl.IntSliceVar(
		&t.Threads,
		"threads",
		nil,
		"numbers of threads of robocache, one run each (default: one run, the loader's choice)",
	)
	fl.StringSliceVar(
		&t.States,
		"cache-state",
		nil,
		"cold, warm or both: prepare the page cache before each run, and report the stalls of "+
			"reading and preparing",
	)
	fl.IntVar(
		&j.GPUs,
		"gpus",
		1,
		"number of GPUs (torchrun and DistributedDataParallel), compared with one; each has its "+
			"share of the cores",
	)
	fl.DurationVar(
		&t.Monitor,
		"monitor",
		200*time.Millisecond,
		"interval between readings of the GPU counters",
	)
	fl.BoolVar(&j.Tiny, "tiny", false, "small networks and a small set, for a CPU")
	fl.StringVar(&j.Device, "device", "cuda", "cuda or cpu (no figures, for tests)")
	fl.StringVar(
		&work,
		"work",
		"bench-out/sets",
		"folder for the derived sets, which are reused",
	)
	f.addResume(c)
	fl.StringVar(&from, "from", "", "show an earlier train.json, and with --out write its report")
	return c
}
