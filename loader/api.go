package loader

import (
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Configuration of a Loader or a Map, in groups.
type (
	// Config configures a Loader or a Map. Options are in the same groups as those of the Python
	// client. The JSON is one flat object of all options. Every field may be omitted. Package
	// loader/options documents the fields.
	Config = options.Config
	// Order selects the samples, their order and the rank's share of them.
	Order = options.Order
	// PoolOrder bounds what is resident under Shuffle Pool.
	PoolOrder = options.PoolOrder
	// Mixture states how several datasets are mixed (NewMix).
	Mixture = options.Mixture
	// Windows selects the streams of a sample, their rows and their times.
	Windows = options.Windows
	// Images states how decoded frames are delivered.
	Images = options.Images
	// CacheOptions selects a cache of decoded frames and bounds it.
	CacheOptions = options.CacheOptions
	// Device selects what a device computes and decodes, and bounds its memory.
	Device = options.Device
	// Statistics selects normalized values and the statistics that it uses.
	Statistics = options.Statistics
	// Runtime bounds threads, memory and waiting.
	Runtime = options.Runtime
	// Follow states how new episodes of a growing dataset enter (NewFollower).
	Follow = options.Follow
)

// One source of a mixture.
type (
	// Mix is one source of a mixture and the options that differ from the Config for it.
	Mix = options.Mix
	// MixFrames overrides how frames of one source are delivered.
	MixFrames = options.MixFrames
	// MixStatistics overrides how values of one source are normalized.
	MixStatistics = options.MixStatistics
)

// Options that name keys. Their JSON keeps the order of the keys.
type (
	Delta         = options.Delta
	Deltas        = options.Deltas
	Index         = options.Index
	Indices       = options.Indices
	Bytes         = options.Bytes
	Window        = options.Window
	NativeWindows = options.NativeWindows
	Normalize     = options.Normalize
	Norm          = options.Norm
	Augment       = options.Augment
	Vector        = options.Vector
	Vectors       = options.Vectors
	Constant      = options.Constant

	EpisodeWeights = options.EpisodeWeights
	RandomCrop     = options.RandomCrop
	ColorJitter    = options.ColorJitter
	HFlip          = options.HFlip
	Noise          = options.Noise
	Spread         = options.Spread
	Amounts        = options.Amounts
)

// Allocator allocates the memory of batches, for example page-locked memory that a GPU copies from.
type Allocator = buffers.Allocator

// Uneven selects the last step of an epoch with several ranks.
type Uneven = options.Uneven

const (
	Wrap  = options.Wrap  // the step is filled with the epoch's first samples; default
	Short = options.Short // the step has short batches
)

// OnBad selects the effect of an episode that cannot be read.
type OnBad = options.OnBad

const (
	Fail = options.Fail // the epoch ends with an error; default
	Skip = options.Skip // the episode is omitted and counted (loader.L13)
)

// OnNaN selects the effect of numbers that are not finite.
type OnNaN = options.OnNaN

const (
	NaNError = options.NaNError // the episode is bad; default
	NaNMask  = options.NaNMask  // the row becomes a masked row of zeros
	NaNAllow = options.NaNAllow // the row is delivered; default with Compat LeRobot
)

// Compat selects whose dtypes and shapes batches have.
type Compat = options.Compat

// LeRobot selects dtypes and shapes of LeRobot's dataset class. The empty Compat keeps the
// dataset's own.
const LeRobot = options.LeRobot

// DType selects the delivered type of float64 values.
type DType = options.DType

const (
	DTypeKeep    = options.DTypeKeep    // as stored; default
	DTypeFloat32 = options.DTypeFloat32 // as float32; default of the Python Loader
)

// ImageDType selects the type of color frames.
type ImageDType = options.ImageDType

const (
	Uint8   = options.Uint8   // default
	Float32 = options.Float32 // 0 to 1; default with Compat LeRobot
)

// Resize selects how frames reach the size of ImageSize.
type Resize = options.Resize

const (
	Stretch   = options.Stretch   // one factor per axis; default
	Letterbox = options.Letterbox // one factor: the whole image, centered on zeros
	Crop      = options.Crop      // one factor: the image covers the size, its middle is kept
	// one factor: the smaller side becomes the one number of ImageSize
	SmallestSide = options.SmallestSide
)

// Layout selects the order of the axes of images.
type Layout = options.Layout

const (
	ChannelsFirst = options.ChannelsFirst // default
	ChannelsLast  = options.ChannelsLast
)

// ImageStep is one step of Images.Transform, and Extent the part that a crop keeps.
type (
	ImageStep = options.ImageStep
	Extent    = options.Extent
)

// DepthUnit selects the unit and dtype of depth.
type DepthUnit = options.DepthUnit

const (
	Millimetres = options.Millimetres // float32; uint16 stays uint16; default
	Metres      = options.Metres      // float32
	Codes       = options.Codes       // uint16 as stored
)

// CacheFormat selects the form of the frames in a cache.
type CacheFormat = options.CacheFormat

const (
	CacheAuto    = options.CacheAuto    // default
	CachePlanes  = options.CachePlanes  // the decoder's planes
	CachePixels  = options.CachePixels  // pixels as in the batch
	CacheEncoded = options.CacheEncoded // the bytes that were read of remote files
)

// Missing selects the effect of data that a batch expects and a source does not have: a key that a
// source of a mixture or an episode lacks, or numbers at the end of a row that is narrower than the
// rows of other sources.
type Missing = options.Missing

const (
	MissingError = options.MissingError // an error; default
	MissingPad   = options.MissingPad   // zeros under a mask
)

// Decode selects the processor that decodes video.
type Decode = options.Decode

const (
	DecodeCPU = options.DecodeCPU // default
	// DecodeAuto decodes on the device while it has space, and otherwise on the CPU.
	DecodeAuto = options.DecodeAuto
	// DecodeGPU decodes on the device all streams that it decodes exactly. It is an error if there
	// is no device.
	DecodeGPU = options.DecodeGPU
)

// EpisodeID is the key of the generated text column with the id of each sample's episode.
const EpisodeID = options.EpisodeID

// Parts of a batch.
type (
	// Batch is a list of samples stacked into one tensor per key. The consumer owns it until
	// Release. Tensor(key) and Text(key) return an entry by its key, and Entry(i) returns the entry
	// of Fields[i]. Bytes returns the size of the tensors. ReleaseTensor(i) releases one tensor
	// alone. Buffers returns the whole buffers.
	Batch = layout.Batch
	// Field describes one entry of a batch.
	Field = layout.Field
	// Tensor is one contiguous array of a batch.
	Tensor = layout.Tensor
	// Texts is one text column of a batch.
	Texts = layout.Texts
)

// Reports of a plan.
type (
	// Finish describes the operations that a device applies to raw batches (Loader.Finish).
	Finish = plan.Finish
	// Place locates one tensor in the buffers of a raw batch, or in the outputs of Finish.
	Place = plan.Place
	// Output is one tensor that Finish describes.
	Output = plan.Output
	// Normalizer describes the normalization of each key of one source.
	Normalizer = plan.Normalizer
	// VectorState describes how a vector is made of columns as stored.
	VectorState = plan.VectorState
	// Normed describes the normalization of one key.
	Normed = plan.Normed
	// CausalityReport states which samples the streams of a batch use.
	CausalityReport = plan.CausalityReport
	// NotDelivered names a stream that is not delivered and the reason.
	NotDelivered = plan.NotDelivered
)

// ParseConfig parses the JSON of a Config. An unknown key is Misuse and the hint names the nearest
// known key.
func ParseConfig(text []byte) (Config, error) { return options.ParseConfig(text) }
