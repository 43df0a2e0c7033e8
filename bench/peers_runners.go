package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// PeerWork is what all rows share.
type PeerWork struct {
	Name      string // peers, formats
	Command   string // for the report, with the program's revision
	Revision  string
	BatchSize int
	Workers   int     // peers: worker processes or threads; ours: threads
	Seconds   float64 // of a window, at least; whole epochs
	Seed      int
	Tools     runners.Tools
	Sets      *PeerSets

	open []io.Closer // servers and sets of the family that runs
}

// peerLatency is the wait before each answer of the http store.
const peerLatency = 5 * time.Millisecond

// done closes what the runners of a family needed.
func (w *PeerWork) done() {
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// ourRunner are the options of one of ours, and the memory budget that it is held to.
type ourRunner struct {
	setting                    string
	budget                     int // MiB
	shuffle, pool, cache, kept string
	warm                       int
	disk, http                 bool
}

var ours = map[string]ourRunner{
	"robocache":      {setting: "global shuffle", budget: 512},
	"robocache-pool": {setting: "pool shuffle, 1 GiB of resident frames", budget: 1536, shuffle: "pool", pool: "1GiB"},
	"robocache-ram":  {setting: "global shuffle, second epoch from the RAM cache", budget: 4096, cache: "ram", kept: "3584MiB", warm: 2},
	"robocache-disk": {setting: "global shuffle, second epoch from the disk cache", budget: 512, warm: 2, disk: true},
	"robocache-http": {setting: "global shuffle, over http with 5 ms a request", budget: 512, http: true},
}

// small changes the options where the budget is another in a family.
var small = map[string]map[string]func(*ourRunner){
	"av1-windows8": {"robocache-pool": func(o *ourRunner) { o.budget, o.pool = 768, "256MiB" }},
}

// PeerRunners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func PeerRunners(ctx context.Context, family string, names []string, w *PeerWork) ([]Runner, error) {
	if w.Name == "formats" {
		var runners []Runner
		for _, n := range names {
			r, err := w.formatRunner(ctx, family, n)
			if err != nil {
				return nil, err
			}
			runners = append(runners, r)
		}
		return runners, nil
	}
	f := familyOf(family)
	if f == nil {
		return nil, report.UnknownName("family", family, nil)
	}
	root, err := w.Sets.Path(ctx, f.set)
	if err != nil {
		return nil, err
	}
	ref, err := w.reference(ctx, root)
	if err != nil {
		return nil, err
	}
	var runners []Runner
	for _, n := range names {
		a, err := w.runner(ctx, f, n, root, ref)
		if err != nil {
			return nil, err
		}
		runners = append(runners, a)
	}
	return runners, nil
}

// reference opens a set; it is closed with the family's servers.
func (w *PeerWork) reference(ctx context.Context, root string) (*reference, error) {
	ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	w.open = append(w.open, ds)
	return newReference(ctx, ds, root, &Workload{})
}

