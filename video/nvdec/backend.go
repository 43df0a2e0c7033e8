package nvdec

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
)

const opDecode = "decode video on the GPU"

// Backend decodes on the video engines of one device. Safe for concurrent use.
type Backend struct {
	driver driver
	device int
	name   string

	mu           sync.Mutex
	answers      map[video.Codec]codecAnswer
	idleDecoders []*decoder // closed decoders, in the order in which they were closed

	stream  uintptr                       // the stream of memory.go; 0: not created yet
	kernels map[conversionKey]frameKernel // kernels by conversion; nil: there is no kernel

	staging *stagingPool
	queue   launchQueue
}

// maxIdle is the maximum number of closed decoders that are kept. maxIdleBytes limits their total
// memory, most of it on the device.
const (
	maxIdle      = 64
	maxIdleBytes = 1 << 30
)

// codecAnswer is the driver's answer to a query about a codec.
type codecAnswer struct {
	caps decodeCaps
	err  error
}

var (
	_ video.DeviceBackend = (*Backend)(nil)
	_ video.DeviceMemory  = (*Backend)(nil)
)

func init() {
	video.RegisterDevice(func(device int) (video.DeviceBackend, error) {
		b, err := Open(device)
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// codecs maps each supported codec to the driver's number (nvdec.N2). AV1 is missing because no
// device with an AV1 engine was available to verify it.
var codecs = map[video.Codec]int32{
	video.H264: codecH264,
	video.HEVC: codecHEVC,
	video.VP9:  codecVP9,
}

var openBackends struct {
	mu sync.Mutex
	by map[int]*Backend
}

// Open returns the engines of a device, identified by the driver's number.
func Open(device int) (_ *Backend, err error) {
	openBackends.mu.Lock()
	defer openBackends.mu.Unlock()
	if b := openBackends.by[device]; b != nil {
		return b, nil
	}
	gpu, err := cuda.Open(device)
	if err != nil {
		return nil, err
	}
	f, err := loadDriver()
	if err != nil {
		return nil, err
	}
	memory, err := cudahost.Open(device)
	if err != nil {
		return nil, err
	}
	prepareRows, err := gpu.PrepareRows()
	if err != nil {
		return nil, err
	}
	b := newBackend(&cuvidLibrary{f, gpu, memory, prepareRows}, device, gpu.Name())
	if openBackends.by == nil {
		openBackends.by = map[int]*Backend{}
	}
	openBackends.by[device] = b
	return b, nil
}

func newBackend(d driver, device int, name string) *Backend {
	b := &Backend{
		driver:  d,
		device:  device,
		name:    name,
		answers: map[video.Codec]codecAnswer{},
		kernels: map[conversionKey]frameKernel{},
		staging: &stagingPool{driver: d},
	}
	b.queue.launch = b.launchFrames
	return b
}

// Name returns "nvdec".
func (b *Backend) Name() string { return "nvdec" }

// Version returns the name of the device.
func (b *Backend) Version() string { return b.name }

// Supports returns nil if the device decodes codec, or an error with the reason.
func (b *Backend) Supports(codec video.Codec) error {
	_, err := b.codecCaps(codec)
	return err
}

// Engines returns the number of engines that decode a codec, or 0.
func (b *Backend) Engines(codec video.Codec) int {
	c, err := b.codecCaps(codec)
	if err != nil {
		return 0
	}
	return max(int(c.engines), 1)
}

// codecCaps returns the driver's answer about a codec. Answers are cached.
func (b *Backend) codecCaps(codec video.Codec) (decodeCaps, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := b.answers[codec]
	if !ok {
		a.caps, a.err = b.queryCodec(codec)
		b.answers[codec] = a
	}
	return a.caps, a.err
}

// queryCodec asks the driver whether an engine decodes a codec.
func (b *Backend) queryCodec(codec video.Codec) (decodeCaps, error) {
	number, ok := codecs[codec]
	if !ok {
		return decodeCaps{}, b.unsupported(
			"this codec is not decoded on the GPU",
			"h264, hevc or vp9",
			string(codec),
		)
	}
	c := &decodeCaps{codec: number, chroma: chroma420}
	if err := b.driver.queryCaps(c); err != nil {
		return decodeCaps{}, err
	}
	if c.supported == 0 || c.outputs&maskNV12 == 0 {
		return decodeCaps{}, b.unsupported(
			"no engine of the device decodes this codec",
			"",
			string(codec),
		)
	}
	return *c, nil
}

// unsupported returns an ErrUnsupported error with the advice to decode on the CPU.
func (b *Backend) unsupported(msg, want, got string) error {
	return robocache.Unsupported(opDecode, robocache.Where{"device": b.device}, "%s", msg).
		Expected(want, got).
		WithHint("decode on the CPU with %s", robocache.Option("decode", "auto"))
}

// checkFormat returns an error if the engine does not decode frames of this format.
func (b *Backend) checkFormat(c *decodeCaps, f *streamFormat) error {
	s := f.shown
	switch {
	case f.chroma != chroma420:
		return b.unsupported("the chroma format is not 4:2:0", "", "")
	case f.lumaDepth != 0 || f.chromaDepth != 0:
		return b.unsupported(
			"the samples have more than 8 bits",
			"8",
			fmt.Sprint(8+max(f.lumaDepth, f.chromaDepth)),
		)
	case f.progressive == 0:
		return b.unsupported("interlaced frames", "", "")
	case f.width > c.maxWidth || f.height > c.maxHeight || f.width/16*(f.height/16) > c.maxBlocks:
		return b.unsupported(
			"the frames are larger than the engine supports",
			fmt.Sprintf("at most %d×%d", c.maxWidth, c.maxHeight),
			fmt.Sprintf("%d×%d", f.width, f.height),
		)
	case f.width < uint32(c.minWidth) || f.height < uint32(c.minHeight):
		return b.unsupported(
			"the frames are smaller than the engine supports",
			fmt.Sprintf("at least %d×%d", c.minWidth, c.minHeight),
			fmt.Sprintf("%d×%d", f.width, f.height),
		)
	case s.left < 0 || s.top < 0 || s.left%2 != 0 || s.top%2 != 0 || s.right <= s.left ||
		s.bottom <= s.top || s.right > int32(f.width) || s.bottom > int32(f.height):
		return b.unsupported(
			"the displayed area cannot be cut out of the coded frame",
			"",
			fmt.Sprint(s),
		)
	}
	return nil
}

// NewDecoder returns a decoder. The format is only known at the first packet, so an unsupported
// format is reported there.
func (b *Backend) NewDecoder(e *video.SampleEntry) (_ video.Decoder, err error) {
	c, err := b.codecCaps(e.Codec)
	if err != nil {
		return nil, err
	}
	if d := b.reuseIdle(e); d != nil {
		return d, nil
	}
	d := &decoder{backend: b, caps: c, entry: *e, surface: none, needsParameters: true}
	d.frame.decoder = d
	if d.elementary, err = video.NewElementary(e); err != nil {
		return nil, err
	}
	if err := d.openParser(); err != nil {
		d.releaseAll()
		return nil, err
	}
	return d, nil
}

// keepIdle keeps a closed decoder for reuse. It returns false if the limits do not allow it.
func (b *Backend) keepIdle(d *decoder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := d.MemoryBytes()
	for _, x := range b.idleDecoders {
		bytes += x.MemoryBytes()
	}
	if len(b.idleDecoders) >= maxIdle || bytes > maxIdleBytes {
		return false
	}
	b.idleDecoders = append(b.idleDecoders, d)
	return true
}

// reuseIdle returns a kept decoder with an equal sample entry, or nil.
func (b *Backend) reuseIdle(e *video.SampleEntry) *decoder {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.idleDecoders) - 1; i >= 0; i-- {
		if d := b.idleDecoders[i]; reflect.DeepEqual(&d.entry, e) {
			b.idleDecoders = slices.Delete(b.idleDecoders, i, i+1)
			d.closed = false
			return d
		}
	}
	return nil
}
