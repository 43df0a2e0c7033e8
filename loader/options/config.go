package options

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/kernel/resize"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// Allocator allocates the memory of batches, for example page-locked memory that a GPU copies from.
type Allocator = buffers.Allocator

// Uneven selects the last step of an epoch with several ranks.
type Uneven string

const (
	Wrap  Uneven = "wrap"  // the step is filled with the epoch's first samples; default
	Short Uneven = "short" // the step has short batches
)

// OnBad selects the effect of an episode that cannot be read.
type OnBad string

const (
	Fail OnBad = "error" // the epoch ends with an error; default
	Skip OnBad = "skip"  // the episode is omitted and counted (loader.L13)
)

// Compat selects whose dtypes and shapes batches have.
type Compat string

// LeRobot selects dtypes and shapes of LeRobot's dataset class. The empty Compat keeps the
// dataset's own.
const LeRobot Compat = "lerobot"

// DType selects the delivered type of float64 values.
type DType string

const (
	DTypeKeep    DType = "keep"    // values stay as stored; default
	DTypeFloat32 DType = "float32" // values become float32; default of the Python Loader
)

// ImageDType selects the type of color frames.
type ImageDType string

const (
	Uint8   ImageDType = "uint8"   // default
	Float32 ImageDType = "float32" // 0 to 1; default with Compat LeRobot
)

// DepthUnit selects the unit and dtype of depth.
type DepthUnit string

const (
	Millimetres DepthUnit = "mm"   // float32; uint16 stays uint16; default
	Metres      DepthUnit = "m"    // float32
	Codes       DepthUnit = "code" // uint16 as stored
)

// CacheFormat selects the form of the frames in a cache.
type CacheFormat string

const (
	CacheAuto    CacheFormat = "auto"    // default
	CachePlanes  CacheFormat = "yuv"     // the decoder's planes
	CachePixels  CacheFormat = "rgb"     // pixels as in the batch
	CacheEncoded CacheFormat = "encoded" // the bytes that were read of remote files
)

// Missing selects the effect of data that a batch expects and a source does not have: a key that a
// source of a mixture or an episode lacks, or numbers at the end of a row that is narrower than the
// rows of other sources.
type Missing string

const (
	MissingError Missing = "error" // an error; default
	MissingPad   Missing = "pad"   // zeros under a mask
)

// Decode selects the processor that decodes video.
type Decode string

const (
	DecodeCPU Decode = "cpu" // default
	// DecodeAuto decodes on the device while it has space, and otherwise on the CPU.
	DecodeAuto Decode = "auto"
	// DecodeGPU decodes on the device all streams that it decodes exactly. It is an error if there
	// is no device.
	DecodeGPU Decode = "gpu"
)

// Config configures a Loader or a Map. Options are in the same groups as those of the Python
// client. The JSON is one flat object of all options. Every field may be omitted.
type Config struct {
	Order
	Windows
	// Align holds alignment rules, the keywords of Episode.align. nil selects the defaults.
	Align *align.Config `json:"align,omitempty"`
	Images
	// Augment selects seeded random changes of images and numbers (Loader only).
	Augment *Augment `json:"augment,omitempty"`
	// Vectors are keys that are made of columns of numeric streams.
	Vectors Vectors `json:"vectors,omitempty"`
	Mixture
	CacheOptions
	Device
	Statistics
	Runtime
	// Follow states how new episodes enter while the dataset grows; nil: the dataset is fixed
	// (Loader only, see NewFollower).
	Follow *Follow `json:"follow,omitempty"`

	// Log receives messages about steps of opening that take a while or were not requested. It may
	// be nil.
	Log func(string) `json:"-"`
}

