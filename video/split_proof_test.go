package video

import (
	"context"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// plain is a frame whose samples all have one value.
type plain byte

func (p plain) Size() (width, height int)   { return 16, 16 }
func (p plain) PixelFormat() string         { return "yuv420p" }
func (p plain) Bytes(*Spec) (int, error)    { return 0, nil }
func (p plain) Convert(*Spec, []byte) error { return nil }
func (p plain) PlaneInfo() (PlaneInfo, bool) {
	return PlaneInfo{Width: 16, Height: 16, Format: PlaneFormat("yuv420p")}, true
}

func (p plain) CopyPlanes(dst []byte) error {
	for i := range dst {
		dst[i] = byte(p)
	}
	return nil
}

// plains is a backend of plain frames. Their value is their key, or 99 for sample entries of wrong
// width.
type plains struct {
	scripted
	wrong int
}

func (b *plains) Engines(Codec) int { return 1 }
func (b *plains) NewDecoder(e *SampleEntry) (Decoder, error) {
	d, err := b.scripted.NewDecoder(e)
	return plainDecoder{d, e.Width == b.wrong}, err
}

type plainDecoder struct {
	Decoder
	wrong bool
}

func (d plainDecoder) Receive() (Frame, int64, bool, error) {
	_, key, ok, err := d.Decoder.Receive()
	if d.wrong {
		return plain(99), key, ok, err
	}
	return plain(key), key, ok, err
}

// newProof returns a file whose second half has another sample entry, a host, a device that decodes
// frames of that entry incorrectly, and a core.
func newProof(t *testing.T) (s *Split, f *File, free chan struct{}) {
	t.Helper()
	inOrder := func(key int64) int64 { return key }
	host := &plains{scripted: scripted{show: inOrder}}
	x := &fake{
		entries: [][]byte{
			entryBox("avc1", 64, 48, rawBox("avcC", 1, 100, 0, 30, 0xff, 0xe0, 0)),
			entryBox("avc1", 96, 48, rawBox("avcC", 1, 100, 0, 30, 0xff, 0xe0, 0)),
		},
	}
	for i := range 12 {
		x.samples = append(
			x.samples,
			fakeSample{size: 10, delta: 512, sync: i%2 == 0, entry: uint32(i / 6)},
		)
	}
	lib := NewLibrary(
		func(context.Context, string) (robocache.Ranged, error) {
			return &memory{data: x.bytes()}, nil
		},
		0,
	)
	f, err := lib.Acquire(t.Context(), "a.mp4")
	if err != nil {
		t.Fatal(err)
	}
	free = make(chan struct{}, 1)
	s = NewSplit(NewPoolOf(host, 0), &plains{scripted: scripted{show: inOrder}, wrong: 96}, 0, true)
	t.Cleanup(func() { f.Release(); _, _, _ = lib.Close(), s.Close(), s.host.Close() })
	return s, f, free
}

// Frames that the device decodes differently are decoded on the host, at any position of a file or
// call.
func TestProofIsOfEachSampleEntry(t *testing.T) {
	s, f, free := newProof(t)
	core := func() func() { free <- struct{}{}; return func() { <-free } }
	for range 3 {
		seen := 0
		err := s.Decode(
			t.Context(),
			f,
			nil,
			Plan(f.Index, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
			core,
			func(k int, pic Frame) error {
				if seen++; pic != plain(k) {
					t.Errorf("frame %d is %v", k, pic)
				}
				return nil
			},
		)
		if err != nil || seen != 12 {
			t.Fatal(seen, err)
		}
	}
	if x := s.Stats(); x.GPU == 0 || len(x.OnCPU) != 1 || len(free) != 0 {
		t.Errorf("%+v", x)
	}
}

// A panic of the caller's deliver function releases the core, and the stream can still be compared
// later.
func TestPanicWhileProving(t *testing.T) {
	s, f, free := newProof(t)
	core := func() func() { free <- struct{}{}; return func() { <-free } }
	decode := func(deliver func(int, Frame) error) (err any) {
		defer func() { err = recover() }()
		return s.Decode(t.Context(), f, nil, Plan(f.Index, []int{0, 1}), core, deliver)
	}
	if decode(func(int, Frame) error { panic("of the test") }) != "of the test" || len(free) != 0 {
		t.Fatal("a core is lost")
	}
	for range 2 {
		if err := decode(func(int, Frame) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if x := s.Stats(); x.GPU == 0 {
		t.Errorf("%+v", x)
	}
}
