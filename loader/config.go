package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// Options that name keys.
type (
	Delta       = options.Delta
	Deltas      = options.Deltas
	Index       = options.Index
	Indices     = options.Indices
	Bytes       = options.Bytes
	Window      = options.Window
	Windows     = options.Windows
	Normalize   = options.Normalize
	Norm        = options.Norm
	Augment     = options.Augment
	RandomCrop  = options.RandomCrop
	ColorJitter = options.ColorJitter
	HFlip       = options.HFlip
	Noise       = options.Noise
	Spread      = options.Spread
	Amounts     = options.Amounts
)

// Allocator is where the memory of batches comes from: page-locked, say, so that a GPU copies from it.
type Allocator = buffers.Allocator

// Config says what a Loader or a Map gives. Its JSON keys are the keyword names of the Python client; every field may be left out.
type Config struct {
	// Which samples, and in what order (Loader only, but for Episodes and Drop…).
	Episodes  []int   `json:"episodes,omitempty"`            // positions; nil = all. Rows come in file order, whatever the order of this list
	Split     string  `json:"split,omitempty"`               // of the dataset, in place of episodes; "": train (training) where there is one, robocache.SplitAll: all
	DropFirst int     `json:"drop_n_first_frames,omitempty"` // anchors left out at the start of each episode
	DropTail  int     `json:"drop_n_last_frames,omitempty"`  // and at its end
	BatchSize int     `json:"batch_size,omitempty"`
	Shuffle   Shuffle `json:"shuffle,omitempty"`
	Seed      int64   `json:"seed,omitempty"`
	// Of shuffle="pool": what the order is made for. PoolSize is bytes of resident frames; default half of memory_budget.
	PoolSize     Bytes  `json:"pool_size,omitempty"`
	PoolEpisodes int64  `json:"pool_episodes,omitempty"` // and at most so many resident episodes; 0 = no bound
	PoolShards   int    `json:"pool_shards,omitempty"`   // the order's own shards; 0 = by the episodes, never by world_size
	DropLast     bool   `json:"drop_last,omitempty"`     // drop the rest of the epoch's last global batch
	Uneven       string `json:"uneven,omitempty"`        // the last step with several ranks: "wrap" (default) to the epoch's first samples, or "short" batches
	Rank         int    `json:"rank,omitempty"`
	WorldSize    int    `json:"world_size,omitempty"`

	// What a sample holds.
	Keys            []string        `json:"keys,omitempty"`               // nil = all; columns, cameras and bytes of others are not touched
	Deltas          Deltas          `json:"delta_timestamps,omitempty"`   // windows: offsets in seconds a key
	Indices         Indices         `json:"delta_indices,omitempty"`      // windows: offsets in rows a key
	Windows         Windows         `json:"windows,omitzero"`             // windows at a stream's own rate: offsets, or all samples of a span
	Anchor          string          `json:"anchor,omitempty"`             // the stream whose rows are samples; "": the dataset's own rows (Info.Clock)
	Hz              *robocache.Rate `json:"hz,omitempty"`                 // samples lie on a uniform timeline an episode
	Align           *align.Config   `json:"align,omitempty"`              // how: the keywords of Episode.align
	Tolerance       *float64        `json:"tolerance_s,omitempty"`        // set: offsets and frame times are checked against it; nil: offsets against 1e-4 s
	OffsetTolerance *float64        `json:"offset_tolerance_s,omitempty"` // of offsets alone; nil: Tolerance, or 1e-4 s
	Compat          string          `json:"compat,omitempty"`             // "" or "lerobot": dtypes and shapes of LeRobot's class

	// Frames and values.
	ImageDType  string `json:"image_dtype,omitempty"`  // "uint8" | "float32"; default uint8, with compat float32
	ImageSize   []int  `json:"image_size,omitempty"`   // [h, w]; scaled in the decode pass
	ImageResize Resize `json:"image_resize,omitempty"` // "stretch" (default), "letterbox", "crop"
	// Augment: seeded changes of images and numbers (Loader only).
	Augment   *Augment  `json:"augment,omitempty"`
	DepthUnit string    `json:"depth_unit,omitempty"` // of depth: "mm" (default) | "m": float32, but for uint16 that is kept in it; "code": uint16 as stored
	Normalize Normalize `json:"normalize,omitzero"`

	// ComputeStats: what is normalised without vectors or Stats is so by statistics over the selected episodes, computed at opening.
	ComputeStats bool            `json:"compute_stats,omitempty"`
	Stats        robocache.Stats `json:"-"` // in place of the dataset's own, by the batch's key
	Log          func(string)    `json:"-"` // hears of what opening does that takes a while or was not asked for
	// Raw: tensors hold what was stored; casts, normalisation and interpolation are left to a device (Loader only, see Finish).
	Raw bool `json:"raw,omitempty"`

	// How.
	Threads      int       `json:"threads,omitempty"`       // default: the cores
	Prefetch     int       `json:"prefetch,omitempty"`      // batches of one decode horizon; default 4
	MemoryBudget Bytes     `json:"memory_budget,omitempty"` // default 4 GiB
	OnBadEpisode string    `json:"on_bad_episode,omitempty"`
	Memory       Allocator `json:"-"` // of batches; nil: anonymous mappings

	// Mixtures (NewMix).
	Temperature float64 `json:"temperature,omitempty"` // shares ∝ (weight, or size)^(1/temperature); default 1
	Stop        Stop    `json:"stop,omitempty"`        // an epoch ends when the "first" source, or "all", have given all their samples; default: after the sum of the sizes
	EpochSize   int64   `json:"epoch_size,omitempty"`  // or after so many samples
	Stratified  bool    `json:"stratified,omitempty"`  // each global batch has its exact shares
	Missing     string  `json:"missing,omitempty"`     // keys that a source lacks, and numbers that its rows lack beside wider ones: "error" (default) or "pad"

	Cache       string `json:"cache,omitempty"`        // "": none; "ram": decoded frames stay in memory; else a directory for them
	CacheBudget Bytes  `json:"cache_budget,omitempty"` // default: "ram" half of memory_budget, a directory 64 GiB
	CacheFormat string `json:"cache_format,omitempty"` // "auto", "yuv" (planes), "rgb" (pixels as in the batch), "encoded" (what was read of remote files)
	IOThreads   int    `json:"io_threads,omitempty"`   // reads of remote files at once; default 32
	// Deadline: a batch of which no part comes for so many seconds is an error that says what is missing. Default 300; below 0: none.
	Deadline float64 `json:"deadline_s,omitempty"`
}

