package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// Allocator is where the memory of batches comes from: page-locked, say, so that a GPU copies from it.
type Allocator = buffers.Allocator

// Uneven says what the last step of an epoch is with several ranks.
type Uneven string

const (
	Wrap  Uneven = "wrap"  // it goes round to the epoch's first samples; default
	Short Uneven = "short" // its batches are short
)

// OnBad says what an episode that cannot be read does.
type OnBad string

const (
	Fail OnBad = "error" // it ends the epoch with an error; default
	Skip OnBad = "skip"  // it is left out, and counted (L13)
)

// Compat says whose dtypes and shapes batches have.
type Compat string

// LeRobot is the compatibility with LeRobot's class; "" are the dataset's own types.
const LeRobot Compat = "lerobot"

// DType selects the delivered type of float64 values.
type DType string

const (
	DTypeKeep    DType = "keep"    // they stay as stored; default
	DTypeFloat32 DType = "float32" // they are delivered as float32; default of the Python Loader
)

// ImageDType is the type of colour frames.
type ImageDType string

const (
	Uint8   ImageDType = "uint8"   // default
	Float32 ImageDType = "float32" // 0 to 1; default with Compat LeRobot
)

// DepthUnit says what depth becomes.
type DepthUnit string

const (
	Millimetres DepthUnit = "mm"   // float32, but for uint16 that is kept in it; default
	Metres      DepthUnit = "m"    // float32
	Codes       DepthUnit = "code" // uint16 as stored
)

// CacheFormat says what a cache holds.
type CacheFormat string

const (
	CacheAuto    CacheFormat = "auto"    // default
	CachePlanes  CacheFormat = "yuv"     // the decoder's planes
	CachePixels  CacheFormat = "rgb"     // pixels as in the batch
	CacheEncoded CacheFormat = "encoded" // what was read of remote files
)

// Missing selects what becomes of a key that a source of a mixture or an episode lacks, and of the
// numbers that rows lack if other sources have wider ones.
type Missing string

const (
	MissingError Missing = "error" // an error; default
	MissingPad   Missing = "pad"   // zeros under a mask
)

// Decode says on what video is decoded.
type Decode string

const (
	DecodeCPU  Decode = "cpu"  // default
	DecodeAuto Decode = "auto" // on both: a group goes to the device where that has room, else to a core
	DecodeGPU  Decode = "gpu"  // on the device what it decodes exactly; an error where there is none
)

// Config says what a Loader or a Map gives. Its JSON is one flat object, whose keys are the keyword names of the Python client; every field may be left out.
type Config struct {
	Order
	Windows
	Frames
	Device
	Memory

	Log func(string) `json:"-"` // hears of what opening does that takes a while or was not asked for
}

// Order says which samples there are, in what order, and who gives them (Loader only, but for Episodes, Split and Drop…).
type Order struct {
	Episodes  []int         `json:"episodes,omitempty"`            // indices; nil = all. Rows come in file order, whatever the order of this list
	Split     string        `json:"split,omitempty"`               // of the dataset, in place of episodes; "": train (training) where there is one, robocache.SplitAll: all
	DropFirst int           `json:"drop_n_first_frames,omitempty"` // anchors left out at the start of each episode
	DropTail  int           `json:"drop_n_last_frames,omitempty"`  // and at its end
	BatchSize int           `json:"batch_size,omitempty"`          // default 64
	Shuffle   order.Shuffle `json:"shuffle,omitempty"`
	Seed      int64         `json:"seed,omitempty"`
	PoolOrder
	DropLast     bool   `json:"drop_last,omitempty"` // drop the rest of the epoch's last global batch
	Uneven       Uneven `json:"uneven,omitempty"`
	Rank         int    `json:"rank,omitempty"`
	WorldSize    int    `json:"world_size,omitempty"`
	OnBadEpisode OnBad  `json:"on_bad_episode,omitempty"`
	OnNaN        OnNaN  `json:"on_nan,omitempty"`
	Mixture
}

