//go:build cgo

package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

func clipNamed(t testing.TB, name string) clip {
	t.Helper()
	for _, c := range clips {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no clip %q", name)
	return clip{}
}

// memoryFile serves bytes. If fail is set, it returns the error of fail instead.
type memoryFile struct {
	data []byte
	fail func(off int64) error
}

func (m *memoryFile) ReadAt(_ context.Context, p []byte, off int64) error {
	if m.fail != nil {
		if err := m.fail(off); err != nil {
			return err
		}
	}
	if off < 0 || off > int64(len(m.data)) || int64(len(m.data))-off < int64(len(p)) {
		return errors.New("read after the end")
	}
	copy(p, m.data[off:])
	return nil
}
func (m *memoryFile) Size() int64     { return int64(len(m.data)) }
func (m *memoryFile) Version() string { return "1" }
func (m *memoryFile) Close() error    { return nil }

func fileOf(t testing.TB, m *memoryFile) *video.File {
	t.Helper()
	lib := video.NewLibrary(
		func(context.Context, string) (robocache.Ranged, error) { return m, nil },
		0,
	)
	f, err := lib.Acquire(context.Background(), "clip.mp4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Release(); lib.Close() })
	return f
}

// A caller that requests one frame after the other sends about one packet per frame, for any GOP
// and with delayed output.
func TestItemsInOrder(t *testing.T) {
	names := []string{
		"hevc open gop",
		"av1 g=2",
		"h264 gop 250, b-frames",
		"h264 open gop, b-pyramid, 4 refs",
		"mpeg4 b-frames",
		"av1 g=16, hidden frames",
		"vp9 alternate references",
	}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := clipNamed(t, name)
			path, want := c.make(t), c.hashes(t)
			f := acquire(t, path)
			p := newPool(t, 0)
			for _, step := range []int{1, 3} {
				before := p.Stats().Packets
				for k := 0; k < len(want); k += step {
					if s := sum(images(t, p, f, []int{k},
						video.Spec{Pixel: video.YUVPlanes})[k]); s != want[k] {
						t.Fatalf("step %d: frame %d is not ffmpeg's", step, k)
					}
				}
				if sent := p.Stats().Packets - before; sent > int64(len(want)+60) {
					t.Errorf("step %d: %d packets for %d frames", step, sent, len(want)/step)
				}
			}
			// Three files in turn, like the cameras of one robot.
			files := []*video.File{f, acquire(t, path), acquire(t, path)}
			before := p.Stats().Packets
			for k := range want {
				for _, f := range files {
					if s := sum(images(t, p, f, []int{k},
						video.Spec{Pixel: video.YUVPlanes})[k]); s != want[k] {
						t.Fatalf("in turn: frame %d is not ffmpeg's", k)
					}
				}
			}
			sent := p.Stats().Packets - before
			t.Logf("three files in turn: %d packets for %d frames", sent, 3*len(want))
			// Backwards, and in windows that overlap.
			for k := len(want) - 1; k >= 0; k -= 7 {
				set := []int{k, min(k+1, len(want)-1), min(k+2, len(want)-1), max(k-3, 0)}
				got := images(t, p, f, set, video.Spec{Pixel: video.YUVPlanes})
				for _, k := range set {
					if sum(got[k]) != want[k] {
						t.Fatalf("windows: frame %d is not ffmpeg's", k)
					}
				}
			}
		})
	}
}