// Order selects the samples, their order and the rank's share of them. A Map uses only Episodes,
// Split, DropFirst and DropTail.
type Order struct {
	// Episodes lists the indices of the selected episodes; nil selects all. Rows are in file order,
	// regardless of the order of this list.
	Episodes []int `json:"episodes,omitempty"`
	// Split selects episodes by a split of the dataset instead. "" selects train (training) if it
	// exists, robocache.SplitAll all episodes.
	Split string `json:"split,omitempty"`
	// Where is an expression of package query, evaluated at opening. Of the episodes that Episodes
	// or Split select, those for which it is true are read.
	Where string `json:"where,omitempty"`
	// rows at the start of each episode that are not samples
	DropFirst int `json:"drop_n_first_frames,omitempty"`
	// rows at its end that are not samples
	DropTail  int           `json:"drop_n_last_frames,omitempty"`
	BatchSize int           `json:"batch_size,omitempty"` // default 64
	Shuffle   order.Shuffle `json:"shuffle,omitempty"`
	Seed      int64         `json:"seed,omitempty"`
	PoolOrder
	// omit an incomplete last global batch of the epoch
	DropLast     bool   `json:"drop_last,omitempty"`
	Uneven       Uneven `json:"uneven,omitempty"`
	Rank         int    `json:"rank,omitempty"`
	WorldSize    int    `json:"world_size,omitempty"`
	OnBadEpisode OnBad  `json:"on_bad_episode,omitempty"`
	OnNaN        OnNaN  `json:"on_nan,omitempty"`
	SampleLimits
	// EpisodeWeights holds weights by the index of the episode; the default is 1. In an epoch, an
	// episode of n samples has weight·n samples, rounded. 0 leaves it out, also in a Map.
	EpisodeWeights EpisodeWeights `json:"episode_weights,omitempty"`
	// WeightBy is an expression of package query that is a number of each episode, such as q.score:
	// its weight, in place of EpisodeWeights.
	WeightBy string `json:"weight_by,omitempty"`
	// RequireText is a key. Episodes whose texts of it are all empty have no samples.
	RequireText string `json:"require_text,omitempty"`
}

// PoolOrder bounds what is resident under shuffle="pool". The order depends on it.
type PoolOrder struct {
	// bytes of resident frames; default half of memory_budget
	PoolSize     Bytes `json:"pool_size,omitempty"`
	PoolEpisodes int64 `json:"pool_episodes,omitempty"` // maximum of resident episodes; 0: no limit
	// shards of the order; 0: chosen by the number of episodes, never by world_size
	PoolShards int `json:"pool_shards,omitempty"`
}

// Mixture states how several datasets are mixed (NewMix).
type Mixture struct {
	// Temperature t makes the shares proportional to weight^(1/t), or to size^(1/t) without
	// weights. The default is 1.
	Temperature float64 `json:"temperature,omitempty"`
	// Stop ends an epoch when the "first" source has delivered all its samples, or when "all" have.
	// By default the epoch has as many samples as all sources together.
	Stop order.Stop `json:"stop,omitempty"`
	// number of samples after which an epoch ends
	EpochSize  int64 `json:"epoch_size,omitempty"`
	Stratified bool  `json:"stratified,omitempty"` // each global batch has exactly the shares
	// BalanceWeights multiplies the weights of the sources by their numbers of samples.
	BalanceWeights bool `json:"balance_weights,omitempty"`
}

