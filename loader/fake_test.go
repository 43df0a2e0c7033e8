package loader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/video"
)

// fake is a dataset in memory whose values encode their episode, row and key.
type fake struct {
	info      robocache.Info
	lengths   []int
	perFile   int // episodes a video file
	gop       int
	frames    frameFaults
	shortText bool                           // Text gives one less than asked
	badTimes  map[int]error                  // episode → what Times says
	badRows   map[int]error                  // episode → what Gather says
	slow      time.Duration                  // of a decode
	seen      func(path string, ordinal int) // called for each delivered frame
	gate      chan struct{}                  // decodes wait for it
	late      func(key string, episode int) int64
	tag       string       // in the names of its files, so that two fakes have different frames
	share     bool         // odd episodes have the frames of the one before, as far as those go
	far       bool         // its files are read over a network
	nameless  bool         // its files have no identity
	flaky     atomic.Int64 // so many of the next decodes fail, then none

	mu       sync.Mutex
	touched  map[string]int
	decoded  atomic.Int64
	opened   atomic.Int64
	mostOpen atomic.Int64
}

type frameFaults struct {
	missing map[robocache.Row]bool
	broken  map[string]map[int]bool // file → ordinals whose packet fails
	lost    map[string]bool         // files that cannot be opened
	odd     map[string]map[int]bool // file → ordinals whose frame has another size
	refused map[int]error           // episode → what Frames says
}

const fakeW, fakeH = 6, 4

func newFake(lengths ...int) *fake {
	f := &fake{lengths: lengths, perFile: 3, gop: 4, touched: map[string]int{}}
	total := 0
	for _, n := range lengths {
		total += n
	}
	f.info = robocache.Info{
		Format:   "fake",
		FPS:      robocache.Rate{Num: 10, Den: 1},
		Episodes: len(lengths),
		Frames:   int64(total),
		Features: []robocache.Feature{
			{
				Key:   "observation.state",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{3},
			},
			{
				Key:      "cam",
				Kind:     robocache.KindVideo,
				DType:    robocache.Uint8,
				Shape:    []int{fakeH, fakeW, 3},
				Height:   fakeH,
				Width:    fakeW,
				Channels: 3,
			},
			{Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{2}},
			{Key: "count", Kind: robocache.KindNumeric, DType: robocache.Int16, Shape: []int{1}},
			{Key: "done", Kind: robocache.KindNumeric, DType: robocache.Bool, Shape: []int{1}},
			{Key: "label", Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}},
			{
				Key:   "language_events",
				Kind:  robocache.KindEvent,
				DType: robocache.JSON,
				Shape: []int{1},
			},
			{
				Key:     "index",
				Kind:    robocache.KindNumeric,
				DType:   robocache.Int64,
				Shape:   []int{1},
				Default: true,
			},
		},
		Tasks: []robocache.Task{{Index: 0, Text: "t"}},
	}
	return f
}

func (f *fake) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{}
}

func (f *fake) Info() *robocache.Info { return &f.info }

func (f *fake) Len(e int) int { return f.lengths[e] }

func (f *fake) Close() error { return nil }

func (f *fake) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{Position: e, Index: int64(e), Length: f.lengths[e]}, nil
}

func (f *fake) Times(_ context.Context, e int, key string) ([]int64, error) {
	if err := f.badTimes[e]; err != nil {
		return nil, err
	}
	out := make([]int64, f.lengths[e])
	for i := range out {
		out[i] = int64(i) * 100_000_000
		if f.late != nil {
			out[i] += f.late(key, e)
		}
	}
	return out, nil
}

func (f *fake) touch(key string, n int) {
	f.mu.Lock()
	f.touched[key] += n
	f.mu.Unlock()
}

func (f *fake) base(e int) int {
	n := 0
	for _, l := range f.lengths[:e] {
		n += l
	}
	return n
}

func stateValue(r robocache.Row, k int) float32 {
	return float32(r.Episode)*1000 + float32(r.Index) + float32(k)/8
}