// PoolOrder states how much is resident under shuffle="pool". The order is made for it.
type PoolOrder struct {
	PoolSize     Bytes `json:"pool_size,omitempty"`     // bytes of resident frames; default half of memory_budget
	PoolEpisodes int64 `json:"pool_episodes,omitempty"` // and at most so many resident episodes; 0 = no bound
	PoolShards   int   `json:"pool_shards,omitempty"`   // the order's own shards; 0 = by the episodes, never by world_size
}

// Mixture states how several datasets are mixed (NewMix).
type Mixture struct {
	// Temperature t makes the shares proportional to (weight, or size)^(1/t); default 1.
	Temperature float64 `json:"temperature,omitempty"`
	// Stop ends an epoch when the "first" source, or "all", have given all their samples; default: after the sum of
	// the sizes.
	Stop       order.Stop `json:"stop,omitempty"`
	EpochSize  int64      `json:"epoch_size,omitempty"` // number of samples after which an epoch ends
	Stratified bool       `json:"stratified,omitempty"` // each global batch has its exact shares
}

// Windows says what a sample holds.
type Windows struct {
	Keys            []string        `json:"keys,omitempty"`               // nil = all; columns, cameras and bytes of others are not touched
	Deltas          Deltas          `json:"delta_timestamps,omitempty"`   // windows: offsets in seconds a key
	Indices         Indices         `json:"delta_indices,omitempty"`      // windows: offsets in rows a key
	Native          NativeWindows   `json:"windows,omitzero"`             // windows at a stream's own rate: offsets, or all samples of a span
	Anchor          string          `json:"anchor,omitempty"`             // the stream whose rows are samples; "": the dataset's own rows (Info.Clock)
	Hz              *robocache.Rate `json:"hz,omitempty"`                 // samples lie on a uniform timeline an episode
	Align           *align.Config   `json:"align,omitempty"`              // how: the keywords of Episode.align
	Tolerance       *float64        `json:"tolerance_s,omitempty"`        // set: offsets and frame times are checked against it; nil: offsets against 1e-4 s
	OffsetTolerance *float64        `json:"offset_tolerance_s,omitempty"` // of offsets alone; nil: Tolerance, or 1e-4 s
	Compat          Compat          `json:"compat,omitempty"`
	DType           DType           `json:"dtype,omitempty"` // of float64 streams; timestamps of formats other than LeRobot stay float64
	Missing         Missing         `json:"missing,omitempty"`
}

// Frames says what becomes of decoded frames.
type Frames struct {
	ImageDType  ImageDType `json:"image_dtype,omitempty"`
	ImageSize   []int      `json:"image_size,omitempty"` // [h, w]; scaled in the decode pass
	ImageResize Resize     `json:"image_resize,omitempty"`
	Augment     *Augment   `json:"augment,omitempty"` // seeded changes of images and numbers (Loader only)
	DepthUnit   DepthUnit  `json:"depth_unit,omitempty"`
}

// Device says what is computed with values, and where.
type Device struct {
	Normalize Normalize `json:"normalize,omitzero"`
	// ComputeStats: what is normalised without vectors or Stats is so by statistics over the selected episodes, computed at opening.
	ComputeStats bool            `json:"compute_stats,omitempty"`
	Stats        robocache.Stats `json:"-"` // in place of the dataset's own, by the batch's key
	// Raw: tensors hold what was stored; casts, normalisation and interpolation are left to a device (Loader only, see Finish).
	Raw bool `json:"raw,omitempty"`
	// Decode: on what video is decoded. A device takes the streams whose frames come out there to the bit as on the host; Stats says why others stay.
	Decode       Decode `json:"decode,omitempty"`
	DecodeDevice int    `json:"decode_device,omitempty"` // the driver's number of it
	// DeviceMemory: of a pool, what frames that it decoded may take of the device's memory; default: what they may take of the host's. What has no room there
	// is kept on the host. Of a cache on the device, and a pool beside it, all that they may take.
	DeviceMemory Bytes `json:"device_memory_budget,omitempty"`
}