// ParseConfig reads the JSON of a Config. An unknown key is Misuse and names the nearest known one.
func ParseConfig(text []byte) (Config, error) {
	var c Config
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return c, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "the configuration is not a JSON object", Err: err}
	}
	known := configKeys()
	for k := range raw {
		if !slices.Contains(known, k) {
			return c, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "unknown option " + k, Hint: nearest(k, known)}
		}
	}
	if a := raw["align"]; len(a) > 0 && string(a) != "null" {
		if _, err := align.ParseConfig(a); err != nil { // names unknown keywords, which plain JSON passes over
			return c, err
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		var e *robocache.Error
		if errors.As(err, &e) {
			return c, e
		}
		return c, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: err.Error()}
	}
	return c, nil
}

// configKeys are the names of the options: those of the fields' tags.
func configKeys() []string {
	var out []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// check fills in defaults and refuses what cannot be.
func (c *Config) check(batches bool) error {
	if c.BatchSize == 0 {
		c.BatchSize = 64
	}
	if c.WorldSize == 0 {
		c.WorldSize = 1
	}
	if c.Threads == 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.Prefetch == 0 {
		c.Prefetch = 4
	}
	if c.MemoryBudget == 0 {
		c.MemoryBudget = 4 << 30
	}
	if c.OnBadEpisode == "" {
		c.OnBadEpisode = "error"
	}
	if c.PoolSize == 0 {
		c.PoolSize = c.MemoryBudget / 2
	}
	if c.Uneven == "" {
		c.Uneven = "wrap"
	}
	if c.ImageDType == "" {
		c.ImageDType = "uint8"
		if c.Compat == "lerobot" {
			c.ImageDType = "float32"
		}
	}
	if c.Deadline == 0 {
		c.Deadline = 300
	}
	if c.DepthUnit == "" {
		c.DepthUnit = "mm"
	}
	switch {
	case c.BatchSize < 0 || c.BatchSize > 1<<24:
		return misuse("batch_size", "1 to 2^24", fmt.Sprint(c.BatchSize))
	case c.WorldSize < 0 || c.WorldSize > 1<<20:
		return misuse("world_size", "1 to 2^20", fmt.Sprint(c.WorldSize))
	case c.Rank < 0 || c.Rank >= c.WorldSize:
		return outOfRange("rank", c.WorldSize, c.Rank)
	case c.Threads < 0 || c.Threads > 4096:
		return misuse("threads", "1 to 4096", fmt.Sprint(c.Threads))
	case c.Prefetch < 0 || c.Prefetch > 1<<16:
		return misuse("prefetch", "1 to 65536 batches", fmt.Sprint(c.Prefetch))
	case c.MemoryBudget < 0:
		return misuse("memory_budget", "bytes above 0", fmt.Sprint(int64(c.MemoryBudget)))
	case c.PoolSize < 0:
		return misuse("pool_size", "bytes above 0", fmt.Sprint(int64(c.PoolSize)))
	case c.PoolEpisodes < 0:
		return misuse("pool_episodes", "0 or more", fmt.Sprint(c.PoolEpisodes))
	case c.PoolShards < 0 || c.PoolShards > order.MaxShards:
		return misuse("pool_shards", fmt.Sprintf("1 to %d", order.MaxShards), fmt.Sprint(c.PoolShards))
	case c.Uneven != "wrap" && c.Uneven != "short":
		return misuse("uneven", `"wrap" or "short"`, c.Uneven)
	case c.OnBadEpisode != "error" && c.OnBadEpisode != "skip":
		return misuse("on_bad_episode", `"error" or "skip"`, c.OnBadEpisode)
	case c.ImageDType != "uint8" && c.ImageDType != "float32":
		return misuse("image_dtype", `"uint8" or "float32"`, c.ImageDType)
	case c.Compat != "" && c.Compat != "lerobot":
		return misuse("compat", `"" or "lerobot"`, c.Compat)
	case c.DepthUnit != "mm" && c.DepthUnit != "m" && c.DepthUnit != "code":
		return misuse("depth_unit", `"mm", "m" or "code"`, c.DepthUnit)
	case len(c.ImageSize) != 0 && (len(c.ImageSize) != 2 || c.ImageSize[0] < 1 || c.ImageSize[1] < 1 || c.ImageSize[0] > 1<<15 || c.ImageSize[1] > 1<<15):
		return misuse("image_size", "[height, width], each 1 to 32768", fmt.Sprint(c.ImageSize))
	case c.OffsetTolerance != nil && !(*c.OffsetTolerance > 0):
		return misuse("offset_tolerance_s", "seconds above 0", fmt.Sprint(*c.OffsetTolerance))
	case c.Tolerance != nil && !(*c.Tolerance > 0):
		return misuse("tolerance_s", "seconds above 0", fmt.Sprint(*c.Tolerance))
	case c.DropFirst < 0 || c.DropTail < 0:
		return misuse("drop_n_first_frames, drop_n_last_frames", "0 or more", fmt.Sprint(c.DropFirst, c.DropTail))
	}
	if c.Deadline > 0 && (c.Deadline < 1e-3 || c.Deadline > 1e9) { // beyond, the timer's duration is zero or wraps
		return misuse("deadline_s", "0.001 to 1e9 seconds, or below 0 for none", fmt.Sprint(c.Deadline))
	}
	if err := c.Normalize.Check(); err != nil {
		return err
	}
	if err := c.checkResize(); err != nil {
		return err
	}
	if !c.Shuffle.Known() {
		return misuse("shuffle", `"global", "pool" or false`, string(c.Shuffle))
	}
	if !batches && c.Cache != "" {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "map", Msg: "a cache of single items", Hint: "Loader has caches"}
	}
	if !batches && c.Augment != nil {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "map", Msg: "augment: its draws go by the epoch, and items have none", Hint: "Loader has augment"}
	}
	if err := c.checkCache(); err != nil {
		return err
	}
	if c.Hz != nil {
		a := align.Config{}
		if c.Align != nil {
			a = *c.Align
		}
		if !a.HZ.Zero() && a.HZ != *c.Hz {
			return misuse("align", "the hz of hz= ("+c.Hz.String()+")", a.HZ.String())
		}
		a.HZ = *c.Hz
		c.Align = &a
	}
	return c.checkAlign()
}

func outOfRange(option string, world, got int) error {
	return misuse(option, fmt.Sprintf("0 to %d (world_size is %d)", world-1, world), fmt.Sprint(got))
}

// What options says of values that cannot be.
var (
	misuse  = options.Misuse
	clip    = options.Clip
	nearest = robocache.Nearest
)
