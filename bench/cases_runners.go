package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// CaseWork is what all cases share.
type CaseWork struct {
	Name      string // peers, formats
	Command   string // for the report, with the program's revision
	Revision  string
	BatchSize int
	Workers   int     // peers: worker processes or threads; ours: threads
	Seconds   float64 // of a window, at least; whole epochs
	Seed      int
	Tools     runners.Tools
	Sets      *Sets

	open []io.Closer // servers and sets of the family that runs
}

// httpLatency is the wait before each answer of the http store.
const httpLatency = 5 * time.Millisecond

// done closes what the runners of a family needed.
func (w *CaseWork) done() {
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// ours are the loaders of ours: what is changed, and the memory budget, MiB, that each is held to.
var ours = map[string]struct {
	setting string
	budget  int
	change  func(w *Workload)
}{
	"robocache":      {"global shuffle", 512, func(*Workload) {}},
	"robocache-pool": {"pool shuffle, 1 GiB of resident frames", 1536, func(w *Workload) { w.Shuffle, w.PoolSize = "pool", "1GiB" }},
	"robocache-ram":  {"global shuffle, second epoch from the RAM cache", 4096, func(w *Workload) { w.Cache, w.CacheBudget, w.Warm = "ram", "3584MiB", 2 }},
	"robocache-disk": {"global shuffle, second epoch from the disk cache", 512, func(w *Workload) { w.Warm = 2 }},
	"robocache-http": {"global shuffle, over http with 5 ms a request", 512, func(*Workload) {}},
}

// Runners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func (w *CaseWork) Runners(ctx context.Context, name string, names []string) ([]Runner, error) {
	f := familyOf(name)
	make := func(n string) (Runner, error) { return w.formatRunner(ctx, name, n) }
	if f != nil {
		root, err := w.Sets.Path(ctx, f.set)
		if err != nil {
			return nil, err
		}
		ref, err := w.reference(ctx, root)
		if err != nil {
			return nil, err
		}
		make = func(n string) (Runner, error) { return w.runner(ctx, f, n, root, ref) }
	}
	var out []Runner
	for _, n := range names {
		r, err := make(n)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// reference opens a set; it is closed with the family's servers.
func (w *CaseWork) reference(ctx context.Context, root string) (*reference, error) {
	ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	w.open = append(w.open, ds)
	return newReference(ds, root, &Workload{})
}

func (w *CaseWork) runner(ctx context.Context, f *family, name, root string, ref *reference) (Runner, error) {
	job := &Workload{URI: root, BatchSize: w.BatchSize, Workers: w.Workers, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: f.window, Video: "none", More: map[string]any{}}
	a := Runner{Name: name, Env: w.Tools.Env(), Job: job, ref: ref, Checked: f.video}
	if f.video {
		job.Video, job.CheckFrames = "one", 64
	}
	if f.size > 0 {
		job.ImageSize = fmt.Sprintf("%dx%d", f.size, f.size)
	}
	loader := fmt.Sprintf("%d persistent workers, prefetch 4, one torch thread", w.Workers)
	says := func(script, format string, v ...any) {
		a.Argv, a.Setting = w.Tools.Script(script), fmt.Sprintf(format, v...)
	}
	limit := func(kind, format string, v ...any) {
		a.Argv, a.Setting, a.ref, a.Checked = w.Tools.Own(kind), "limit: "+fmt.Sprintf(format, v...), nil, false
	}
	const streaming = "StreamingLeRobotDataset from the local folder, %sreturn_uint8, buffer 1000, no workers"
	var err error
	switch name {
	case "lerobot":
		says("load_lerobot.py", "LeRobotDataset, torchcodec, return_uint8, %s%s", loader, map[bool]string{true: ", v2.Resize"}[f.size > 0])
	case "lerobot-streaming":
		says("load_lerobot.py", streaming, "")
		job.Workers, job.More["streaming"] = 0, true
	case "lerobot-streaming-one":
		says("load_lerobot.py", streaming, "the same frames in one mp4, ")
		job.Workers, job.More["streaming"] = 0, true
		if job.URI, err = w.Sets.Path(ctx, "av1-one"); err == nil {
			a.ref, err = w.reference(ctx, job.URI)
		}
	case "torchcodec":
		says("load_torchcodec.py", "Dataset over (file, frame), decoders kept open, exact seeking, uint8, %s", loader)
	case "torchcodec-batched":
		says("load_torchcodec.py", "the same, a batch's frames in one sorted call a file")
		job.More["batched"] = true
	case "pyav-pool":
		says("load_pyav.py", "PyAV decodes whole episodes in %d threads into a pool of 6, uint8", w.Workers)
	case "pyav-ram":
		says("load_pyav.py", "the plain pool with all frames in RAM, warm, %d threads, uint8", w.Workers)
		job.Warm, job.More["ram"] = 2, true
	case "robomimic", "robomimic-all":
		mode := map[string]string{"robomimic": "low_dim", "robomimic-all": "all"}[name]
		says("load_robomimic.py", "SequenceDataset, hdf5_cache_mode=%s, no workers (two cost more), one torch thread", mode)
		file, err := w.Sets.HDF5(ctx)
		if err != nil {
			return failing(a, err), nil
		}
		job.Workers, job.More["hdf5"], job.More["cache_mode"] = 0, file, mode
	case "decode-floor", "decode-sequential":
		job.Pattern = map[string]string{"decode-floor": "random", "decode-sequential": "sequential"}[name]
		limit("decode", "one thread, no loader; decoders kept open; %s", job.Pattern)
		job.Count = f.count
		if job.Files, _, err = filesBelow(filepath.Join(root, "videos")); err == nil && len(job.Files) == 0 {
			err = &robocache.Error{Class: robocache.ErrNotFound, Op: "bench peers", Where: robocache.Where{"dataset": root}, Msg: "no .mp4 here"}
		}
	case "memcpy":
		limit("memcpy", "frames copied from random places of memory into rotating batches, %d threads", w.Workers)
		job.Seconds = max(w.Seconds, 1)
		for _, v := range ref.ds.Info().Features {
			if v.Kind == robocache.KindVideo {
				job.Bytes = 3 * v.Height * v.Width
			}
		}
	default:
		o, ok := ours[name]
		if !ok {
			return a, report.UnknownName("runner", name, []string{"see --list"})
		}
		o.change(job)
		if name == "robocache-pool" && f.name == "av1-windows8" {
			o.budget, job.PoolSize = 768, "256MiB"
		}
		says("load_robocache.py", "%s, %d threads, memory_budget %d MiB", o.setting, w.Workers, o.budget)
		a.BudgetMB, job.MemoryBudget = float64(o.budget)*(1<<20)/1e6, fmt.Sprint(o.budget<<20)
		switch name {
		case "robocache-disk":
			job.More["disk"] = filepath.Dir(root)
		case "robocache-http":
			s, err := loopback.Serve(root, loopback.Options{Latency: httpLatency})
			if err != nil {
				return a, err
			}
			w.open = append(w.open, s)
			job.URI = s.URL
		}
	}
	return a, err
}

// failing is a runner that says why it cannot run.
func failing(a Runner, err error) Runner {
	js, _ := json.Marshal(Outcome{Error: err.Error()})
	a.Argv, a.Job, a.ref = []string{"printf", "%s", string(js)}, nil, nil
	return a
}

// formatRunner is a runner of a case of `bench formats`: runners/formats.py, but where ours reads by itself or a peer's loader is measured.
func (w *CaseWork) formatRunner(ctx context.Context, name, runner string) (Runner, error) {
	kind, rest, _ := strings.Cut(name, "-")
	job := &Workload{Seconds: w.Seconds, Seed: w.Seed, BatchSize: 1, More: map[string]any{"case": name, "runner": runner}}
	a := Runner{Name: runner, Env: w.Tools.Env(), Setting: "one process", Argv: w.Tools.Script("formats.py"), Job: job}
	dir, err := w.Sets.formatData(ctx, kind)
	if err != nil {
		return failing(a, err), nil
	}
	job.URI = dir
	own := runner == "robocache" || runner == "robocache-batch"
	read := func(kind, setting string, env ...string) { // by this program
		if own {
			a.Argv, a.Setting, a.Env = w.Tools.Own(kind), setting, append(a.Env, env...)
		}
	}
	switch kind {
	case "hdf5":
		return w.hdf5(ctx, a, rest, dir)
	case "zarr":
		job.URI, job.RowsHZ, job.BatchSize = filepath.Join(dir, rest+".zarr"), "10", 4096
		if strings.HasSuffix(rest, "-img") {
			job.BatchSize = 32
		}
		read("read", "chunk by chunk, one core", "GOMAXPROCS=1")
	case "messages":
		job.URI, job.Key = filepath.Join(dir, rest), map[string]string{"joint": "sensor_msgs/msg/JointState", "imu": "sensor_msgs/msg/Imu"}[rest]
		read("messages", "one process", "GOMAXPROCS=1")
	case "windows":
		if files, _ := filepath.Glob(filepath.Join(dir, "*.mcap")); own && len(files) > 0 {
			job.URI = files[0]
		}
		job.Count, job.Key = 40, "joint_states.position"
		read("read", "one process")
	case "calvin":
		setting := "one frame at a time"
		if runner == "robocache-batch" {
			job.BatchSize, setting = 32, "batches of 32 on all cores"
		}
		read("read", setting)
	case "multirate":
		job.URI = filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "mcap_robot", "recording_zstd.mcap")
	case "augment":
		job.URI = filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "g1_h264_v30")
	case "rlds":
		if runner == "tfds" {
			a.Argv[0], a.Setting = ".venv-tfds/bin/python", "two threads, scripts/venv-tfds.sh"
		}
	}
	return a, nil
}