// Memory says what a loader may take of the machine, and what it keeps.
type Memory struct {
	Threads      int               `json:"threads,omitempty"`       // default: the cores
	Prefetch     int               `json:"prefetch,omitempty"`      // batches of one decode horizon; default 4
	MemoryBudget Bytes             `json:"memory_budget,omitempty"` // default 4 GiB
	Allocator    buffers.Allocator `json:"-"`                       // of batches; nil: anonymous mappings
	Cache        string            `json:"cache,omitempty"`         // "": none; "ram": decoded frames stay in memory, "device": in that of the device that decodes; else a directory for them
	CacheBudget  Bytes             `json:"cache_budget,omitempty"`  // default: "ram" half of memory_budget, a directory 64 GiB
	CacheFormat  CacheFormat       `json:"cache_format,omitempty"`
	IOThreads    int               `json:"io_threads,omitempty"` // reads of remote files at once; default 32
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
		return c, jsonmeta.OptionError("loader", "the configuration", text, err)
	}
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			known = append(known, name)
		}
	}
	for k := range raw {
		if !slices.Contains(known, k) {
			return c, robocache.Misuse("loader", nil, "unknown option %s", k).
				WithHint("%s", robocache.Nearest(k, known))
		}
	}
	if a := raw["align"]; len(a) > 0 && string(a) != "null" {
		if _, err := align.ParseConfig(a); err != nil { // names unknown keywords, which plain JSON passes over
			return c, err
		}
	}
	text, err := plainTolerances(text, raw)
	if err != nil {
		return c, err
	}
	return c, jsonmeta.OptionError("loader", "", text, json.Unmarshal(text, &c))
}

// plainTolerances returns text, which raw was read from, with tolerances as numbers of seconds.
func plainTolerances(text []byte, raw map[string]json.RawMessage) ([]byte, error) {
	found := false
	for _, name := range []string{"tolerance_s", "offset_tolerance_s"} {
		token := raw[name]
		if token == nil || string(token) == "null" {
			continue
		}
		seconds, err := ParseSeconds(token)
		if err != nil {
			return nil, TimeError(err, name, Misuse(name, "seconds above 0", Clip(string(token))))
		}
		found, raw[name] = true, json.RawMessage(strconv.FormatFloat(seconds, 'g', -1, 64))
	}
	if !found {
		return text, nil
	}
	return json.Marshal(raw)
}

// preset gives an option its default.
func preset[T comparable](to *T, value T) {
	if *to == *new(T) {
		*to = value
	}
}

// choice is an option with a few values, the first of which is its default.
func choice[T ~string](option string, to *T, values ...T) error {
	preset(to, values[0])
	if slices.Contains(values, *to) {
		return nil
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = `"` + string(v) + `"`
	}
	last := len(values) - 1
	return Misuse(option, strings.Join(quoted[:last], ", ")+" or "+quoted[last], string(*to))
}