// Windows selects the streams of a sample, their rows and their times.
type Windows struct {
	// Keys lists the delivered keys; nil delivers all. Data of other keys is not read.
	Keys []string `json:"keys,omitempty"`
	// windows: offsets in seconds, per key
	Deltas  Deltas  `json:"delta_timestamps,omitempty"`
	Indices Indices `json:"delta_indices,omitempty"` // windows: offsets in rows, per key
	// windows at a stream's own rate: offsets, or all samples of a span
	Native NativeWindows `json:"windows,omitzero"`
	// the stream whose rows are samples; "": the dataset's rows (Info.Clock)
	Anchor string `json:"anchor,omitempty"`
	// rate of a uniform timeline per episode, whose rows are samples
	Hz *robocache.Rate `json:"hz,omitempty"`
	// Tolerance is the maximum distance in seconds between an offset and the nearest row, and between
	// a frame and its row. nil: offsets may differ by 1e-4 s, and the times of frames are not checked.
	Tolerance *float64 `json:"tolerance_s,omitempty"`
	// OffsetTolerance applies to offsets only. nil: Tolerance, or 1e-4 s.
	OffsetTolerance *float64 `json:"offset_tolerance_s,omitempty"`
	Compat          Compat   `json:"compat,omitempty"`
	// DType applies to float64 streams. Timestamps stay float64, except in LeRobot datasets.
	DType   DType   `json:"dtype,omitempty"`
	Missing Missing `json:"missing,omitempty"`
	// Beyond states the rows of windows that are outside the episode, for all keys or by key.
	Beyond BeyondRules `json:"beyond,omitempty"`
	// Text states how the texts of keys are normalized.
	Text map[string]TextRule `json:"text,omitempty"`
	// Choose makes keys that hold one of several streams of images, texts or numbers. The stream is
	// drawn at random for each sample. In file order and in a Map it is always the first one. The
	// batch does not hold the streams themselves, unless Keys names them.
	Choose Choices `json:"choose,omitempty"`
	// Goal makes keys that hold a later row of a stream. The row is drawn uniformly from the rows
	// after the sample's row, up to the last sample of the episode. The goal of the last sample is
	// its own row. All keys of Goal hold the same row. A Map draws as in epoch 0.
	Goal Goals `json:"goal,omitempty"`
}

// Images states how decoded frames are delivered.
type Images struct {
	ImageDType ImageDType `json:"image_dtype,omitempty"`
	// ImageSize is [height, width] in pixels. Frames are scaled while they are decoded. nil keeps
	// the recorded size.
	ImageSize   []int  `json:"image_size,omitempty"`
	ImageResize Resize `json:"image_resize,omitempty"`
	// ImageFilter selects the library whose filter scales color frames, to the bit. "" scales them
	// while they are decoded.
	ImageFilter resize.Filter `json:"image_filter,omitempty"`
	ImageLayout Layout        `json:"image_layout,omitempty"`
	// Transform lists the steps of color frames, in place of ImageSize and ImageResize.
	Transform []ImageStep `json:"image_transform,omitempty"`
	DepthUnit DepthUnit   `json:"depth_unit,omitempty"`
}

// CacheOptions selects a cache of decoded frames and bounds it.
type CacheOptions struct {
	// Cache is "" for none, "ram" for host memory, "device" for memory of the device that decodes.
	// Any other value is a directory.
	Cache string `json:"cache,omitempty"`
	// CacheBudget is in bytes. The default is half of memory_budget for "ram" and 64 GiB for a
	// directory.
	CacheBudget Bytes       `json:"cache_budget,omitempty"`
	CacheFormat CacheFormat `json:"cache_format,omitempty"`
}

// Device selects what a device computes and decodes, and bounds its memory.
type Device struct {
	// Raw delivers stored values. Casts, normalization and interpolation are left to a device
	// (Loader only, see Finish).
	Raw bool `json:"raw,omitempty"`
	// Decode selects the processor that decodes video. A device decodes the streams that it decodes
	// bit-identically to the host. Stats names the reasons for the others.
	Decode       Decode `json:"decode,omitempty"`
	DecodeDevice int    `json:"decode_device,omitempty"` // number of the device in its driver
	// DeviceMemory bounds the device memory of stored frames, in bytes. For a pool the default is
	// the host's limit, and frames that exceed it are stored on the host. For a cache on the device
	// it bounds cache and pool together.
	DeviceMemory Bytes `json:"device_memory_budget,omitempty"`
}

// Statistics selects normalized values and the statistics that it uses.
type Statistics struct {
	Normalize Normalize `json:"normalize,omitzero"`
	// ComputeStats computes missing statistics at opening, over the selected episodes. Without it,
	// only those of small datasets are computed.
	ComputeStats bool            `json:"compute_stats,omitempty"`
	Stats        robocache.Stats `json:"-"` // by key of the batch; default: the dataset's
	// RefreshStats computes the statistics again whenever new episodes enter. Otherwise those of
	// the first episodes stay.
	RefreshStats bool `json:"refresh,omitempty"`
}

