package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// LoadRun runs the workload through the Go loader in this process: the engine without Python. With a window of seconds it says on
// marks when the window opens and closes.
func LoadRun(ctx context.Context, w Workload, marks io.Writer) (Outcome, error) {
	if w.Duration > 0 {
		return loadWindow(ctx, w, marks)
	}
	start := time.Now()
	ds, err := w.open(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer ds.Close()
	cfg, err := w.config(ds.Info())
	if err != nil {
		return Outcome{}, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return Outcome{}, err
	}
	defer ld.Close()
	o := Outcome{OpenS: time.Since(start).Seconds()}

	begin := time.Now()
	if _, err := epoch(ctx, ld, func(b *loader.Batch) {
		if o.FirstBatchS == 0 {
			o.FirstBatchS = time.Since(begin).Seconds()
		}
	}); err != nil {
		return o, err
	}
	o.PSSPeakMB = selfPSSMB()

	order := sha256.New()
	distinct, full := 0.0, 0
	before := ld.Stats()
	cpu, begin := selfCPU(), time.Now()
	for range w.Epochs {
		n, err := epoch(ctx, ld, func(b *loader.Batch) {
			logOrder(order, b.Indices)
			if b.Rows == w.BatchSize {
				distinct += distinctEpisodes(b)
				full++
			}
		})
		if err != nil {
			return o, err
		}
		o.Samples += n
	}
	o.Seconds, o.CPUSeconds = time.Since(begin).Seconds(), selfCPU()-cpu
	after := ld.Stats()
	o.Decoded, o.Delivered = after.FramesDecoded-before.FramesDecoded, after.Frames-before.Frames
	o.OrderSHA256 = hex.EncodeToString(order.Sum(nil))
	if full > 0 {
		o.DistinctFrac = distinct / float64(full)
	}
	lengths := make([]int, ds.Info().Episodes)
	for i := range lengths {
		lengths[i] = ds.Len(i)
	}
	o.IdealFrac = IdealDistinct(lengths, w.BatchSize)
	return o, nil
}

func epoch(ctx context.Context, ld *loader.Loader, each func(*loader.Batch)) (int64, error) {
	var n int64
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		each(b)
		n += int64(b.Rows)
		b.Release()
	}
}

func logOrder(h hash.Hash, indices []int64) {
	var b [8]byte
	for _, i := range indices {
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		h.Write(b[:])
	}
}

func distinctEpisodes(b *loader.Batch) float64 {
	t := b.Tensor("episode_index")
	if t == nil {
		return math.NaN()
	}
	seen := map[uint64]bool{}
	for i := range b.Rows {
		seen[binary.LittleEndian.Uint64(t.Data[8*i:])] = true
	}
	return float64(len(seen)) / float64(b.Rows)
}

// IdealDistinct is the share of distinct episodes in a batch drawn from a perfect shuffle: Σ_e [1 − C(N−n_e,B)/C(N,B)] / B.
func IdealDistinct(lengths []int, batch int) float64 {
	n := 0
	for _, l := range lengths {
		n += l
	}
	batch = min(batch, n)
	if batch == 0 {
		return 0
	}
	total := 0.0
	for _, l := range lengths {
		miss := 1.0
		for i := range batch {
			miss *= math.Max(0, float64(n-l-i)) / float64(n-i)
		}
		total += 1 - miss
	}
	return total / float64(batch)
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
