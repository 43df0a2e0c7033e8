package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
)

// LoadRunners gives runners by name: "engine" (the Go loader, no Python), "robocache" (into torch tensors), "lerobot".
func LoadRunners(names []string, w Workload, t runners.Tools) ([]Runner, error) {
	var runners []Runner
	workers := strconv.Itoa(w.Workers)
	for _, n := range names {
		r := Runner{Name: n, Env: t.Env()}
		switch n {
		case "engine":
			r.Setting, r.Argv = workers+" threads, no Python", t.Own("load", w.args()...)
		case "robocache":
			r.Setting, r.Argv = workers+" threads, into torch tensors", t.Script("load_robocache.py", w.args()...)
		case "lerobot":
			r.Setting = workers + " workers, persistent, torchcodec, return_uint8=" + strconv.FormatBool(!w.Float32) + ", one torch thread"
			r.Argv = t.Script("load_lerobot.py", w.args()...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "engine, robocache, lerobot"}
		}
		runners = append(runners, r)
	}
	return runners, nil
}

// RunLoad measures whole epochs of the workload through runners, interleaved.
func RunLoad(ctx context.Context, names []string, w Workload, t runners.Tools, repeats int, timeout time.Duration, log func(string, ...any)) ([]Result, error) {
	runners, err := LoadRunners(names, w, t)
	if err != nil {
		return nil, err
	}
	ds, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	ref, err := newReference(ctx, ds, "", &w)
	if err != nil {
		return nil, err
	}
	for i := range runners {
		runners[i].job = job{ref: ref, batch: w.BatchSize, whole: true}
	}
	return Run(ctx, runners, repeats, timeout, log)
}

// DecodeRunners gives the runners of `bench decode`: "robocache", "ffmpeg", "torchcodec", "pyav".
func DecodeRunners(names []string, pattern string, count int, files []string, t runners.Tools) ([]Runner, error) {
	var runners []Runner
	for _, n := range names {
		r := Runner{Name: n, Env: t.Env(), Setting: "one thread, " + pattern}
		switch n {
		case "robocache":
			r.Argv = t.Own("decode", append([]string{"--pattern", pattern, "--count", strconv.Itoa(count)}, files...)...)
		case "ffmpeg", "torchcodec", "pyav":
			if n == "ffmpeg" && pattern != "sequential" {
				continue // a process a frame would measure starting processes
			}
			r.Argv = t.Script("decode_peer.py", append([]string{n, pattern, strconv.Itoa(count)}, files...)...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "robocache, ffmpeg, torchcodec, pyav"}
		}
		runners = append(runners, r)
	}
	return runners, nil
}