func (w *PeerWork) runner(ctx context.Context, f *peerFamily, name, root string, ref *reference) (Runner, error) {
	a := Runner{Name: name, Env: w.Tools.Env()}
	work := Workload{URI: root, BatchSize: w.BatchSize, Workers: w.Workers, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: f.window, Video: "none"}
	if f.video {
		work.Video, work.CheckFrames = "one", 64
	}
	if f.size > 0 {
		work.ImageSize = fmt.Sprintf("%dx%d", f.size, f.size)
	}
	python := func(script string, more ...string) {
		a.Checked, a.job = f.video, job{ref: ref, batch: w.BatchSize, whole: true}
		a.Argv = w.Tools.Script(script, append(work.args(), more...)...)
	}
	loader := strconv.Itoa(w.Workers) + " persistent workers, prefetch 4, one torch thread"
	switch name {
	case "lerobot":
		a.Setting = "LeRobotDataset, torchcodec, return_uint8, " + loader
		if f.size > 0 {
			a.Setting += ", v2.Resize"
		}
		python("load_lerobot.py")
	case "lerobot-streaming", "lerobot-streaming-one":
		a.Setting = "StreamingLeRobotDataset from the local folder, return_uint8, buffer 1000, no workers"
		work.Workers = 0
		if name == "lerobot-streaming-one" {
			var err error
			if work.URI, err = w.Sets.Path(ctx, "av1-one"); err != nil {
				return a, err
			}
			if ref, err = w.reference(ctx, work.URI); err != nil {
				return a, err
			}
			a.Setting = "StreamingLeRobotDataset from the local folder, the same frames in one mp4, return_uint8, buffer 1000, no workers"
		}
		python("load_lerobot.py", "--streaming")
	case "torchcodec":
		a.Setting = "Dataset over (file, frame), decoders kept open, exact seeking, uint8, " + loader
		python("load_torchcodec.py")
	case "torchcodec-batched":
		a.Setting = "the same, a batch's frames in one sorted call a file"
		python("load_torchcodec.py", "--batched")
	case "pyav-pool":
		a.Setting = "PyAV decodes whole episodes in " + strconv.Itoa(w.Workers) + " threads into a pool of 6, uint8"
		python("load_pyav.py")
	case "pyav-ram":
		a.Setting = "the plain pool with all frames in RAM, warm, " + strconv.Itoa(w.Workers) + " threads, uint8"
		work.Warm = 2
		python("load_pyav.py", "--ram")
	case "robomimic", "robomimic-all":
		file, err := w.Sets.HDF5(ctx)
		if err != nil {
			return failing(a, err), nil
		}
		mode := map[string]string{"robomimic": "low_dim", "robomimic-all": "all"}[name]
		a.Setting = "SequenceDataset, hdf5_cache_mode=" + mode + ", no workers (two cost more), one torch thread"
		work.Workers = 0
		python("load_robomimic.py", "--hdf5", file, "--cache-mode", mode)
	case "decode-floor":
		return w.decode(a, root, "random", f.count)
	case "decode-sequential":
		return w.decode(a, root, "sequential", 0)
	case "memcpy":
		bytes := 0
		for i := range ref.ds.Info().Features {
			if v := &ref.ds.Info().Features[i]; v.Kind == robocache.KindVideo {
				bytes = 3 * v.Height * v.Width
			}
		}
		a.Setting = "limit: frames copied from random places of memory into rotating batches, " + strconv.Itoa(w.Workers) + " threads"
		a.Argv = w.Tools.Own("memcpy", "--frame-bytes", strconv.Itoa(bytes), "--batch-size", strconv.Itoa(w.BatchSize), "--workers", strconv.Itoa(w.Workers), "--seconds", fmt.Sprint(max(w.Seconds, 1)))
	default:
		o, ok := ours[name]
		if !ok {
			return a, report.UnknownName("runner", name, []string{"see --list"})
		}
		if s, ok := small[f.name]; ok && s[name] != nil {
			s[name](&o)
		}
		a.BudgetMB = float64(o.budget) * (1 << 20) / 1e6
		a.Setting = o.setting + ", " + strconv.Itoa(w.Workers) + " threads, memory_budget " + strconv.Itoa(o.budget) + " MiB"
		work.Shuffle, work.Cache, work.Warm, work.MemoryBudget, work.PoolSize, work.CacheBudget = o.shuffle, o.cache, o.warm, fmt.Sprint(o.budget<<20), o.pool, o.kept
		var more []string
		if o.disk {
			more = append(more, "--disk", filepath.Dir(root))
		}
		if o.http {
			s, err := loopback.Serve(root, loopback.Options{Latency: peerLatency})
			if err != nil {
				return a, err
			}
			w.open = append(w.open, s)
			work.URI = s.URL
		}
		python("load_robocache.py", more...)
	}
	return a, nil
}

func (w *PeerWork) decode(a Runner, root, pattern string, count int) (Runner, error) {
	a.Setting = "limit: one thread, no loader; decoders kept open; " + pattern
	a.Argv = w.Tools.Own("decode", "--pattern", pattern)
	if count > 0 {
		a.Argv = append(a.Argv, "--count", strconv.Itoa(count))
	}
	files, _, err := filesBelow(filepath.Join(root, "videos"))
	if err == nil && len(files) == 0 {
		err = &robocache.Error{Class: robocache.ErrNotFound, Op: "bench peers", Where: robocache.Where{"dataset": root}, Msg: "no .mp4 here"}
	}
	a.Argv = append(a.Argv, files...)
	return a, err
}

// failing is a runner that says why it cannot run.
func failing(a Runner, err error) Runner {
	js, _ := json.Marshal(Outcome{Error: err.Error()})
	a.Argv = []string{"printf", "%s", string(js)}
	return a
}
