package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

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

	Warm    int     `json:"warm,omitempty"`    // epochs that are not measured; 0: one
	Seconds float64 `json:"seconds,omitempty"` // more epochs, until they fill so many

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

// args gives the workload as the runners' command line: runners/common.py and `bench run-load` read the same flags.
func (w *Workload) args() []string {
	a := []string{w.URI, "--batch-size", strconv.Itoa(w.BatchSize), "--workers", strconv.Itoa(w.Workers), "--epochs", strconv.Itoa(w.Epochs), "--video", w.Video, "--window", strconv.Itoa(w.Window), "--seed", strconv.Itoa(w.Seed)}
	if w.Duration > 0 { // 0 batches are another thing than the default
		a = append(a, "--warmup", strconv.Itoa(w.Warmup))
	}
	for _, f := range []struct {
		name  string
		value any
	}{
		{"float32", w.Float32}, {"duration", w.Duration}, {"warm", w.Warm}, {"seconds", w.Seconds}, {"prefetch", w.Prefetch}, {"rows-hz", w.RowsHZ}, {"shuffle", w.Shuffle}, {"cache", w.Cache},
		{"cache-budget", w.CacheBudget}, {"memory-budget", w.MemoryBudget}, {"cache-format", w.CacheFormat}, {"pool-size", w.PoolSize}, {"pool-episodes", w.PoolEpisodes}, {"image-size", w.ImageSize},
		{"episodes", w.Episodes}, {"drop-last", w.DropLast}, {"step-ms", w.StepMS}, {"probes", w.Probes}, {"check-frames", w.CheckFrames}, {"rank", w.Rank}, {"world", w.World}, {"barrier", w.Barrier},
		{"frames-out", w.FramesOut}, {"order-out", w.OrderOut},
	} {
		switch v := f.value.(type) {
		case bool:
			if v {
				a = append(a, "--"+f.name)
			}
		default:
			if text := fmt.Sprint(v); text != "" && text != "0" {
				a = append(a, "--"+f.name, text)
			}
		}
	}
	return a
}

// config turns the workload into the loader's configuration, with the dataset's own names. It goes through the JSON that Python
// gives, so that an option that this loader does not know is refused by name.
func (w *Workload) config(info *robocache.Info) (loader.Config, error) {
	set, err := w.options(info)
	if err != nil {
		return loader.Config{}, err
	}
	text, err := json.Marshal(set)
	if err != nil {
		return loader.Config{}, err
	}
	return loader.ParseConfig(text)
}

func (w *Workload) options(info *robocache.Info) (map[string]any, error) {
	c := map[string]any{"batch_size": w.BatchSize, "shuffle": loader.Global, "seed": w.Seed, "threads": w.Workers, "image_dtype": "uint8", "split": robocache.SplitAll}
	if w.Float32 {
		c["image_dtype"] = "float32"
	}
	switch w.Shuffle {
	case "", "global":
	case "file":
		c["shuffle"] = false
	default:
		c["shuffle"] = w.Shuffle
	}
	put := func(name string, set bool, v any) {
		if set {
			c[name] = v
		}
	}
	put("prefetch", w.Prefetch > 0, w.Prefetch)
	put("cache", w.Cache != "", w.Cache)
	put("cache_budget", w.CacheBudget != "", w.CacheBudget)
	put("memory_budget", w.MemoryBudget != "", w.MemoryBudget)
	put("cache_format", w.CacheFormat != "", w.CacheFormat)
	put("pool_size", w.PoolSize != "", w.PoolSize)
	put("pool_episodes", w.PoolEpisodes > 0, w.PoolEpisodes)
	put("drop_last", w.DropLast, true)
	put("rank", w.World > 1, w.Rank)
	put("world_size", w.World > 1, w.World)
	put("on_bad_episode", w.Duration > 0, "skip") // counted: skipped_episodes
	if w.ImageSize != "" {
		var h, wide int
		if _, err := fmt.Sscanf(w.ImageSize, "%dx%d", &h, &wide); err != nil {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "--image-size", Want: "HxW, as 224x224", Got: w.ImageSize}
		}
		c["image_size"] = []int{h, wide}
	}
	if w.Episodes != "" {
		list, err := ParseEpisodes(w.Episodes)
		if err != nil {
			return nil, err
		}
		c["episodes"] = list
	}
	var offsets []float64
	for i := range w.Window {
		offsets = append(offsets, float64(i)/info.FPS.Float())
	}
	var keys []string
	var deltas loader.Deltas
	cameras := w.cameras(info)
	for i := range info.Features {
		f := &info.Features[i]
		windowed := f.Key == "observation.state" || f.Key == "action"
		if f.Kind == robocache.KindVideo {
			if !slices.Contains(cameras, f.Key) {
				continue
			}
			windowed = true
		}
		keys = append(keys, f.Key)
		if windowed && offsets != nil {
			deltas = append(deltas, loader.Delta{Key: f.Key, Offsets: offsets})
		}
	}
	c["keys"] = keys
	put("delta_timestamps", deltas != nil, deltas)
	switch w.Video {
	case "one", "all", "none":
	default:
		return c, &robocache.Error{Class: robocache.ErrMisuse, Msg: "--video", Want: "one, all or none", Got: w.Video}
	}
	return c, nil
}

// cameras are the video keys that the workload wants.
func (w *Workload) cameras(info *robocache.Info) []string {
	var keys []string
	for i := range info.Features {
		if f := &info.Features[i]; f.Kind == robocache.KindVideo && (w.Video == "all" || w.Video == "one" && len(keys) == 0) {
			keys = append(keys, f.Key)
		}
	}
	return keys
}

// episodes are the positions that the workload takes, ascending.
func (w *Workload) episodes(info *robocache.Info) ([]int, error) {
	if w.Episodes != "" {
		return ParseEpisodes(w.Episodes)
	}
	all := make([]int, info.Episodes)
	for i := range all {
		all[i] = i
	}
	return all, nil
}
