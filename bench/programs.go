package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// program is how a runner is started: a Python script, or a kind of job that Serve knows; its setting in words (%d: its workers); and what its job has beside the case's.
type program struct {
	run     string
	setting string
	job     func(j *Workload)
	more    map[string]any
	budget  int // ours: the memory, MiB, that it is held to
}

const (
	workers    = ", %d persistent workers, prefetch 4, one torch thread"
	streaming  = "StreamingLeRobotDataset from the local folder, "
	unnumbered = "return_uint8, buffer 1000, no workers"
)

func alone(j *Workload)  { j.Workers = 0 }
func second(j *Workload) { j.Warm = 2 }

var (
	// loaders are those of `bench load`.
	loaders = map[string]program{
		"engine":    {run: "load", setting: "%d threads, no Python"},
		"robocache": {run: "load_robocache.py", setting: "%d threads, into torch tensors"},
		"lerobot":   {run: "load_lerobot.py", setting: "torchcodec" + workers},
	}
	// trajectories are those of whole trajectories. Each compares its first batches with the other's; the order is the loader's in both.
	trajectories = map[string]program{
		"robocache": {run: "load_sequences.py", setting: "%d threads, windows= at a rate"},
		"torch":     {run: "load_sequences.py", setting: "DataLoader, %d persistent workers, prefetch 4, h5py and one searchsorted a stream"},
	}
	// decoders are those of `bench decode`, on one thread.
	decoders = map[string]program{
		"robocache": {run: "decode", setting: "one thread"}, "ffmpeg": {run: "decode.py", setting: "one thread"},
		"torchcodec": {run: "decode.py", setting: "one thread"}, "pyav": {run: "decode.py", setting: "one thread"},
	}
	// ours are the loaders of ours in `bench peers`.
	ours = map[string]program{
		"robocache":      {setting: "global shuffle", budget: 512},
		"robocache-pool": {setting: "pool shuffle, 1 GiB of resident frames", budget: 1536, job: func(j *Workload) { j.Shuffle, j.PoolSize = "pool", "1GiB" }},
		"robocache-ram":  {setting: "global shuffle, second epoch from the RAM cache", budget: 4096, job: func(j *Workload) { j.Cache, j.CacheBudget, j.Warm = "ram", "3584MiB", 2 }},
		"robocache-disk": {setting: "global shuffle, second epoch from the disk cache", budget: 512, job: second},
		"robocache-http": {setting: "global shuffle, over http with 5 ms a request", budget: 512},
	}
	// peers are the others, and the limits.
	peers = map[string]program{
		"lerobot":               {run: "load_lerobot.py", setting: "LeRobotDataset, torchcodec, return_uint8" + workers},
		"lerobot-streaming":     {run: "load_lerobot.py", setting: streaming + unnumbered, job: alone, more: map[string]any{"streaming": true}},
		"lerobot-streaming-one": {run: "load_lerobot.py", setting: streaming + "the same frames in one mp4, " + unnumbered, job: alone, more: map[string]any{"streaming": true}},
		"torchcodec":            {run: "load_torchcodec.py", setting: "Dataset over (file, frame), decoders kept open, exact seeking, uint8, a batch's frames in one sorted call a file" + workers},
		"pyav-pool":             {run: "load_pyav.py", setting: "PyAV decodes whole episodes in %d threads into a pool of 6, uint8"},
		"pyav-ram":              {run: "load_pyav.py", setting: "the plain pool with all frames in RAM, warm, %d threads, uint8", job: second, more: map[string]any{"ram": true}},
		"robomimic":             {run: "load_robomimic.py", setting: "SequenceDataset, hdf5_cache_mode=low_dim, no workers (two cost more), one torch thread", job: alone, more: map[string]any{"cache_mode": "low_dim"}},
		"robomimic-all":         {run: "load_robomimic.py", setting: "SequenceDataset, hdf5_cache_mode=all, no workers (two cost more), one torch thread", job: alone, more: map[string]any{"cache_mode": "all"}},
		"decode-floor":          {run: "decode", setting: "limit: one thread, no loader; decoders kept open; random", job: func(j *Workload) { j.Pattern = "random" }},
		"decode-sequential":     {run: "decode", setting: "limit: one thread, no loader; decoders kept open; sequential", job: func(j *Workload) { j.Pattern = "sequential" }},
		"memcpy":                {run: "memcpy", setting: "limit: frames copied from random places of memory into rotating batches, %d threads", job: func(j *Workload) { j.Seconds = max(j.Seconds, 1) }},
	}
)

