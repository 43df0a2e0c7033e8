package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// Workload is the job of a runner. The runner receives it as a JSON object, its only argument, and
// ignores the fields of other kinds of runners.
type Workload struct {
	URI       string `json:"uri"`
	RowsHZ    string `json:"rows_hz,omitempty"` // rate of the rows, for datasets that state none
	BatchSize int    `json:"batch_size"`
	Workers   int    `json:"workers"` // worker processes of peers; threads of RoboCache
	Epochs    int    `json:"epochs"`  // measured epochs, after the warm-up epochs
	Video     string `json:"video"`   // one | all | none: which cameras
	Window    int    `json:"window"`  // number of frames and rows in a window; 0 means single rows
	Seed      int    `json:"seed"`

	Warm int `json:"warm,omitempty"` // warm-up epochs; 0 means one
	// minimum duration; more epochs are measured until it is reached
	Seconds float64 `json:"seconds,omitempty"`

	// duration of the window, which then replaces Epochs and may contain many epochs
	Duration     float64 `json:"duration_s,omitempty"`
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
	Episodes     string  `json:"episodes,omitempty"`   // for example 0-9,12
	DropLast     bool    `json:"drop_last,omitempty"`
	// cpu | cuda: target device of load_robocache.py
	Device       string  `json:"device,omitempty"`
	Decode       string  `json:"decode,omitempty"` // cpu | gpu | auto
	DeviceMemory string  `json:"device_memory_budget,omitempty"`
	StepMS       float64 `json:"step_ms,omitempty"`
	Probes       int     `json:"probes,omitempty"` // samples of the single-threaded pass
	// number of delivered frames that are saved for checking
	CheckFrames int `json:"check_frames,omitempty"`

	Rank      int    `json:"rank,omitempty"`
	World     int    `json:"world,omitempty"`
	Barrier   string `json:"barrier,omitempty"` // a folder where the ranks synchronize
	FramesOut string `json:"frames_out,omitempty"`
	OrderOut  string `json:"order_out,omitempty"`

	// Trajectories are resampled to Rows rows at the rate HZ (load_sequences.py).
	HZ   float64 `json:"hz,omitempty"`
	Rows int     `json:"rows,omitempty"`

	Files []string `json:"files,omitempty"` // decode only
	// decode only: sequential (every frame of every file) or random (Count single frames)
	Pattern string         `json:"pattern,omitempty"`
	Count   int            `json:"count,omitempty"` // decode only: number of frames
	Bytes   int            `json:"bytes,omitempty"` // memcpy only: size of a frame
	Resume  *Resume        `json:"resume,omitempty"`
	More    map[string]any `json:"more,omitempty"` // options of a single Python runner
	Train   *TrainJob      `json:"train,omitempty"`
}