// Files of one encoder share decoders. Their number depends on the callers, not on the files.
func TestDecodersAreShared(t *testing.T) {
	path := clipNamed(t, "av1 g=2").make(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(t, 0)
	for range 50 {
		f := fileOf(t, &memoryFile{data: data})
		images(t, p, f, []int{3, 67}, video.Spec{})
	}
	if s := p.Stats(); s.Opened != 1 || s.Idle != 1 || s.IdleBytes <= 0 {
		t.Errorf("50 files of one encoder: %+v", s)
	}
}

// Eight goroutines on one pool get the same pixels as one, and no goroutine remains.
func TestHammer(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, name := range []string{"av1 g=2", "h264 open gop", "hevc open gop"} {
		c := clipNamed(t, name)
		path, want := c.make(t), c.hashes(t)
		lib := video.NewLibrary(openDisk, 0)
		p := video.NewPool(8 << 20) // evicts decoders all the time
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := newRand(uint64(g))
				f, err := lib.Acquire(context.Background(), path)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Release()
				spec := video.Spec{Pixel: video.YUVPlanes}
				for range 12 {
					set := make([]int, 1+r.IntN(6))
					for i := range set {
						set[i] = r.IntN(len(want))
					}
					err := p.Decode(
						context.Background(),
						f,
						nil,
						video.Plan(f.Index, set),
						func(k int, pic video.Frame) error {
							n, err := pic.Bytes(&spec)
							if err != nil {
								return err
							}
							b := make([]byte, n)
							if err := pic.Convert(&spec, b); err != nil {
								return err
							}
							if sum(b) != want[k] {
								return fmt.Errorf("frame %d is not ffmpeg's", k)
							}
							return nil
						},
					)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			}()
		}
		wg.Wait()
		if s := p.Stats(); s.IdleBytes > 8<<20 {
			t.Errorf("budget: %+v", s)
		}
		if err := errors.Join(p.Close(), lib.Close()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Idle != 0 || s.IdleBytes != 0 {
			t.Errorf("after Close: %+v", s)
		}
	}
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
}

// ffmpeg.F4: damaged packets give an error or a frame. The next file on the same pool is decoded
// correctly.
func TestMutatedPackets(t *testing.T) {
	rounds := 12
	switch {
	case exhaustive():
		rounds = 100
	case testing.Short():
		rounds = 5
	}
	t.Logf("%d rounds a clip (ROBOCACHE_EXHAUSTIVE=1: 100)", rounds)
	names := []string{
		"av1 g=2",
		"h264 open gop",
		"hevc open gop",
		"av1 g=16, hidden frames",
		"h264 gop 250, b-frames",
		"h264 lossless 4:4:4",
		"h264 interlaced",
		"hevc default",
		"hevc gray12 lossless g=2",
		"mpeg4 b-frames",
		"vp9 g=8",
	}
	if testing.Short() {
		names = names[:3]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := clipNamed(t, name).make(t)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := clipNamed(t, name).hashes(t)
			good := acquire(t, path)
			p := newPool(t, 0)
			r := newRand(5)
			failed := 0
			for range rounds {
				bad := bytes.Clone(data)
				f := fileOf(t, &memoryFile{data: bad})
				for range 1 + r.IntN(20) {
					s := f.Index.Sample(r.IntN(f.Index.NumSamples()))
					if s.Size == 0 {
						continue
					}
					at := s.Offset + int64(r.IntN(s.Size))
					switch r.IntN(3) {
					case 0:
						bad[at] ^= 1 << r.IntN(8)
					case 1:
						for i := at; i < min(at+40, s.Offset+int64(s.Size)); i++ {
							bad[i] = byte(r.Uint32())
						}
					case 2: // the header of the packet
						bad[s.Offset+int64(r.IntN(min(s.Size, 12)))] = byte(r.Uint32())
					}
				}
				set := upTo(len(want))
				if r.IntN(2) == 0 {
					set = []int{r.IntN(len(want)), r.IntN(len(want)), r.IntN(len(want))}
				}
				var buf []byte
				for _, g := range video.Plan(f.Index, set) {
					err := p.Decode(
						context.Background(),
						f,
						nil,
						[]video.Group{g},
						func(k int, pic video.Frame) error {
							for _, spec := range []video.Spec{
								{ChannelsFirst: true},
								{Pixel: video.YUVPlanes},
							} {
								n, err := pic.Bytes(&spec)
								if err != nil {
									return err
								}
								if n > 64<<20 {
									return fmt.Errorf("a frame of %d bytes", n)
								}
								if cap(buf) < n {
									buf = make([]byte, n)
								}
								if err := pic.Convert(&spec, buf[:n]); err != nil {
									return err
								}
							}
							return nil
						},
					)
					if err != nil {
						failed++
						var e *robocache.Error
						if !errors.As(err, &e) || e.Where["file"] != "clip.mp4" ||
							e.Where["frame"] == nil ||
							e.Where["codec"] == nil {
							t.Fatalf("untyped or without place: %v", err)
						}
					}
				}
			}
			k := r.IntN(len(want))
			if s := sum(images(t, p, good, []int{k}, video.Spec{Pixel: video.YUVPlanes})[k]); s !=
				want[k] {
				t.Errorf("after the damaged ones frame %d is not ffmpeg's", k)
			}
			t.Logf("%d groups failed; %d decoders opened", failed, p.Stats().Opened)
		})
	}
}