// runner is a program with a job.
func (p program) runner(name string, w Workload, t *runners.Tools) Runner {
	if w.More = maps.Clone(p.more); w.More == nil {
		w.More = map[string]any{}
	}
	if w.More["runner"] = name; p.job != nil {
		p.job(&w)
	}
	argv := t.Own(p.run)
	if strings.HasSuffix(p.run, ".py") {
		argv = t.Script(p.run)
	}
	return Runner{Name: name, Setting: strings.ReplaceAll(p.setting, "%d", strconv.Itoa(w.Workers)), Env: t.Env(), Argv: argv, Job: &w}
}

// pick gives the runners of a table by name.
func pick(table map[string]program, names []string, w Workload, t *runners.Tools) (out []Runner) {
	for _, n := range names {
		p, ok := table[n]
		if !ok {
			guard.Fail(report.UnknownName("runner", n, slices.Sorted(maps.Keys(table))))
		}
		out = append(out, p.runner(n, w, t))
	}
	return out
}

// Passes measures whole passes of a workload through runners, interleaved: epochs of a loader, with Rows those of whole trajectories, with Files decoding.
// With threads each runner runs with each number of them.
func Passes(ctx context.Context, names []string, w Workload, threads []int, t runners.Tools, repeats int, timeout time.Duration, log func(string, ...any)) (_ []Result, err error) {
	defer guard.Into(&err)
	if w.Files != nil {
		if w.Pattern == "random" { // a process a frame would measure starting processes
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "ffmpeg" })
		}
		return Run(ctx, pick(decoders, names, w, &t), repeats, timeout, log)
	}
	ds := guard.Must(w.open(ctx))
	defer ds.Close()
	table := loaders
	if w.Rows > 0 {
		if table = trajectories; ds.Info().Format != "robomimic" || ds.Info().Episodes == 0 || w.HZ <= 0 {
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"dataset": w.URI}, Msg: "--rows is for whole trajectories of a robomimic file with timestamps, at --hz", Hint: "robocache synth FILE.hdf5 --format robomimic --preset heterogeneous"})
		}
	}
	if w.Rows > 0 || threads != nil {
		w.Seconds = cmp.Or(w.Seconds, 2) // an epoch of ours is a fraction of that
	}
	ref := guard.Must(newReference(ds, "", &w))
	if threads == nil {
		threads = []int{w.Workers}
	}
	var field []Runner
	for _, n := range threads {
		w.Workers = n
		for _, r := range pick(table, names, w, &t) {
			if r.ref = ref; len(threads) > 1 {
				r.Name += fmt.Sprintf(", %d threads", n)
			}
			field = append(field, r)
		}
	}
	return Run(ctx, field, repeats, timeout, log)
}

// httpLatency is the wait before each answer of the http store.
const httpLatency = 5 * time.Millisecond

// Runners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func (w *CaseWork) Runners(ctx context.Context, name string, names []string) (out []Runner, err error) {
	defer guard.Into(&err)
	f := familyOf(name)
	var ref *reference
	if !f.format {
		ref = w.reference(ctx, guard.Must(w.Sets.Path(ctx, f.set)))
	}
	for _, n := range names {
		r := Runner{Name: n}
		if err := guard.Try(func() {
			if f.format {
				r = w.formatRunner(ctx, name, n)
			} else {
				r = w.peer(ctx, &f, n, ref)
			}
		}); errors.Is(err, robocache.ErrUnsupported) {
			r.Argv, r.Job, r.ref = []string{"printf", "%s", string(guard.Must(json.Marshal(Outcome{Error: err.Error()})))}, nil, nil
		} else {
			guard.Check(err)
		}
		out = append(out, r)
	}
	return out, nil
}

// reference opens a set; it is closed with the family's servers.
func (w *CaseWork) reference(ctx context.Context, root string) *reference {
	ds := guard.Must(robocache.Open(ctx, root, robocache.OpenOptions{}))
	w.open = append(w.open, ds)
	return guard.Must(newReference(ds, root, &Workload{}))
}

