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

// Backend is the video engines of one device. Any number of goroutines may use it.
type Backend struct {
	d      driver
	device int
	name   string

	mu    sync.Mutex
	known map[video.Codec]answer
	idle  []*decoder // that were closed, the last one at the end

	stream uintptr         // of memory.go; 0: not yet
	forms  map[form]frames // conversions that were asked for; nil: there is no kernel

	staging *staging
	queue   launchQueue
}

// maxIdle is how many closed decoders are kept, and maxIdleBytes what they may hold together, of
// the device's memory for the most part.
const (
	maxIdle      = 64
	maxIdleBytes = 1 << 30
)

// answer is what the driver says of a codec.
type answer struct {
	caps caps
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

// codecs are those that are taken, by the driver's number (N2). AV1 is not: no machine with an
// engine for it was at hand to prove it on.
var codecs = map[video.Codec]int32{
	video.H264: codecH264,
	video.HEVC: codecHEVC,
	video.VP9:  codecVP9,
}

var opened struct {
	mu sync.Mutex
	by map[int]*Backend
}

// Open gives the engines of a device, by the driver's number of it.
func Open(device int) (_ *Backend, err error) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if b := opened.by[device]; b != nil {
		return b, nil
	}
	gpu, err := cuda.Open(device)
	if err != nil {
		return nil, err
	}
	f, err := load()
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
	b := newBackend(&library{f, gpu, memory, prepareRows}, device, gpu.Name())
	if opened.by == nil {
		opened.by = map[int]*Backend{}
	}
	opened.by[device] = b
	return b, nil
}

func newBackend(d driver, device int, name string) *Backend {
	b := &Backend{
		d:       d,
		device:  device,
		name:    name,
		known:   map[video.Codec]answer{},
		forms:   map[form]frames{},
		staging: &staging{d: d},
	}
	b.queue.launch = b.launchFrames
	return b
}

// Name names the backend.
func (b *Backend) Name() string { return "nvdec" }

// Version is the device's name.
func (b *Backend) Version() string { return b.name }

// Supports says why a codec cannot be decoded, or nil.
func (b *Backend) Supports(codec video.Codec) error {
	_, err := b.caps(codec)
	return err
}

// Engines is how many engines decode a codec; 0 where none does.
func (b *Backend) Engines(codec video.Codec) int {
	c, err := b.caps(codec)
	if err != nil {
		return 0
	}
	return max(int(c.engines), 1)
}

func (b *Backend) caps(codec video.Codec) (caps, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := b.known[codec]
	if !ok {
		a.caps, a.err = b.ask(codec)
		b.known[codec] = a
	}
	return a.caps, a.err
}

func (b *Backend) ask(codec video.Codec) (caps, error) {
	number, ok := codecs[codec]
	if !ok {
		return caps{}, b.refuse("no way to this codec's engine", "h264, hevc or vp9", string(codec))
	}
	c := &caps{codec: number, chroma: chroma420}
	if err := b.d.caps(c); err != nil {
		return caps{}, err
	}
	if c.supported == 0 || c.outputs&maskNV12 == 0 {
		return caps{}, b.refuse("no engine of the device decodes this codec", "", string(codec))
	}
	return *c, nil
}

func (b *Backend) refuse(msg, want, got string) error {
	return robocache.Unsupported(opDecode, robocache.Where{"device": b.device}, "%s", msg).
		Expected(want, got).
		WithHint("it is decoded on the CPU with %s", robocache.Option("decode", "auto"))
}

// fits says why the engine does not take frames of a format, or nil.
func (b *Backend) fits(c *caps, f *format) error {
	s := f.shown
	switch {
	case f.chroma != chroma420:
		return b.refuse("colour is not stored 4:2:0", "", "")
	case f.lumaDepth != 0 || f.chromaDepth != 0:
		return b.refuse(
			"samples of more than 8 bits",
			"8",
			fmt.Sprint(8+max(f.lumaDepth, f.chromaDepth)),
		)
	case f.progressive == 0:
		return b.refuse("interlaced frames", "", "")
	case f.width > c.maxWidth || f.height > c.maxHeight || f.width/16*(f.height/16) > c.maxBlocks:
		return b.refuse(
			"frames larger than the engine takes",
			fmt.Sprintf("at most %d×%d", c.maxWidth, c.maxHeight),
			fmt.Sprintf("%d×%d", f.width, f.height),
		)
	case f.width < uint32(c.minWidth) || f.height < uint32(c.minHeight):
		return b.refuse(
			"frames smaller than the engine takes",
			fmt.Sprintf("at least %d×%d", c.minWidth, c.minHeight),
			fmt.Sprintf("%d×%d", f.width, f.height),
		)
	case s.left < 0 || s.top < 0 || s.left%2 != 0 || s.top%2 != 0 || s.right <= s.left || s.bottom <= s.top || s.right > int32(f.width) || s.bottom > int32(f.height):
		return b.refuse("a part of the coded frame that cannot be cut out", "", fmt.Sprint(s))
	}
	return nil
}

// NewDecoder makes a decoder. What of its format the engine does not take is known at the first
// packet: the error comes there.
func (b *Backend) NewDecoder(e *video.SampleEntry) (_ video.Decoder, err error) {
	c, err := b.caps(e.Codec)
	if err != nil {
		return nil, err
	}
	if d := b.kept(e); d != nil {
		return d, nil
	}
	d := &decoder{b: b, caps: c, entry: *e, surface: none, fresh: true}
	d.frame.d = d
	if d.form, err = video.NewElementary(e); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.free()
		return nil, err
	}
	return d, nil
}

// keep takes a decoder that was closed; false where there is no room.
func (b *Backend) keep(d *decoder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := d.MemoryBytes()
	for _, x := range b.idle {
		bytes += x.MemoryBytes()
	}
	if len(b.idle) >= maxIdle || bytes > maxIdleBytes {
		return false
	}
	b.idle = append(b.idle, d)
	return true
}

// kept gives a decoder that was closed and fits; nil where there is none.
func (b *Backend) kept(e *video.SampleEntry) *decoder {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.idle) - 1; i >= 0; i-- {
		if d := b.idle[i]; reflect.DeepEqual(&d.entry, e) {
			b.idle = slices.Delete(b.idle, i, i+1)
			d.closed = false
			return d
		}
	}
	return nil
}
