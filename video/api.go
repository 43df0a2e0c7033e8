package video

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Pixel is the type of the pixels of a delivered frame.
type Pixel uint8

const (
	RGB8       Pixel = iota // 3 × uint8
	RGBFloat32              // 3 × float32 in [0,1]: uint8 / 255, a real division
	Gray16                  // 1 × uint16: the stored luma plane (depth codes)
	DepthMM                 // 1 × float32, millimeters, decoded with the stream's Depth code
	DepthM                  // 1 × float32, meters; video is not rounded to millimeters
	YUVPlanes               // the decoder's planes, tightly packed, as stored (for verification)
)

// Spec describes the frames that a caller receives.
type Spec struct {
	Width, Height int // 0: the decoded size; otherwise the frame is scaled
	Pixel         Pixel
	ChannelsFirst bool // channels first (CHW), otherwise channels last (HWC)
	Depth         *robocache.Depth
}

// Frame is one decoded frame. It is valid during the call that delivers it.
type Frame interface {
	Size() (width, height int)
	PixelFormat() string // returns libavutil's name, for example "yuv420p"
	// Bytes returns the number of bytes that Convert writes for spec.
	Bytes(spec *Spec) (int, error)
	// Convert writes the frame to dst, which must have Bytes(spec) bytes.
	Convert(spec *Spec, dst []byte) error
}

// Decoder decodes the packets of one sample entry. It must be used by one goroutine at a time.
type Decoder interface {
	// Send passes a packet to the decoder, in decode order. The caller calls Receive until it
	// returns no frame before the next Send, so Send never refuses a packet for lack of space.
	Send(packet []byte, pts int64) error
	// Receive returns the next frame in presentation order, and the pts that its packet was sent
	// with. ok is false if the decoder needs more packets.
	Receive() (pic Frame, pts int64, ok bool, err error)
	// Drain ends the packets. Receive then returns the frames that are still in the decoder.
	Drain() error
	// Flush discards the decoder's state. The next packet must be a sync sample.
	Flush()
	// MemoryBytes returns an estimate of the decoder's memory.
	MemoryBytes() int64
	Close()
}

// Backend creates decoders. Importing video/ffmpeg in a build with cgo registers one. Safe for
// concurrent use.
type Backend interface {
	Name() string
	Version() string
	// Supports returns nil if the backend decodes codec, or an error with the reason.
	Supports(codec Codec) error
	NewDecoder(entry *SampleEntry) (Decoder, error)
}

// Codec is the name of a video coding format.
type Codec string

const (
	AV1   Codec = "av1"
	H264  Codec = "h264"
	HEVC  Codec = "hevc"
	MPEG4 Codec = "mpeg4"
	VP9   Codec = "vp9"
	MJPEG Codec = "mjpeg"
	PNG   Codec = "png" // appears in errors only; it is not decoded
)

// SampleEntry is one entry of the stsd box: the information that a decoder needs before the first
// packet.
type SampleEntry struct {
	FourCC        string
	Codec         Codec // "" if the FourCC is unknown
	Width, Height int
	Extradata     []byte // the whole avcC, hvcC or av1C; of an esds the DecoderSpecificInfo
	// from a colr box of type nclx; 2 = unspecified
	Primaries, Transfer, Matrix int
	FullRange                   bool
	Rotation                    int // degrees clockwise, from tkhd: 0, 90, 180 or 270
}

// Opener opens a file of the dataset. path is relative to the dataset's root.
type Opener func(ctx context.Context, path string) (robocache.Ranged, error)
