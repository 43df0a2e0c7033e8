package bench

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// PeerWork is what all rows share.
type PeerWork struct {
	Command   string // for the report, with the program's revision
	Revision  string
	BatchSize int
	Workers   int     // peers: worker processes or threads; ours: threads
	Seconds   float64 // of a window, at least; whole epochs
	Seed      int
	Tools     Tools
	Sets      *PeerSets

	servers []*loopback.Server // of the family that runs
}

// peerLatency is the wait before each answer of the http store.
const peerLatency = 5 * time.Millisecond

// closeServers ends what the runners of a family were served by.
func (w *PeerWork) closeServers() {
	for _, s := range w.servers {
		s.Close()
	}
	w.servers = nil
}

// ours are the options of our runners, and the memory budget that they are held to.
var ours = map[string]struct {
	setting string
	budget  int // MiB
	options map[string]any
	warm    int
	disk    bool
	http    bool
}{
	"robocache":      {setting: "global shuffle", budget: 512},
	"robocache-pool": {setting: "pool shuffle, 1 GiB of resident frames", budget: 1536, options: map[string]any{"shuffle": "pool", "pool_size": 1 << 30}},
	"robocache-ram":  {setting: "global shuffle, second epoch from the RAM cache", budget: 4096, options: map[string]any{"cache": "ram", "cache_budget": 3584 << 20}, warm: 2},
	"robocache-disk": {setting: "global shuffle, second epoch from the disk cache", budget: 512, warm: 2, disk: true},
	"robocache-http": {setting: "global shuffle, over http with 5 ms a request", budget: 512, http: true},
}

// small are the options of runners whose budget is another in a family.
var small = map[string]struct {
	budget  int
	options map[string]any
}{
	"av1-windows8/robocache":      {budget: 512},
	"av1-windows8/robocache-pool": {budget: 768, options: map[string]any{"shuffle": "pool", "pool_size": 256 << 20}},
}

// PeerRunners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func PeerRunners(ctx context.Context, family string, names []string, w *PeerWork) ([]Runner, error) {
	f := familyOf(family)
	if f == nil {
		return nil, unknownName("family", family, nil)
	}
	root, err := w.Sets.Path(ctx, f.set)
	if err != nil {
		return nil, err
	}
	oracle := ""
	if f.video {
		if oracle, err = w.Sets.Oracle(ctx, f.set); err != nil {
			return nil, err
		}
	}
	var runners []Runner
	for _, n := range names {
		a, err := w.runner(ctx, f, n, root, oracle)
		if err != nil {
			return nil, err
		}
		runners = append(runners, a)
	}
	return runners, nil
}