// hdf5 is a runner on a file of robomimic's layout: whole epochs, windows of 16 of every stream.
func (w *CaseWork) hdf5(ctx context.Context, a Runner, which, dir string) (Runner, error) {
	file := map[string]string{"gzip": "gzip.hdf5", "low16": "low.hdf5", "low100": "low.hdf5"}[which]
	if file == "" {
		file = "raw.hdf5"
	}
	job := &Workload{URI: filepath.Join(dir, file), BatchSize: 16, Workers: 2, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: 16, Video: "none", More: map[string]any{}}
	if which == "low100" {
		job.BatchSize = 100
	}
	var err error
	a.Job, a.Checked = job, true
	if a.ref, err = w.reference(ctx, job.URI); err != nil {
		return a, err
	}
	low := file == "low.hdf5"
	if a.Name != "robomimic" {
		if which == "cached" {
			job.Cache = "ram"
		}
		job.More["truth"] = job.URI
		a.Argv, a.Setting = w.Tools.Script("load_robocache.py"), "global shuffle, 2 threads"
		return a, nil
	}
	mode := "None"
	if low || which == "cached" {
		mode, job.More["cache_mode"] = "all", "all"
	}
	if low {
		job.Workers = 0
	}
	a.Argv, a.Setting = w.Tools.Script("load_robomimic.py"), fmt.Sprintf("SequenceDataset, hdf5_cache_mode=%s, %d workers", mode, job.Workers)
	return a, nil
}
