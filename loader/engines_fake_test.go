package loader_test

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// engines simulates the decoders of a GPU with those of the CPU, without the capabilities that the
// test removes.
type engines struct {
	video.Backend
	none   bool  // no engine for the codec
	lies   bool  // one bit of each frame is another
	fails  int64 // each packet from so many on is an error; 0: none
	class  error // class of the error; nil: ErrMalformed
	packet atomic.Int64
}

func (e *engines) Version() string { return "a device of the test" }

func (e *engines) Engines(video.Codec) int {
	if e.none {
		return 0
	}
	return 2
}

func (e *engines) Supports(codec video.Codec) error {
	if e.none {
		return &robocache.Error{
			Class: robocache.ErrUnsupported,
			Op:    "decode",
			Msg:   "no engine for " + string(codec),
		}
	}
	return e.Backend.Supports(codec)
}

func (e *engines) NewDecoder(entry *video.SampleEntry) (video.Decoder, error) {
	d, err := e.Backend.NewDecoder(entry)
	if err != nil {
		return nil, err
	}
	return &engine{d, e}, nil
}

type engine struct {
	video.Decoder
	e *engines
}

func (d *engine) Send(packet []byte, pts int64) error {
	if n := d.e.packet.Add(1); d.e.fails > 0 && n >= d.e.fails {
		return &robocache.Error{
			Class: cmp.Or(d.e.class, robocache.ErrMalformed),
			Op:    "decode",
			Msg:   "the device failed",
		}
	}
	return d.Decoder.Send(packet, pts)
}

func (d *engine) Receive() (video.Frame, int64, bool, error) {
	pic, pts, ok, err := d.Decoder.Receive()
	if p, is := pic.(video.PlanarFrame); is && d.e.lies {
		return lie{p}, pts, ok, err
	}
	return pic, pts, ok, err
}

type lie struct{ video.PlanarFrame }

func (l lie) CopyPlanes(dst []byte) error {
	err := l.PlanarFrame.CopyPlanes(dst)
	dst[len(dst)/3] ^= 1
	return err
}

// gpu is engines whose frames stay in device memory. Each byte there is inverted, so that host
// access to it shows as wrong values.
type gpu struct {
	*engines
	mu   sync.Mutex
	live map[*byte]int // sizes of the allocations in use
	most int           // maximum size of an allocation; 0: no limit
	made atomic.Int64  // frames
	kept atomic.Int64
	sent atomic.Int64
}

func (g *gpu) Number() int { return 1 }

func (g *gpu) Alloc(n int) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most > 0 && n > g.most {
		return nil, &robocache.Error{
			Class: robocache.ErrResourceLimit,
			Op:    "CUDA",
			Msg:   "memory budget",
		}
	}
	b := make([]byte, n)
	if g.live == nil {
		g.live = map[*byte]int{}
	}
	g.live[&b[0]] = n
	return b, nil
}

func (g *gpu) Free(m []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live[&m[0]] != len(m) {
		panic("memory is freed that was not allocated")
	}
	delete(g.live, &m[0])
}

// invert works on copies: to the race detector, which looks at each access, a loop over the bytes
// of frames is minutes.
func invert(b []byte) {
	own := slices.Clone(b)
	for part := range slices.Chunk(own, len(ones)) {
		subtle.XORBytes(part, part, ones)
	}
	copy(b, own)
}

var ones = bytes.Repeat([]byte{255}, 1<<16)

func (g *gpu) Upload(dst, src []byte) error {
	if copy(dst, src) != len(dst) {
		panic("an upload of another size")
	}
	invert(dst)
	return nil
}

func (g *gpu) UploadPlanes(info video.PlaneInfo, dst, planes []byte) error {
	if len(planes) != info.Bytes() {
		panic("planes of another size")
	}
	g.sent.Add(1)
	return g.Upload(dst, planes)
}

func (g *gpu) Copy(dst, src [][]byte) error {
	for i := range src {
		if copy(dst[i], src[i]) != len(dst[i]) || len(src[i]) != len(src[0]) {
			panic("a copy of another size")
		}
	}
	return nil
}

func (g *gpu) Clear(dst []byte) error {
	clear(dst)
	invert(dst)
	return nil
}

func (g *gpu) Wait() error { return nil }

func (g *gpu) Converts(info video.PlaneInfo, spec *video.Spec) bool {
	_, ok := video.FormulaOf(info, spec)
	return ok
}

func (g *gpu) ConvertKept(
	info video.PlaneInfo,
	planes [][]byte,
	spec *video.Spec,
	dst [][]byte,
) error {
	for i := range planes {
		own := slices.Clone(planes[i])
		invert(own)
		if err := video.ConvertPlanes(info, own, spec, dst[i]); err != nil {
			return err
		}
		invert(dst[i])
	}
	return nil
}

func (g *gpu) NewDecoder(entry *video.SampleEntry) (video.Decoder, error) {
	d, err := g.engines.NewDecoder(entry)
	return &gpuDecoder{d, g}, err
}

type gpuDecoder struct {
	video.Decoder
	g *gpu
}

func (d *gpuDecoder) Receive() (video.Frame, int64, bool, error) {
	pic, pts, ok, err := d.Decoder.Receive()
	if p, is := pic.(video.PlanarFrame); is {
		return gpuFrame{p, d.g}, pts, ok, err
	}
	return pic, pts, ok, err
}

type gpuFrame struct {
	video.PlanarFrame
	g *gpu
}

func (f gpuFrame) ConvertThere(spec *video.Spec, dst []byte) error {
	f.g.made.Add(1)
	err := f.Convert(spec, dst)
	invert(dst)
	return err
}

func (f gpuFrame) KeepPlanes(dst []byte) error {
	f.g.kept.Add(1)
	err := f.CopyPlanes(dst)
	invert(dst)
	return err
}