// Runtime bounds threads, memory and waiting.
type Runtime struct {
	Threads int `json:"threads,omitempty"` // default: the number of cores
	// Prefetch is the number of batches that are decoded together. The default is 4.
	Prefetch     int   `json:"prefetch,omitempty"`
	MemoryBudget Bytes `json:"memory_budget,omitempty"` // default 4 GiB
	// Allocator allocates batches. nil selects anonymous mappings.
	Allocator buffers.Allocator `json:"-"`
	// IOThreads is the number of concurrent reads of remote files. The default is 32.
	IOThreads int `json:"io_threads,omitempty"`
	// Deadline is the number of seconds without progress of a batch after which Next returns an
	// error. The default is 300; a negative value disables it.
	Deadline float64 `json:"deadline_s,omitempty"`
}

// ParseConfig parses the JSON of a Config. An unknown key is Misuse, and the hint names the nearest
// known key.
func ParseConfig(text []byte) (Config, error) {
	var c Config
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return c, jsonmeta.OptionError("loader", "the configuration", text, err)
	}
	known := configNames()
	for k := range raw {
		if !slices.Contains(known, k) {
			return c, robocache.Misuse("loader", nil, "unknown option %s", k).
				WithHint("%s", robocache.Nearest(k, known))
		}
	}
	text, err := tolerancesInSeconds(text, raw)
	if err != nil {
		return c, err
	}
	return c, jsonmeta.OptionError("loader", "", text, json.Unmarshal(text, &c))
}

// configNames returns the names of the options in the JSON of a Config.
func configNames() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// setDefault sets an option to value if it has its zero value.
func setDefault[T comparable](to *T, value T) {
	if *to == *new(T) {
		*to = value
	}
}

