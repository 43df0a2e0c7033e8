package video

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Pixel says what a delivered frame is made of.
type Pixel uint8

const (
	RGB8       Pixel = iota // 3 × uint8
	RGBFloat32              // 3 × float32 in [0,1]: uint8 / 255, a real division
	Gray16                  // 1 × uint16: the luma plane as stored (depth codes)
	DepthMM                 // 1 × float32, millimetres, by the stream's Depth code
	DepthM                  // 1 × float32, metres; of video not rounded to millimetres
	YUVPlanes               // the decoder's planes, tightly packed, as stored (for proofs)
)

// Spec says what a frame delivered to a caller looks like.
type Spec struct {
	Width, Height int // 0 = as decoded; else scaled in the same pass
	Pixel         Pixel
	ChannelsFirst bool // CHW, else HWC
	Depth         *robocache.Depth
}

// Frame is one decoded frame, valid during the call that hands it over.
type Frame interface {
	Size() (width, height int)
	PixelFormat() string // libavutil's name, e.g. "yuv420p"
	// Bytes is the size that Convert needs for spec.
	Bytes(spec *Spec) (int, error)
	// Convert writes the frame into dst, which must have Bytes(spec) bytes.
	Convert(spec *Spec, dst []byte) error
}

// Decoder decodes the packets of one sample entry on one thread. One goroutine at a time.
type Decoder interface {
	// Send gives a packet in decode order; io.ErrShortBuffer-like refusals do not happen: Receive
	// is called until empty after each Send.
	Send(packet []byte, pts int64) error
	// Receive gives the next frame in presentation order, and the pts its packet was sent with; ok
	// is false when more packets are needed.
	Receive() (pic Frame, pts int64, ok bool, err error)
	// Drain says that no packet follows: Receive then gives what is still inside.
	Drain() error
	// Flush forgets everything; the next packet must be a sync sample.
	Flush()
	// MemoryBytes estimates what the decoder holds.
	MemoryBytes() int64
	Close()
}

// Backend makes decoders. Exactly one is registered by importing video/ffmpeg in a build with cgo.
type Backend interface {
	Name() string
	Version() string
	// Supports says why a codec cannot be decoded, or nil.
	Supports(codec Codec) error
	NewDecoder(entry *SampleEntry) (Decoder, error)
}

// Codec is a video coding by its field name.
type Codec string

const (
	AV1   Codec = "av1"
	H264  Codec = "h264"
	HEVC  Codec = "hevc"
	MPEG4 Codec = "mpeg4"
	VP9   Codec = "vp9"
	MJPEG Codec = "mjpeg"
	PNG   Codec = "png" // named in errors, not decoded
)

// SampleEntry is one entry of stsd: what a decoder must know before the first packet.
type SampleEntry struct {
	FourCC        string
	Codec         Codec // "" where the fourcc is not known
	Width, Height int
	Extradata     []byte // avcC, hvcC, av1C whole; of esds the DecoderSpecificInfo
	// colr nclx; 2 = unspecified
	Primaries, Transfer, Matrix int
	FullRange                   bool
	Rotation                    int // degrees clockwise by tkhd: 0, 90, 180, 270
}

// Opener opens a file of the dataset by its path below the root.
type Opener func(ctx context.Context, path string) (robocache.Ranged, error)