// Serve runs a job of the given kind in this process and prints its Outcome as the last line. The
// harness starts a process that calls it.
func Serve(ctx context.Context, kind, job string, out io.Writer) error {
	run, ok := map[string]func(context.Context, Workload, io.Writer) (Outcome, error){
		"load":   LoadRun,
		"decode": DecodeRun, "memcpy": CopyRun, "read": ReadRun, "resume": ResumeRun,
	}[kind]
	if !ok {
		return robocache.Misuse("run", nil, "no job of kind %s", kind)
	}
	var w Workload
	if err := json.Unmarshal([]byte(job), &w); err != nil {
		return robocache.Misuse("run", nil, "the job").WithCause(err)
	}
	o, err := run(ctx, w, out)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

// openDataset opens the dataset of the workload.
func (w *Workload) openDataset(ctx context.Context) (_ robocache.Dataset, err error) {
	var opt robocache.OpenOptions
	if w.RowsHZ != "" {
		if opt.HZ, err = robocache.RateOf(w.RowsHZ); err != nil {
			return nil, err
		}
	}
	return robocache.Open(ctx, w.URI, opt)
}

// loaderConfig returns the loader configuration of the workload, with the feature names of the
// dataset. It uses the JSON form that Python passes, so that an unknown option is rejected by name.
func (w *Workload) loaderConfig(info *robocache.Info) (_ loader.Config, err error) {
	c := map[string]any{
		"batch_size":  w.BatchSize,
		"shuffle":     loader.Global,
		"seed":        w.Seed,
		"threads":     w.Workers,
		"image_dtype": "uint8",
		"split":       robocache.SplitAll,
		"drop_last":   w.DropLast,
	}
	if w.World > 1 {
		c["rank"], c["world_size"] = w.Rank, w.World
	}
	if w.Duration > 0 {
		c["on_bad_episode"] = "skip" // skipped episodes are counted in skipped_episodes
	}
	for name, v := range map[string]any{
		"prefetch":      w.Prefetch,
		"cache":         w.Cache,
		"cache_budget":  w.CacheBudget,
		"memory_budget": w.MemoryBudget, "cache_format": w.CacheFormat,
		"decode": w.Decode, "device_memory_budget": w.DeviceMemory,
		"pool_size": w.PoolSize, "pool_episodes": w.PoolEpisodes, "shuffle": w.Shuffle,
	} {
		if v != "" && v != 0 {
			c[name] = v
		}
	}
	if w.Shuffle == "file" {
		c["shuffle"] = false
	}
	misuse := func(option, want, got string) error {
		return robocache.Misuse("", nil, "%s", option).Expected(want, got)
	}
	if w.ImageSize != "" {
		var high, wide int
		if _, err := fmt.Sscanf(w.ImageSize, "%dx%d", &high, &wide); err != nil {
			return loader.Config{}, misuse("--image-size", "HxW, as 224x224", w.ImageSize)
		}
		c["image_size"] = []int{high, wide}
	}
	if !slices.Contains([]string{"one", "all", "none"}, w.Video) {
		return loader.Config{}, misuse("--video", "one, all or none", w.Video)
	}
	if w.Episodes != "" {
		parseEpisodes, err := ParseEpisodes(info, w.Episodes)
		if err != nil {
			return loader.Config{}, err
		}
		c["episodes"] = info.EpisodeIndices(parseEpisodes)
	}
	var offsets []float64
	for i := range w.Window {
		offsets = append(offsets, float64(i)/info.FPS.Float())
	}
	var keys []string
	var deltas loader.Deltas
	cameras := w.selectedCameras(info)
	for _, f := range info.Features {
		if f.Kind == robocache.KindVideo && !slices.Contains(cameras, f.Key) {
			continue
		}
		keys = append(keys, f.Key)
		if offsets != nil && (f.Kind == robocache.KindVideo || isWindowed(f.Key)) {
			deltas = append(deltas, loader.Delta{Key: f.Key, Offsets: offsets})
		}
	}
	if c["keys"] = keys; deltas != nil {
		c["delta_timestamps"] = deltas
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		return loader.Config{}, err
	}
	return loader.ParseConfig(encoded)
}

// isWindowed reports whether a stream without frames is delivered as windows.
func isWindowed(key string) bool { return key == "observation.state" || key == "action" }

// selectedCameras returns the video keys that the workload loads.
func (w *Workload) selectedCameras(info *robocache.Info) []string {
	var keys []string
	for i := range info.Features {
		if f := &info.Features[i]; f.Kind == robocache.KindVideo &&
			(w.Video == "all" || w.Video == "one" && len(keys) == 0) {
			keys = append(keys, f.Key)
		}
	}
	return keys
}

// rowBytes returns the bytes of the rows of a sample, without frames.
func (w *Workload) rowBytes(info *robocache.Info) (n float64) {
	for _, f := range info.Features {
		each := float64(f.RowBytes())
		if w.Window > 0 && isWindowed(f.Key) {
			each *= float64(w.Window)
		}
		n += each
	}
	return n
}

// episodePositions returns the positions of the selected episodes, in ascending order.
func (w *Workload) episodePositions(info *robocache.Info) ([]int, error) {
	if w.Episodes != "" {
		return ParseEpisodes(info, w.Episodes)
	}
	all := make([]int, info.Episodes)
	for i := range all {
		all[i] = i
	}
	return all, nil
}

// ParseEpisodes parses indices such as 0-3,7. It returns the positions of these episodes in
// ascending order, without duplicates.
func ParseEpisodes(info *robocache.Info, text string) ([]int, error) {
	positions, err := info.ParseEpisodes(text)
	slices.Sort(positions)
	return slices.Compact(positions), err
}

// ChooseEpisodes returns a seeded random choice of limit positions, in ascending order. It returns
// all positions if limit ≤ 0.
func ChooseEpisodes(list []int, limit int, seed uint64) []int {
	if limit <= 0 || limit >= len(list) {
		return list
	}
	// "caped": a different random stream than that of the order
	rng := rand.New(rand.NewPCG(seed, 0x6361706564))
	out := slices.Clone(list)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	out = out[:limit]
	slices.Sort(out)
	return out
}