// peer is a runner of a family of `bench peers`.
func (w *CaseWork) peer(ctx context.Context, f *family, name string, ref *reference) Runner {
	table := peers
	if p, our := ours[name]; our {
		if f.name == "av1-windows8" && name == "robocache-pool" {
			p.budget, p.job = 768, func(j *Workload) { j.Shuffle, j.PoolSize = "pool", "256MiB" }
		}
		p.run, p.setting = "load_robocache.py", p.setting+fmt.Sprintf(", %%d threads, memory_budget %d MiB", p.budget)
		table = map[string]program{name: p}
	}
	job := Workload{URI: ref.root, BatchSize: w.BatchSize, Workers: w.Workers, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: f.window, Video: "none"}
	if f.video {
		job.Video, job.CheckFrames = "one", 64
	}
	if f.size > 0 {
		job.ImageSize = fmt.Sprintf("%dx%d", f.size, f.size)
	}
	if b := table[name].budget; b > 0 {
		job.MemoryBudget = fmt.Sprint(b << 20)
	}
	a := pick(table, []string{name}, job, &w.Tools)[0]
	if a.Checked, a.ref = f.video, ref; !strings.HasSuffix(a.Argv[1], ".py") { // a limit
		a.Checked, a.ref = false, nil
	}
	switch name {
	case "lerobot":
		a.Setting += map[bool]string{true: ", v2.Resize"}[f.size > 0]
	case "lerobot-streaming-one":
		a.Job.URI = guard.Must(w.Sets.Path(ctx, "av1-one"))
		a.ref = w.reference(ctx, a.Job.URI)
	case "robomimic", "robomimic-all":
		a.Job.More["hdf5"] = w.Sets.HDF5(ctx)
	case "decode-floor", "decode-sequential":
		a.Job.Count = f.count
		a.Job.Files = guard.Must(VideoFiles([]string{ref.root}))
	case "memcpy":
		for _, v := range ref.ds.Info().Features {
			if v.Kind == robocache.KindVideo {
				a.Job.Bytes = 3 * v.Height * v.Width
			}
		}
	case "robocache-disk":
		a.Job.More["disk"] = filepath.Dir(ref.root)
	case "robocache-http":
		s := guard.Must(loopback.Serve(ref.root, loopback.Options{Latency: httpLatency}))
		w.open = append(w.open, s)
		a.Job.URI = s.URL
	}
	return a
}

// formatRunner is a runner of a case of `bench formats`: runners/formats.py, but where ours reads by itself or a peer's loader is measured.
func (w *CaseWork) formatRunner(ctx context.Context, name, runner string) Runner {
	kind, rest, _ := strings.Cut(name, "-")
	dir := w.Sets.formatData(ctx, kind)
	j := Workload{URI: dir, Seconds: w.Seconds, Seed: w.Seed, BatchSize: 1}
	p := program{run: "formats.py", setting: "one process", more: map[string]any{"case": name}}
	var env []string
	if own := runner == "robocache" || runner == "robocache-batch"; own {
		switch kind {
		case "zarr", "messages":
			env = []string{"GOMAXPROCS=1"}
			fallthrough
		case "windows", "calvin":
			p.run = cmp.Or(map[string]string{"messages": "messages"}[kind], "read")
		}
	}
	switch kind {
	case "hdf5": // a loader on a file of robomimic's layout: whole epochs, windows of 16 of every stream
		file := cmp.Or(map[string]string{"gzip": "gzip.hdf5", "low16": "low.hdf5", "low100": "low.hdf5"}[rest], "raw.hdf5")
		j.URI, j.BatchSize, j.Workers, j.Epochs, j.Window, j.Video = filepath.Join(dir, file), 16, 2, 1, 16, "none"
		if rest == "low100" {
			j.BatchSize = 100
		}
		if p = (program{run: "load_robocache.py", setting: "global shuffle, %d threads", more: map[string]any{"truth": j.URI}}); runner == "robomimic" {
			mode := "None"
			if p.more = nil; rest == "cached" || file == "low.hdf5" {
				mode, p.more = "all", map[string]any{"cache_mode": "all"}
			}
			if file == "low.hdf5" {
				j.Workers = 0
			}
			p.run, p.setting = "load_robomimic.py", "SequenceDataset, hdf5_cache_mode="+mode+", %d workers"
		} else if rest == "cached" {
			j.Cache = "ram"
		}
	case "zarr":
		j.URI, j.RowsHZ, j.BatchSize, p.setting = filepath.Join(dir, rest+".zarr"), "10", 4096, "chunk by chunk, one core"
		if strings.HasSuffix(rest, "-img") {
			j.BatchSize = 32
		}
	case "messages":
		j.URI, j.Key = filepath.Join(dir, rest), map[string]string{"joint": "sensor_msgs/msg/JointState", "imu": "sensor_msgs/msg/Imu"}[rest]
	case "windows":
		if files, _ := filepath.Glob(filepath.Join(dir, "*.mcap")); p.run == "read" && len(files) > 0 {
			j.URI = files[0]
		}
		j.Count, j.Key = 40, "joint_states.position"
	case "calvin":
		if p.setting = "one frame at a time"; runner == "robocache-batch" {
			j.BatchSize, p.setting = 32, "batches of 32 on all cores"
		}
	}
	a := p.runner(runner, j, &w.Tools)
	if a.Env = append(a.Env, env...); kind == "hdf5" {
		a.Checked, a.ref = true, w.reference(ctx, j.URI)
	}
	if runner == "tfds" {
		a.Argv[0], a.Setting = ".venv-tfds/bin/python", "two threads, scripts/tests/venv-tfds.sh"
	}
	return a
}