func (w *PeerWork) runner(ctx context.Context, f *peerFamily, name, root, oracle string) (Runner, error) {
	a := Runner{Name: name, Env: w.Tools.env()}
	python := func(script, root string, workers int, more ...string) {
		a.Argv = []string{w.Tools.Python, filepath.Join(w.Tools.dir, script), root, "--batch-size", strconv.Itoa(w.BatchSize), "--workers", strconv.Itoa(workers),
			"--seconds", strconv.FormatFloat(w.Seconds, 'g', -1, 64), "--seed", strconv.Itoa(w.Seed), "--window", strconv.Itoa(f.window)}
		if f.video {
			a.Argv, a.Checked = append(a.Argv, "--oracle", oracle), true
		} else {
			a.Argv = append(a.Argv, "--video", "none")
		}
		if f.size > 0 {
			a.Argv = append(a.Argv, "--image-size", strconv.Itoa(f.size), strconv.Itoa(f.size))
		}
		a.Argv = append(a.Argv, more...)
	}
	loader := strconv.Itoa(w.Workers) + " persistent workers, prefetch 4, one torch thread"
	switch name {
	case "lerobot":
		a.Setting = "LeRobotDataset, torchcodec, return_uint8, " + loader
		if f.size > 0 {
			a.Setting += ", v2.Resize"
		}
		python("peer_lerobot.py", root, w.Workers)
	case "lerobot-streaming":
		a.Setting = "StreamingLeRobotDataset from the local folder, return_uint8, buffer 1000, no workers"
		python("peer_lerobot.py", root, 0, "--streaming")
	case "lerobot-streaming-one":
		one, err := w.Sets.Path(ctx, "av1-one")
		if err != nil {
			return a, err
		}
		a.Setting = "StreamingLeRobotDataset from the local folder, the same frames in one mp4, return_uint8, buffer 1000, no workers"
		python("peer_lerobot.py", one, 0, "--streaming")
	case "torchcodec":
		a.Setting = "Dataset over (file, frame), decoders kept open, exact seeking, uint8, " + loader
		python("peer_torchcodec.py", root, w.Workers)
	case "torchcodec-batched":
		a.Setting = "the same, a batch's frames in one sorted call a file"
		python("peer_torchcodec.py", root, w.Workers, "--batched")
	case "pyav-pool":
		a.Setting = "PyAV decodes whole episodes in " + strconv.Itoa(w.Workers) + " threads into a pool of 6, uint8"
		python("peer_pyav.py", root, w.Workers)
	case "pyav-ram":
		a.Setting = "the plain pool with all frames in RAM, warm, " + strconv.Itoa(w.Workers) + " threads, uint8"
		python("peer_pyav.py", root, w.Workers, "--ram", "--warm", "2")
	case "robomimic", "robomimic-all":
		file, err := w.Sets.HDF5(ctx)
		if err != nil {
			return failing(a, err), nil
		}
		mode := "low_dim"
		if name == "robomimic-all" {
			mode = "all"
		}
		a.Setting = "SequenceDataset, hdf5_cache_mode=" + mode + ", no workers (two cost more), one torch thread"
		python("peer_robomimic.py", root, 0, "--hdf5", file, "--cache-mode", mode)
	case "decode-floor":
		return w.decode(a, root, "random", f.count)
	case "decode-sequential":
		return w.decode(a, root, "sequential", 0)
	case "memcpy":
		ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
		if err != nil {
			return a, err
		}
		defer ds.Close()
		bytes := 0
		for i := range ds.Info().Features {
			if v := &ds.Info().Features[i]; v.Kind == robocache.KindVideo {
				bytes = 3 * v.Height * v.Width
			}
		}
		a.Setting = "limit: frames copied from random places of memory into rotating batches, " + strconv.Itoa(w.Workers) + " threads"
		a.Argv = []string{w.Tools.Self, "bench", "runner-memcpy", "--frame-bytes", strconv.Itoa(bytes), "--batch-size", strconv.Itoa(w.BatchSize), "--workers", strconv.Itoa(w.Workers), "--seconds", strconv.FormatFloat(max(w.Seconds, 1), 'g', -1, 64)}
	default:
		o, ok := ours[name]
		if !ok {
			return a, unknownName("runner", name, []string{"see --list"})
		}
		options := map[string]any{}
		for k, v := range o.options {
			options[k] = v
		}
		budget := o.budget
		if s, ok := small[f.name+"/"+name]; ok {
			budget = s.budget
			for k, v := range s.options {
				options[k] = v
			}
		}
		options["memory_budget"] = budget << 20
		a.BudgetMB = float64(budget) * (1 << 20) / 1e6
		js, err := json.Marshal(options)
		if err != nil {
			return a, err
		}
		more := []string{"--options", string(js)}
		if o.warm > 0 {
			more = append(more, "--warm", strconv.Itoa(o.warm))
		}
		if o.disk {
			more = append(more, "--disk", filepath.Dir(root))
		}
		if o.http {
			s, err := loopback.Serve(root, loopback.Options{Latency: peerLatency})
			if err != nil {
				return a, err
			}
			w.servers = append(w.servers, s)
			root = s.URL
		}
		a.Setting = o.setting + ", " + strconv.Itoa(w.Workers) + " threads, memory_budget " + strconv.Itoa(budget) + " MiB"
		python("peer_robocache.py", root, w.Workers, more...)
	}
	return a, nil
}

func (w *PeerWork) decode(a Runner, root, pattern string, count int) (Runner, error) {
	a.Setting = "limit: one thread, no loader; decoders kept open; " + pattern
	a.Argv = []string{w.Tools.Self, "bench", "runner-decode", "--pattern", pattern}
	if count > 0 {
		a.Argv = append(a.Argv, "--count", strconv.Itoa(count))
	}
	n := len(a.Argv)
	err := filepath.WalkDir(filepath.Join(root, "videos"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".mp4") {
			a.Argv = append(a.Argv, p)
		}
		return err
	})
	if err == nil && len(a.Argv) == n {
		err = &robocache.Error{Class: robocache.ErrNotFound, Op: "bench peers", Where: robocache.Where{"dataset": root}, Msg: "no .mp4 here"}
	}
	return a, err
}

// failing is a runner that says why it cannot run.
func failing(a Runner, err error) Runner {
	js, _ := json.Marshal(Outcome{Error: err.Error()})
	a.Argv = []string{"printf", "%s", string(js)}
	return a
}
