package bench

import (
	"context"
	"embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

//go:embed runners/*.py
var scripts embed.FS

// Workload is what the runners of `bench load` do. The window is Duration seconds where that is set, else Epochs whole epochs.
type Workload struct {
	URI       string `json:"uri"`
	RowsHZ    string `json:"rows_hz,omitempty"` // of rows that state no rate
	BatchSize int    `json:"batch_size"`
	Workers   int    `json:"workers"` // peers: processes; ours: threads
	Epochs    int    `json:"epochs"`  // measured, after one that is not
	Video     string `json:"video"`   // one | all | none: cameras
	Window    int    `json:"window"`  // frames and rows a window; 0 = single
	Float32   bool   `json:"float32"`
	Seed      int    `json:"seed"`

	Duration     float64 `json:"duration_s,omitempty"` // of the window, looping over epochs
	Warmup       int     `json:"warmup_batches,omitempty"`
	Prefetch     int     `json:"prefetch,omitempty"`
	Shuffle      string  `json:"shuffle,omitempty"` // global | pool | file
	Cache        string  `json:"cache,omitempty"`
	CacheBudget  string  `json:"cache_budget,omitempty"`
	MemoryBudget string  `json:"memory_budget,omitempty"`
	CacheFormat  string  `json:"cache_format,omitempty"`
	PoolSize     string  `json:"pool_size,omitempty"`
	PoolEpisodes int     `json:"pool_episodes,omitempty"`
	ImageSize    string  `json:"image_size,omitempty"` // HxW
	Episodes     string  `json:"episodes,omitempty"`   // positions, as 0-9,12
	DropLast     bool    `json:"drop_last,omitempty"`
	StepMS       float64 `json:"step_ms,omitempty"`
	Probes       int     `json:"probes,omitempty"`       // samples of the pass on one thread
	CheckFrames  int     `json:"check_frames,omitempty"` // frames to be handed over for checking

	Rank      int    `json:"rank,omitempty"`
	World     int    `json:"world,omitempty"`
	Barrier   string `json:"-"` // a folder where ranks meet
	FramesOut string `json:"-"`
	OrderOut  string `json:"-"`
}

// open opens the dataset.
func (w *Workload) open(ctx context.Context) (robocache.Dataset, error) {
	var opt robocache.OpenOptions
	if w.RowsHZ != "" {
		var err error
		if opt.HZ, err = robocache.RateOf(w.RowsHZ); err != nil {
			return nil, err
		}
	}
	return robocache.Open(ctx, w.URI, opt)
}

// args gives the workload as the runners' command line: runners/common.py and `bench runner-load` read the same flags.
func (w *Workload) args() []string {
	a := []string{w.URI, "--batch-size", strconv.Itoa(w.BatchSize), "--workers", strconv.Itoa(w.Workers), "--epochs", strconv.Itoa(w.Epochs), "--video", w.Video, "--window", strconv.Itoa(w.Window), "--seed", strconv.Itoa(w.Seed)}
	text := func(name, v string) {
		if v != "" {
			a = append(a, "--"+name, v)
		}
	}
	number := func(name string, v int) {
		if v != 0 {
			a = append(a, "--"+name, strconv.Itoa(v))
		}
	}
	real := func(name string, v float64) {
		if v != 0 {
			a = append(a, "--"+name, strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	flag := func(name string, v bool) {
		if v {
			a = append(a, "--"+name)
		}
	}
	flag("float32", w.Float32)
	real("duration", w.Duration)
	if w.Duration > 0 { // 0 batches are another thing than the default
		a = append(a, "--warmup", strconv.Itoa(w.Warmup))
	}
	number("prefetch", w.Prefetch)
	text("rows-hz", w.RowsHZ)
	text("shuffle", w.Shuffle)
	text("cache", w.Cache)
	text("cache-budget", w.CacheBudget)
	text("memory-budget", w.MemoryBudget)
	text("cache-format", w.CacheFormat)
	text("pool-size", w.PoolSize)
	number("pool-episodes", w.PoolEpisodes)
	text("image-size", w.ImageSize)
	text("episodes", w.Episodes)
	flag("drop-last", w.DropLast)
	real("step-ms", w.StepMS)
	number("probes", w.Probes)
	number("check-frames", w.CheckFrames)
	number("rank", w.Rank)
	number("world", w.World)
	text("barrier", w.Barrier)
	text("frames-out", w.FramesOut)
	text("order-out", w.OrderOut)
	return a
}

// Tools says where the runners' programs are.
type Tools struct {
	Self       string // this robocache
	Python     string // an interpreter with the peers
	PythonPath string // a folder with our package, when it is not installed
	dir        string // the unpacked scripts
}

// Unpack writes the Python runners to a temporary folder; the caller calls the function returned to remove it.
func (t *Tools) Unpack() (func(), error) {
	dir, err := os.MkdirTemp("", "robocache-bench-")
	if err != nil {
		return nil, robocache.At(err, nil)
	}
	t.dir = dir
	entries, err := scripts.ReadDir("runners")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := scripts.ReadFile("runners/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o644); err != nil {
			return nil, robocache.At(err, nil)
		}
	}
	return func() { os.RemoveAll(dir) }, nil
}

func (t *Tools) env() []string {
	env := []string{"OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1"}
	if t.PythonPath != "" {
		// Ours first; a peer that stands in a folder of its own (open3d) stays to be found.
		env = append(env, "PYTHONPATH="+strings.TrimSuffix(t.PythonPath+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), string(os.PathListSeparator)))
	}
	return env
}

// LoadRunners gives the runners by name: "engine" (the Go loader, no Python), "robocache" (into torch tensors), "lerobot".
func LoadRunners(names []string, w Workload, t Tools) ([]Runner, error) {
	var runners []Runner
	for _, n := range names {
		a := Runner{Name: n, Env: t.env()}
		switch n {
		case "engine":
			a.Setting = strconv.Itoa(w.Workers) + " threads, no Python"
			a.Argv = append([]string{t.Self, "bench", "runner-load"}, w.args()...)
		case "robocache":
			a.Setting = strconv.Itoa(w.Workers) + " threads, into torch tensors"
			a.Argv = append([]string{t.Python, filepath.Join(t.dir, "load_robocache.py")}, w.args()...)
		case "lerobot":
			a.Setting = strconv.Itoa(w.Workers) + " workers, persistent, torchcodec, return_uint8=" + strconv.FormatBool(!w.Float32) + ", one torch thread"
			a.Argv = append([]string{t.Python, filepath.Join(t.dir, "load_lerobot.py")}, w.args()...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "engine, robocache, lerobot"}
		}
		runners = append(runners, a)
	}
	return runners, nil
}

// DecodeRunners gives the runners of `bench decode`: "robocache", "ffmpeg", "torchcodec", "pyav".
func DecodeRunners(names []string, pattern string, count int, files []string, t Tools) ([]Runner, error) {
	var runners []Runner
	for _, n := range names {
		a := Runner{Name: n, Env: t.env(), Setting: "one thread, " + pattern}
		switch n {
		case "robocache":
			a.Argv = append([]string{t.Self, "bench", "runner-decode", "--pattern", pattern, "--count", strconv.Itoa(count)}, files...)
		case "ffmpeg":
			if pattern != "sequential" {
				continue // spawning a process a frame is no contest
			}
			a.Argv = append([]string{t.Python, filepath.Join(t.dir, "decode_peer.py"), n, pattern, strconv.Itoa(count)}, files...)
		case "torchcodec", "pyav":
			a.Argv = append([]string{t.Python, filepath.Join(t.dir, "decode_peer.py"), n, pattern, strconv.Itoa(count)}, files...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "robocache, ffmpeg, torchcodec, pyav"}
		}
		runners = append(runners, a)
	}
	return runners, nil
}
