package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// RunSequences measures whole epochs of whole trajectories, each Workload.Rows rows at Workload.HZ, of a robomimic file with timestamps: "robocache" beside "torch", a plain Dataset in a
// DataLoader. Each compares its first batches with the other's; the order is the loader's in both.
func RunSequences(ctx context.Context, names []string, w Workload, t runners.Tools, repeats int, timeout time.Duration, log func(string, ...any)) ([]Result, error) {
	ds, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	list, err := w.episodes(ds.Info())
	if err != nil {
		return nil, err
	}
	if ds.Info().Format != "robomimic" || ds.Info().Episodes == 0 || w.HZ <= 0 {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"dataset": w.URI}, Msg: "--rows is for whole trajectories of a robomimic file with timestamps, at --hz", Hint: "robocache synth FILE.hdf5 --format robomimic --preset heterogeneous"}
	}
	ref := &reference{ds: ds, lengths: slices.Repeat([]int{1}, len(list)), samples: int64(len(list)), all: slices.Repeat([]int{1}, ds.Info().Episodes), total: int64(ds.Info().Episodes)}
	if w.Seconds == 0 {
		w.Seconds = 2 // an epoch of ours is a fraction of that
	}
	var field []Runner
	for _, n := range names {
		job, setting := w, fmt.Sprintf("%d threads, windows= at a rate", w.Workers)
		job.More = map[string]any{"peer": n}
		switch n {
		case "robocache":
		case "torch":
			setting = fmt.Sprintf("DataLoader, %d persistent workers, prefetch 4, h5py and one searchsorted a stream", w.Workers)
		default:
			return nil, report.UnknownName("runner", n, []string{"robocache", "torch"})
		}
		field = append(field, Runner{Name: n, Setting: setting, Env: t.Env(), Job: &job, Argv: t.Script("load_sequences.py"), ref: ref})
	}
	return Run(ctx, field, repeats, timeout, log)
}