func TestErrorsKeepTheirPlace(t *testing.T) {
	path := clipNamed(t, "h264 g=2").make(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := clipNamed(t, "h264 g=2").hashes(t)
	m := &memoryFile{data: data}
	f := fileOf(t, m)
	p := newPool(t, 0)
	ctx := context.Background()
	none := func(int, video.Frame) error { return nil }
	one := video.Plan(f.Index, []int{9})[0]

	mine := errors.New("mine")
	if err := p.Decode(
		ctx,
		f,
		nil,
		[]video.Group{one},
		func(int, video.Frame) error { return mine },
	); err != mine {
		t.Errorf("deliver's error became %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.Decode(gone, f, nil, []video.Group{one}, none); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	half, stop := context.WithCancel(ctx)
	if err := p.Decode(
		half,
		f,
		nil,
		[]video.Group{{Start: 0, End: clipFrames - 1, Ordinals: upTo(clipFrames)}},
		func(k int, _ video.Frame) error {
			if k == 5 {
				stop()
			}
			return nil
		},
	); !errors.Is(
		err,
		context.Canceled,
	) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	m.fail = func(int64) error {
		return &robocache.Error{Class: robocache.ErrTemporary, Msg: "the network"}
	}
	err = p.Decode(ctx, f, nil, []video.Group{one}, none)
	if !errors.Is(err, robocache.ErrTemporary) || !strings.Contains(err.Error(), "clip.mp4") ||
		!strings.Contains(err.Error(), "frame 9") {
		t.Errorf("read error: %v", err)
	}
	m.fail = nil
	if opened := p.Stats().Opened; opened != 1 {
		t.Errorf("%d decoders opened: none of these errors spoils one", opened)
	}
	got := images(t, p, f, []int{9}, video.Spec{Pixel: video.YUVPlanes})
	if sum(got[9]) != want[9] {
		t.Error("after the errors frame 9 is not ffmpeg's")
	}
	if err := p.Decode(ctx, f, nil, []video.Group{video.Plan(f.Index, []int{clipFrames})[0]},
		none); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("a frame behind the last: %v", err)
	}
	if err := p.Decode(ctx, f, nil, []video.Group{{Start: 4, End: 6, Ordinals: []int{9}}},
		none); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a group without the frame's packet: %v", err)
	}
	if err := p.Decode(ctx, f, nil, []video.Group{{}}, none); err != nil {
		t.Errorf("an empty group: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Decode(ctx, f, nil, []video.Group{one}, none); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Errorf("after Close: %v", err)
	}
}

// A pool that is closed during decoding closes the decoders when they are released.
func TestCloseWhileDecoding(t *testing.T) {
	f := acquire(t, clipNamed(t, "h264 g=2").make(t))
	p := video.NewPool(0)
	err := p.Decode(
		context.Background(),
		f,
		nil,
		[]video.Group{video.Plan(f.Index, []int{9})[0]},
		func(int, video.Frame) error { return p.Close() },
	)
	if err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Idle != 0 {
		t.Errorf("%+v", s)
	}
}

// ffmpeg.F6: a frame allocates no Go memory.
func TestNoAllocation(t *testing.T) {
	f := acquire(t, clipNamed(t, "av1 g=2").make(t))
	p := newPool(t, 0)
	spec := video.Spec{ChannelsFirst: true}
	dst := make([]byte, 3*160*120)
	deliver := func(_ int, pic video.Frame) error { return pic.Convert(&spec, dst) }
	var planner video.Planner
	r := newRand(1)
	set := make([]int, 3)
	step := func() {
		for i := range set {
			set[i] = r.IntN(clipFrames)
		}
		for _, g := range planner.Plan(f.Index, set) {
			if err := p.Decode(context.Background(), f, nil, []video.Group{g}, deliver); err !=
				nil {
				t.Fatal(err)
			}
		}
	}
	for range 50 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestUnsupportedCodec(t *testing.T) {
	b, err := video.ActiveBackend()
	if err != nil {
		t.Fatal(err)
	}
	if b.Name() != "ffmpeg" || b.Version() == "" {
		t.Errorf("%s %s", b.Name(), b.Version())
	}
	if _, err := b.NewDecoder(&video.SampleEntry{
		FourCC: "apcn", Width: 8,
		Height: 8,
	}); !isUnsupported(err) {
		t.Errorf("ProRes: %v", err)
	}
	if _, err := b.NewDecoder(&video.SampleEntry{
		Codec: video.H264, Width: 1 << 20,
		Height: 1 << 20,
	}); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("a terapixel: %v", err)
	}
	if _, err := b.NewDecoder(&video.SampleEntry{
		Codec:    video.H264,
		Rotation: 45,
	}); !isUnsupported(err) {
		t.Errorf("45 degrees: %v", err)
	}
}

// Opening and closing many decoders does not increase the memory of the process.
func TestNoLeak(t *testing.T) {
	resident := func() int64 {
		debug.FreeOSMemory() // excludes garbage of the Go heap
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip("no /proc/self/statm")
		}
		var total, pages int64
		if _, err := fmt.Sscan(string(b), &total, &pages); err != nil {
			t.Fatal(err)
		}
		return pages * int64(os.Getpagesize())
	}
	for _, name := range []string{"av1.mp4", "w322.mp4", "gray12.mp4", "odd_101x67_vp9.mp4"} {
		f := acquire(t, "testdata/odd/"+name)
		spec := video.Spec{Pixel: video.RGBFloat32, Width: 320, Height: 240}
		var dst []byte
		round := func() {
			p := video.NewPool(0)
			if err := p.Decode(
				context.Background(),
				f,
				nil,
				video.Plan(f.Index, []int{1, 5}),
				func(_ int, pic video.Frame) error {
					n, err := pic.Bytes(&spec)
					if err != nil {
						return err
					}
					if dst == nil {
						dst = make([]byte, n)
					}
					return pic.Convert(&spec, dst)
				},
			); err != nil {
				t.Fatal(err)
			}
			p.Close()
		}
		for range 20 {
			round()
		}
		// A leak grows in each round; memory that threads keep is allocated once.
		for try := 1; ; try++ {
			before := resident()
			for range 60 {
				round()
			}
			grown := resident() - before
			if grown <= 12<<20 {
				break
			}
			if try == 3 {
				t.Fatalf("%s: %d KiB more after 60 decoders", name, grown>>10)
			}
		}
	}
}