// checkChoice rejects a value that is not in values. It sets the zero value to the first one.
func checkChoice[T ~string](option string, to *T, values ...T) error {
	setDefault(to, values[0])
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

// Validate sets defaults and rejects invalid values. batches is true for a Loader and false for a
// Map.
func (c *Config) Validate(batches bool) error {
	setDefault(&c.BatchSize, 64)
	setDefault(&c.WorldSize, 1)
	setDefault(&c.Threads, runtime.GOMAXPROCS(0))
	setDefault(&c.Prefetch, 4)
	setDefault(&c.MemoryBudget, 4<<30)
	setDefault(&c.PoolSize, c.MemoryBudget/2)
	setDefault(&c.Deadline, 300)
	if c.Compat == LeRobot {
		setDefault(&c.ImageDType, Float32)
		setDefault(&c.OnNaN, NaNAllow)
	}
	const unlimited = 1 << 62
	for _, x := range []struct {
		option           string
		got, least, most int64
	}{
		{"batch_size", int64(c.BatchSize), 1, 1 << 24},
		{"world_size", int64(c.WorldSize), 1, 1 << 20},
		{"rank", int64(c.Rank), 0, int64(c.WorldSize) - 1},
		{"threads", int64(c.Threads), 1, 4096},
		{"io_threads", int64(c.IOThreads), 0, 4096},
		{"prefetch", int64(c.Prefetch), 1, 1 << 16},
		{"memory_budget", int64(c.MemoryBudget), 1, unlimited},
		{"pool_size", int64(c.PoolSize), 0, unlimited},
		{"cache_budget", int64(c.CacheBudget), 0, unlimited},
		{"pool_episodes", c.PoolEpisodes, 0, unlimited},
		{"pool_shards", int64(c.PoolShards), 0, order.MaxShards},
		{"drop_n_first_frames", int64(c.DropFirst), 0, unlimited},
		{"drop_n_last_frames", int64(c.DropTail), 0, unlimited},
	} {
		if x.got >= x.least && x.got <= x.most {
			continue
		}
		want := fmt.Sprintf("%d to %d", x.least, x.most)
		switch {
		case x.option == "rank":
			return RankOutOfRange(x.option, c.WorldSize, c.Rank)
		case x.most == unlimited:
			want = fmt.Sprintf("%d or more", x.least)
		}
		return Misuse(x.option, want, fmt.Sprint(x.got))
	}
	for _, err := range []error{
		c.checkText(),
		c.checkDrawn(),
		checkChoice("uneven", &c.Uneven, Wrap, Short),
		checkChoice("on_bad_episode", &c.OnBadEpisode, Fail, Skip),
		checkChoice("on_nan", &c.OnNaN, NaNError, NaNMask, NaNAllow),
		checkChoice("image_dtype", &c.ImageDType, Uint8, Float32),
		checkChoice("compat", &c.Compat, "", LeRobot),
		checkChoice("dtype", &c.DType, DTypeKeep, DTypeFloat32),
		checkChoice("depth_unit", &c.DepthUnit, Millimetres, Metres, Codes),
		checkChoice("missing", &c.Missing, MissingError, MissingPad),
		checkChoice("decode", &c.Decode, DecodeCPU, DecodeAuto, DecodeGPU),
		checkChoice(
			"cache_format",
			&c.CacheFormat,
			CacheAuto,
			CachePlanes,
			CachePixels,
			CacheEncoded,
		),
		checkSize("image_size", c.ImageSize),
		c.Normalize.Check(),
		c.checkResize(),
		c.Vectors.check(batches),
	} {
		if err != nil {
			return err
		}
	}
	for i, s := range []*float64{c.Tolerance, c.OffsetTolerance} {
		if s != nil && !(*s > 0) {
			return Misuse(
				[]string{"tolerance_s", "offset_tolerance_s"}[i],
				"seconds above 0",
				fmt.Sprint(*s),
			)
		}
	}
	switch {
	case c.Deadline > 0 && (c.Deadline < 1e-3 || c.Deadline > 1e9):
		// a timer's duration would be 0 or overflow
		return Misuse(
			"deadline_s",
			"0.001 to 1e9 seconds, or below 0 for none",
			fmt.Sprint(c.Deadline),
		)
	case !c.Shuffle.Known():
		return Misuse("shuffle", `"global", "pool" or false`, string(c.Shuffle))
	case c.CacheFormat == CacheEncoded && !c.HasCacheDirectory():
		return Misuse(
			"cache_format",
			`a directory as cache, where it is "encoded"`,
			robocache.Option("cache", string(c.Cache)),
		)
	case c.Cache == CacheOnDevice && (c.DeviceMemory == 0 || c.CacheBudget != 0):
		want := "with " + robocache.Option("cache", "device") + ", and in place of " +
			robocache.Option("cache_budget") +
			": the bytes of the device's memory that frames may take"
		got := fmt.Sprintf(
			"%d, %s",
			c.DeviceMemory,
			robocache.Option("cache_budget", c.CacheBudget),
		)
		return Misuse("device_memory_budget", want, got)
	case !batches && c.Cache != "":
		return robocache.Unsupported("map", nil, "a cache of single items").
			WithHint("Loader has caches")
	case !batches && c.Augment != nil:
		return robocache.Unsupported("map", nil, "augment: its draws go by the epoch, and items "+
			"have none").
			WithHint("Loader has augment")
	case !batches && c.HasRandomSteps():
		return robocache.Unsupported("map", nil, "image_transform: random steps go by the epoch, "+
			"and items have none").
			WithHint("Pass center_crop in place of random_crop, without rotation and color_jitter.")
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
	return cmp.Or(
		c.SampleLimits.check(),
		c.checkWeightBy(),
		c.EpisodeWeights.check(),
		c.Beyond.check(),
		c.checkAlign(),
		c.checkFollow(batches),
	)
}

// checkSize rejects a size that is not [height, width] with plausible numbers. An empty size is
// valid, and so is one number (SmallestSide).
func checkSize(option string, size []int) error {
	outside := func(n int) bool { return n < 1 || n > 1<<15 }
	if len(size) <= 2 && !slices.ContainsFunc(size, outside) {
		return nil
	}
	return Misuse(option, "[height, width], each 1 to 32768", fmt.Sprint(size))
}

// RankOutOfRange returns the error of a rank that does not exist in a world of the given size.
func RankOutOfRange(option string, world, got int) error {
	return Misuse(
		option,
		fmt.Sprintf("0 to %d (world_size is %d)", world-1, world),
		fmt.Sprint(got),
	)
}