func (f *fake) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	f.touch(key, len(rows))
	for i, r := range rows {
		if r.Episode < 0 || r.Index < 0 || r.Index >= f.lengths[r.Episode] {
			return fmt.Errorf("row %v does not exist", r)
		}
		if err := f.badRows[r.Episode]; err != nil {
			return err
		}
		switch key {
		case "observation.state":
			for k := range 3 {
				binary.LittleEndian.PutUint32(dst[i*12+4*k:], math.Float32bits(stateValue(r, k)))
			}
		case "action":
			for k := range 2 {
				binary.LittleEndian.PutUint64(
					dst[i*16+8*k:],
					math.Float64bits(float64(stateValue(r, k))+0.1),
				)
			}
		case "twin":
			for k := range 3 {
				binary.LittleEndian.PutUint64(
					dst[i*24+8*k:],
					math.Float64bits(-float64(stateValue(r, k))),
				)
			}
		case "count":
			binary.LittleEndian.PutUint16(dst[i*2:], uint16(r.Index))
		case "done":
			dst[i] = byte(r.Index & 1)
		case "index":
			binary.LittleEndian.PutUint64(dst[i*8:], uint64(f.base(r.Episode)+r.Index))
		default:
			return fmt.Errorf("no column %s", key)
		}
	}
	return ctx.Err()
}

func (f *fake) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	f.touch(key, len(rows))
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = fmt.Sprintf(`"%s %d %d"`, key, r.Episode, r.Index)
	}
	if f.shortText {
		out = out[1:]
	}
	return out, nil
}

func (f *fake) Frames(
	_ context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	f.touch(key, len(rows))
	for i, r := range rows {
		if r.Index < 0 || r.Index >= f.lengths[r.Episode] {
			return fmt.Errorf("row %v does not exist", r)
		}
		if err := f.frames.refused[r.Episode]; err != nil {
			return err
		}
		if key == "img" {
			out[i] = robocache.FrameRef{Encoded: stillOf(r)}
			if f.frames.missing[r] {
				out[i] = robocache.FrameRef{Encoded: []byte("\x89PNG\r\n\x1a\nbroken")}
			}
			continue
		}
		if f.frames.missing[r] {
			out[i] = robocache.FrameRef{Missing: true}
			continue
		}
		if e := r.Episode - 1; f.share && e >= 0 && e%2 == 0 && r.Index < f.lengths[e] {
			r.Episode = e
		}
		file := r.Episode / f.perFile
		kind := "v"
		if key == "wide" {
			kind = "w"
		}
		out[i] = robocache.FrameRef{
			Path:    fmt.Sprintf("%s%s%d.mp4", kind, f.tag, file),
			Ordinal: f.base(r.Episode) - f.base(file*f.perFile) + r.Index,
		}
	}
	return nil
}

func (f *fake) Stats(context.Context) (robocache.Stats, error) {
	return robocache.Stats{
		"observation.state": {
			Mean: []float64{1, 2, 3},
			Std:  []float64{2, 0, 4},
			Min:  []float64{0, 5, 1},
			Max:  []float64{10, 5, 3},
		},
	}, nil
}

func (f *fake) Files() frames.Files { return fakeFiles{f} }

type fakeFiles struct{ f *fake }

func (r fakeFiles) Open(_ context.Context, path string) (frames.File, error) {
	if r.f.frames.lost[path] {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Msg: "no file " + path}
	}
	n := r.f.opened.Add(1)
	for most := r.f.mostOpen.Load(); n > most &&
		!r.f.mostOpen.CompareAndSwap(most, n); most = r.f.mostOpen.Load() {
	}
	return fakeFile{r.f, path}, nil
}

func (r fakeFiles) Stats() video.PoolStats { return video.PoolStats{Decoded: r.f.decoded.Load()} }

func (r fakeFiles) Close() {}

type fakeFile struct {
	f    *fake
	path string
}

func (r fakeFile) Size() (int, int) { return sizeOf(r.path) }

func (r fakeFile) TimeNS(o int) int64 { return int64(o) * 100_000_000 }

func (r fakeFile) Release() { r.f.opened.Add(-1) }

func (r fakeFile) Plan(_ *video.Planner, ordinals []int) []video.Group {
	var out []video.Group
	sorted := slices.Clone(ordinals)
	slices.Sort(sorted)
	for _, o := range slices.Compact(sorted) {
		start := o / r.f.gop * r.f.gop
		if n := len(out); n > 0 && out[n-1].Start == start {
			out[n-1].End = o
			out[n-1].Ordinals = append(out[n-1].Ordinals, o)
			continue
		}
		out = append(out, video.Group{Start: start, End: o, Ordinals: []int{o}})
	}
	return out
}

// sizeOf is the size of the frames of a file.
func sizeOf(path string) (width, height int) {
	if path[0] == 'w' {
		return 3 * fakeW, 2 * fakeH
	}
	return fakeW, fakeH
}