// Validate fills in defaults and refuses what cannot be.
func (c *Config) Validate(batches bool) error {
	preset(&c.BatchSize, 64)
	preset(&c.WorldSize, 1)
	preset(&c.Threads, runtime.GOMAXPROCS(0))
	preset(&c.Prefetch, 4)
	preset(&c.MemoryBudget, 4<<30)
	preset(&c.PoolSize, c.MemoryBudget/2)
	preset(&c.Deadline, 300)
	if c.Compat == LeRobot {
		preset(&c.ImageDType, Float32)
		preset(&c.OnNaN, NaNAllow)
	}
	for _, x := range []struct {
		option           string
		got, least, most int64
	}{
		{"batch_size", int64(c.BatchSize), 1, 1 << 24}, {"world_size", int64(c.WorldSize), 1, 1 << 20}, {"rank", int64(c.Rank), 0, int64(c.WorldSize) - 1},
		{"threads", int64(c.Threads), 1, 4096}, {"io_threads", int64(c.IOThreads), 0, 4096}, {"prefetch", int64(c.Prefetch), 1, 1 << 16},
		{"memory_budget", int64(c.MemoryBudget), 1, 1 << 62}, {"pool_size", int64(c.PoolSize), 0, 1 << 62}, {"cache_budget", int64(c.CacheBudget), 0, 1 << 62},
		{"pool_episodes", c.PoolEpisodes, 0, 1 << 62}, {"pool_shards", int64(c.PoolShards), 0, order.MaxShards},
		{"drop_n_first_frames", int64(c.DropFirst), 0, 1 << 62}, {"drop_n_last_frames", int64(c.DropTail), 0, 1 << 62},
	} {
		if x.got >= x.least && x.got <= x.most {
			continue
		}
		want := fmt.Sprintf("%d to %d", x.least, x.most)
		switch {
		case x.option == "rank":
			return RankOutOfRange(x.option, c.WorldSize, c.Rank)
		case x.most == 1<<62:
			want = fmt.Sprintf("%d or more", x.least)
		}
		return Misuse(x.option, want, fmt.Sprint(x.got))
	}
	for _, err := range []error{
		choice("uneven", &c.Uneven, Wrap, Short), choice("on_bad_episode", &c.OnBadEpisode, Fail, Skip), choice("on_nan", &c.OnNaN, NaNError, NaNMask, NaNAllow), choice("image_dtype", &c.ImageDType, Uint8, Float32),
		choice("compat", &c.Compat, "", LeRobot), choice("dtype", &c.DType, DTypeKeep, DTypeFloat32), choice("depth_unit", &c.DepthUnit, Millimetres, Metres, Codes), choice("missing", &c.Missing, MissingError, MissingPad), choice("decode", &c.Decode, DecodeCPU, DecodeAuto, DecodeGPU),
		choice("cache_format", &c.CacheFormat, CacheAuto, CachePlanes, CachePixels, CacheEncoded), checkSize("image_size", c.ImageSize), c.Normalize.Check(), c.checkResize(),
	} {
		if err != nil {
			return err
		}
	}
	for i, s := range []*float64{c.Tolerance, c.OffsetTolerance} {
		if s != nil && !(*s > 0) {
			return Misuse([]string{"tolerance_s", "offset_tolerance_s"}[i], "seconds above 0", fmt.Sprint(*s))
		}
	}
	switch {
	case c.Deadline > 0 && (c.Deadline < 1e-3 || c.Deadline > 1e9): // beyond, the timer's duration is zero or wraps
		return Misuse("deadline_s", "0.001 to 1e9 seconds, or below 0 for none", fmt.Sprint(c.Deadline))
	case !c.Shuffle.Known():
		return Misuse("shuffle", `"global", "pool" or false`, string(c.Shuffle))
	case c.CacheFormat == CacheEncoded && !c.HasCacheDirectory():
		return Misuse("cache_format", `a directory as cache, where it is "encoded"`, robocache.Option("cache", string(c.Cache)))
	case c.Cache == CacheOnDevice && (c.DeviceMemory == 0 || c.CacheBudget != 0):
		return Misuse("device_memory_budget", "with "+robocache.Option("cache", "device")+", and in place of "+robocache.Option("cache_budget")+": the bytes of the device's memory that frames may take",
			fmt.Sprintf("%d, %s", c.DeviceMemory, robocache.Option("cache_budget", c.CacheBudget)))
	case !batches && c.Cache != "":
		return robocache.Unsupported("map", nil, "a cache of single items").
			WithHint("Loader has caches")
	case !batches && c.Augment != nil:
		return robocache.Unsupported("map", nil, "augment: its draws go by the epoch, and items have none").
			WithHint("Loader has augment")
	}
	if c.Hz != nil {
		a := align.Config{}
		if c.Align != nil {
			a = *c.Align
		}
		if !a.HZ.Zero() && a.HZ != *c.Hz {
			return Misuse("align", "the rate of "+robocache.Option("hz", *c.Hz), a.HZ.String())
		}
		a.HZ = *c.Hz
		c.Align = &a
	}
	return c.checkAlign()
}

func checkSize(option string, size []int) error {
	if len(size) == 0 || len(size) == 2 && min(size[0], size[1]) >= 1 && max(size[0], size[1]) <= 1<<15 {
		return nil
	}
	return Misuse(option, "[height, width], each 1 to 32768", fmt.Sprint(size))
}

func RankOutOfRange(option string, world, got int) error {
	return Misuse(option, fmt.Sprintf("0 to %d (world_size is %d)", world-1, world), fmt.Sprint(got))
}