// withWide adds a camera of another size.
func (f *fake) withWide() *fake {
	f.info.Features = append(
		f.info.Features,
		robocache.Feature{
			Key:      "wide",
			Kind:     robocache.KindVideo,
			DType:    robocache.Uint8,
			Shape:    []int{2 * fakeH, 3 * fakeW, 3},
			Height:   2 * fakeH,
			Width:    3 * fakeW,
			Channels: 3,
		},
	)
	return f
}

// withTwin adds a stream in the form of observation.state, with negated values in float64.
func (f *fake) withTwin() *fake {
	f.info.Features = append(f.info.Features, robocache.Feature{
		Key: "twin", Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{3},
	})
	return f
}

func (r fakeFile) Remote() bool { return r.f.far }

func (r fakeFile) FetchBytes(video.Group) int64 { return 1 }

func (r fakeFile) Fetch(ctx context.Context, _ []video.Group) (*video.Fetched, error) {
	if r.f.slow > 0 {
		time.Sleep(r.f.slow)
	}
	return nil, ctx.Err()
}

func (r fakeFile) Identity() [32]byte {
	if r.f.nameless {
		return [32]byte{}
	}
	return sha256.Sum256([]byte(r.path))
}

func (r fakeFile) decodeOne(
	ctx context.Context,
	g video.Group,
	deliver func(int, video.Frame) error,
) error {
	if r.f.gate != nil {
		<-r.f.gate
	}
	for d := g.Start; d <= g.End; d++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.f.slow > 0 {
			time.Sleep(r.f.slow)
		}
		if r.f.flaky.Load() > 0 && r.f.flaky.Add(-1) >= 0 {
			return &robocache.Error{Class: robocache.ErrTemporary, Msg: "the store is away"}
		}
		if r.f.frames.broken[r.path][d] {
			return &robocache.Error{Class: robocache.ErrMalformed, Msg: "broken packet"}
		}
		r.f.decoded.Add(1)
		if slices.Contains(g.Ordinals, d) {
			if r.f.seen != nil {
				r.f.seen(r.path, d)
			}
			if err := deliver(d, fakeFrame{r.path, d, r.f.frames.odd[r.path][d]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r fakeFile) Decode(
	ctx context.Context,
	_ *video.Fetched,
	groups []video.Group,
	deliver func(int, video.Frame) error,
) error {
	for _, g := range groups {
		if err := r.decodeOne(ctx, g, deliver); err != nil {
			return err
		}
	}
	return nil
}

type fakeFrame struct {
	path    string
	ordinal int
	odd     bool
}

func (p fakeFrame) Size() (int, int) {
	w, h := sizeOf(p.path)
	if p.odd {
		w += 2
	}
	return w, h
}

func (p fakeFrame) PixelFormat() string { return "fake" }

func (p fakeFrame) Bytes(*video.Spec) (int, error) {
	w, h := sizeOf(p.path)
	return 3 * w * h, nil
}

func (p fakeFrame) Convert(s *video.Spec, dst []byte) error {
	if s.Pixel == video.RGBFloat32 {
		b := make([]byte, len(dst)/4)
		fillFrame(b, p.path, p.ordinal)
		for i, v := range b {
			column.Floats32(dst)[i] = float32(v) / 255
		}
		return nil
	}
	fillFrame(dst, p.path, p.ordinal)
	return nil
}

func fillFrame(dst []byte, path string, ordinal int) {
	h := uint64(len(path))*131 + uint64(path[0])*131071 + uint64(path[1])*31 +
		uint64(path[len(path)-5])*7919 + uint64(ordinal)*2654435761
	for i := range dst {
		dst[i] = byte(order.Mix(h + uint64(i)))
	}
}

func lengthsFor(seed uint64, n, least, most int) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		out[i] = least + rng.IntN(most-least+1)
	}
	return out
}

// withStills adds a camera of still images.
func (f *fake) withStills() *fake {
	f.info.Features = append(
		f.info.Features,
		robocache.Feature{
			Key:      "img",
			Kind:     robocache.KindImage,
			DType:    robocache.Uint8,
			Shape:    []int{fakeH, fakeW, 3},
			Height:   fakeH,
			Width:    fakeW,
			Channels: 3,
		},
	)
	return f
}

func stillColour(r robocache.Row) color.RGBA {
	return color.RGBA{uint8(r.Episode), uint8(r.Index), uint8(r.Episode + 2*r.Index), 255}
}

func stillOf(r robocache.Row) []byte {
	m := image.NewRGBA(image.Rect(0, 0, fakeW, fakeH))
	for i := range fakeW * fakeH {
		m.Set(i%fakeW, i/fakeW, stillColour(r))
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}
