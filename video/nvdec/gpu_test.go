//go:build cgo

package nvdec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// engines returns the backend of the first device. Without one, the test is skipped with the
// reason, or fails if ROBOCACHE_NEED_GPU=1.
func engines(t testing.TB) *Backend {
	t.Helper()
	b, err := Open(0)
	if err != nil {
		if os.Getenv("ROBOCACHE_NEED_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return b
}

// clips returns the video files of the folder ROBOCACHE_NVDEC_CLIPS, or else the real data.
func clips(t testing.TB) (*video.Library, []string) {
	t.Helper()
	dir := os.Getenv("ROBOCACHE_NVDEC_CLIPS")
	if dir == "" {
		dir = realdata.Dir(t)
	}
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".mp4") {
			path, err = filepath.Rel(dir, path)
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	local, err := store.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	lib := video.NewLibrary(local.Open, 0)
	t.Cleanup(func() { _ = lib.Close() })
	return lib, names
}

// named returns the clips that ROBOCACHE_NVDEC_LIMITS names.
func named(t testing.TB) (*video.Library, []string) {
	t.Helper()
	only := os.Getenv("ROBOCACHE_NVDEC_LIMITS")
	if only == "" {
		t.Skip("ROBOCACHE_NVDEC_LIMITS names no clips")
	}
	lib, names := clips(t)
	names = slices.DeleteFunc(names, func(name string) bool {
		return !slices.Contains(
			strings.Split(only, ","),
			strings.TrimSuffix(filepath.Base(name), ".mp4"),
		)
	})
	if len(names) < len(strings.Split(only, ",")) {
		t.Fatalf("of %s there are only %s", only, names)
	}
	return lib, names
}

// timed calls f with each clip that ROBOCACHE_NVDEC_LIMITS names, and with its packets.
func timed(t *testing.T, f func(name string, v *video.File, packets [][]byte)) {
	t.Helper()
	lib, names := named(t)
	for _, path := range names {
		name := filepath.Base(path)
		v, err := lib.Acquire(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		var packets [][]byte
		for d := range v.Index.NumSamples() {
			s := v.Index.Sample(d)
			p := make([]byte, s.Size)
			if err := v.Ranged.ReadAt(t.Context(), p, s.Offset); err != nil {
				t.Fatal(err)
			}
			packets = append(packets, p)
		}
		f(name, v, packets)
		v.Release()
	}
}

// decoded is a frame that a pool returned: its planes and their layout.
type decoded struct {
	info   video.PlaneInfo
	planes []byte
}

func decodeAll(
	ctx context.Context,
	p *video.Pool,
	f *video.File,
	numbers []int,
) (map[int]decoded, error) {
	out := map[int]decoded{}
	err := p.Decode(ctx, f, nil, video.Plan(f.Index, numbers), func(k int, pic video.Frame) error {
		x, ok := pic.(video.PlanarFrame)
		if !ok {
			return errors.New("no planes")
		}
		info, ok := x.PlaneInfo()
		if !ok {
			return errors.New("planes are not kept")
		}
		d := decoded{info, make([]byte, info.Bytes())}
		out[k] = d
		return x.CopyPlanes(d.planes)
	})
	return out, err
}

// nvdec.N4: every frame of every supported clip, in order and at random, has the planes that
// libavcodec decodes.
func TestPlanesOnGPU(t *testing.T) {
	b := engines(t)
	t.Log(b.Version())
	for _, c := range []video.Codec{video.H264, video.HEVC, video.VP9, video.AV1} {
		x, err := b.codecCaps(c)
		t.Logf(
			"%s: %d engines, %d×%d to %d×%d, %d blocks; %v",
			c,
			x.engines,
			x.minWidth,
			x.minHeight,
			x.maxWidth,
			x.maxHeight,
			x.maxBlocks,
			err,
		)
	}
	lib, names := clips(t)
	taken := 0
	for _, name := range names {
		f, err := lib.Acquire(t.Context(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		short := filepath.Base(filepath.Dir(name)) + "/" + filepath.Base(name)
		codec := f.Index.Entries()[0].Codec
		if err := b.Supports(codec); err != nil {
			t.Logf("%-40s %v", short, err)
			f.Release()
			continue
		}
		n := min(f.Index.NumFrames(), 480)
		var all []int
		for k := range n {
			all = append(all, k)
		}
		cpu, gpu := video.NewPool(0), video.NewPoolOf(b, 0)
		want, err := decodeAll(t.Context(), cpu, f, all)
		if err != nil {
			t.Errorf("%s: %v", short, err)
		}
		begin := time.Now()
		got, err := decodeAll(t.Context(), gpu, f, all)
		switch {
		case errors.Is(err, robocache.ErrUnsupported):
			t.Logf("%-40s refused: %v", short, err)
		case err != nil:
			t.Errorf("%s: %v", short, err)
		default:
			taken++
			wrong := compare(want, got)
			t.Logf(
				"%-40s %s, %d frames in order, %d/%d decoded, %.0f frames/s: %s",
				short,
				codec,
				len(got),
				gpu.Stats().Decoded,
				n,
				float64(n)/time.Since(begin).Seconds(),
				wrong,
			)
			random := 0
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range 60 {
				some := make([]int, 1+r.IntN(10))
				for i := range some {
					some[i] = r.IntN(n)
				}
				got, err := decodeAll(t.Context(), gpu, f, some)
				if err != nil {
					t.Errorf("%s: %v: %v", short, some, err)
					break
				}
				part := map[int]decoded{}
				for _, k := range some {
					part[k] = want[k]
				}
				if w := compare(part, got); w != "equal" {
					wrong = w
					break
				}
				random += len(got)
			}
			t.Logf("%-40s %d random frames: %s; %+v", "", random, wrong, gpu.Stats())
			if wrong != "equal" {
				t.Errorf("%s: %s", short, wrong)
			}
		}
		_, _ = cpu.Close(), gpu.Close()
		f.Release()
	}
	if taken == 0 {
		t.Error("no clip was taken")
	}
}

func compare(want, got map[int]decoded) string {
	for k, w := range want {
		g, ok := got[k]
		if !ok {
			return fmt.Sprintf("frame %d is missing", k)
		}
		if g.info != w.info {
			return fmt.Sprintf("frame %d is %+v, want %+v", k, g.info, w.info)
		}
		if !bytes.Equal(g.planes, w.planes) {
			n, first := 0, -1
			for i := range w.planes {
				if w.planes[i] != g.planes[i] {
					if n++; first < 0 {
						first = i
					}
				}
			}
			return fmt.Sprintf(
				"frame %d differs in %d of %d bytes, first at %d",
				k,
				n,
				len(w.planes),
				first,
			)
		}
	}
	return "equal"
}

// Random frames are equal to those of the CPU decoder.
func TestRandomFramesOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("short: seconds a clip")
	}
	b := engines(t)
	table := crc32.MakeTable(crc32.Castagnoli)
	var checked, wrong atomic.Int64
	timed(t, func(name string, f *video.File, _ [][]byte) {
		want := make([]uint32, f.Index.NumFrames())
		var all []int
		for k := range want {
			all = append(all, k)
		}
		sum := func(pic video.Frame, room []byte) ([]byte, uint32, error) {
			p := pic.(video.PlanarFrame)
			info, _ := p.PlaneInfo()
			room = slices.Grow(room[:0], info.Bytes())[:info.Bytes()]
			err := p.CopyPlanes(room)
			return room, crc32.Checksum(room, table), err
		}
		cpu, gpu := video.NewPool(0), video.NewPoolOf(b, 4<<30)
		var room []byte
		err := cpu.Decode(
			t.Context(),
			f,
			nil,
			video.Plan(f.Index, all),
			func(k int, pic video.Frame) (err error) {
				room, want[k], err = sum(pic, room)
				return err
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		begin := time.Now()
		for w := range 28 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(9, uint64(w)))
				var room []byte
				for time.Since(begin) < 6*time.Second {
					some := make([]int, 1+r.IntN(4))
					for i := range some {
						some[i] = r.IntN(len(want))
					}
					err := gpu.Decode(
						t.Context(),
						f,
						nil,
						video.Plan(f.Index, some),
						func(k int, pic video.Frame) (err error) {
							var got uint32
							if room, got, err = sum(pic, room); err == nil {
								checked.Add(1)
								if got != want[k] {
									wrong.Add(1)
								}
							}
							return err
						},
					)
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%-16s %d random frames so far, %d wrong", name, checked.Load(), wrong.Load())
		_, _ = cpu.Close(), gpu.Close()
	})
	if wrong.Load() > 0 {
		t.Errorf("%d of %d frames are wrong", wrong.Load(), checked.Load())
	}
}

// Frames of a damaged file that depend on no damaged packet are equal to the CPU's. For most others
// the engine reports an error, and the CPU decodes them. Damage that yields a valid stream cannot
// be detected: such frames differ, and the test prints how often.
func TestDamagedOnGPU(t *testing.T) {
	b := engines(t)
	lib, names := named(t)
	r := rand.New(rand.NewPCG(11, 0))
	for _, name := range names {
		f, err := lib.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		whole := make([]byte, f.Ranged.Size())
		if err := f.Ranged.ReadAt(t.Context(), whole, 0); err != nil {
			t.Fatal(err)
		}
		frames, touched, differ, device := 0, 0, 0, int64(0)
		for range 15 {
			x := *f
			bytes := slices.Clone(whole)
			var damaged []int
			for range 1 + r.IntN(3) {
				damaged = append(damaged, r.IntN(f.Index.NumSamples()))
				s := f.Index.Sample(damaged[len(damaged)-1])
				for range 1 + r.IntN(8) {
					bytes[s.Offset+8+r.Int64N(max(int64(s.Size)-8, 1))] ^= byte(1 + r.IntN(255))
				}
			}
			x.Ranged = memory{bytes}
			cpu := video.NewPool(0)
			split := video.NewSplit(video.NewPool(0), b, 1<<30, true)
			warm := func() func() { return func() {} }
			// the comparison with the CPU uses an undamaged stream
			_ = split.Decode(
				t.Context(),
				f,
				nil,
				video.Plan(f.Index, []int{f.Index.NumFrames() - 1}),
				warm,
				func(int, video.Frame) error { return nil },
			)
			for range 30 {
				k := r.IntN(f.Index.NumFrames())
				want, failed := decodeAll(t.Context(), cpu, &x, []int{k})
				got := map[int]decoded{}
				err := split.Decode(
					t.Context(),
					&x,
					nil,
					video.Plan(x.Index, []int{k}),
					warm,
					func(k int, pic video.Frame) error {
						p := pic.(video.PlanarFrame)
						info, _ := p.PlaneInfo()
						d := decoded{info, make([]byte, info.Bytes())}
						got[k] = d
						return p.CopyPlanes(d.planes)
					},
				)
				frames++
				needs := slices.ContainsFunc(
					video.Plan(x.Index, []int{k}),
					func(g video.Group) bool {
						return slices.ContainsFunc(
							damaged,
							func(d int) bool { return d >= g.Start && d <= g.End },
						)
					},
				)
				same := (err == nil) == (failed == nil) &&
					(err != nil || compare(want, got) == "equal")
				switch {
				case needs:
					if touched++; !same {
						differ++
					}
				case !same:
					t.Errorf(
						"%s, frame %d, which no damaged packet is needed for: on the CPU %v, "+
							"beside the GPU %v, %s",
						filepath.Base(name),
						k,
						failed,
						err,
						compare(want, got),
					)
				}
			}
			device += split.Stats().GPU
			_, _ = cpu.Close(), split.Close()
		}
		t.Logf(
			"%-16s %d frames of 15 damaged files, %d decoded on the GPU; "+
				"%d need a damaged packet, of these %d differ from the CPU's",
			filepath.Base(name),
			frames,
			device,
			touched,
			differ,
		)
		f.Release()
	}
}

// memory is a file in memory.
type memory struct{ b []byte }

func (m memory) Size() int64     { return int64(len(m.b)) }
func (m memory) Version() string { return "" }
func (m memory) Close() error    { return nil }
func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, m.b[off:])
	return nil
}

// TestStillsOnGPU compares JPEG files (*.jpg in the clips' folder) that the engines decode with the
// luma of libjpeg-turbo (*.grey next to them). They differ, which is why nvdec.N2 excludes JPEG.
func TestStillsOnGPU(t *testing.T) {
	b := engines(t)
	const codecJPEG = 5 // cudaVideoCodec_JPEG
	c := decodeCaps{codec: codecJPEG, chroma: chroma420}
	err := b.driver.queryCaps(&c)
	t.Logf(
		"jpeg: %d engines, supported %d, outputs %b, %d×%d to %d×%d; %v",
		c.engines,
		c.supported,
		c.outputs,
		c.minWidth,
		c.minHeight,
		c.maxWidth,
		c.maxHeight,
		err,
	)
	if c.supported == 0 {
		return
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("ROBOCACHE_NVDEC_CLIPS"), "*.jpg"))
	for _, name := range files {
		data, err := os.ReadFile(name)
		want, err2 := os.ReadFile(strings.TrimSuffix(name, ".jpg") + ".grey")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		d := &decoder{backend: b, caps: c, entry: video.SampleEntry{Codec: "jpeg"}, surface: none}
		d.frame.decoder = d
		if err := d.openParser(); err != nil {
			t.Fatal(err)
		}
		d.packet = sourcePacket{
			flags: timestamped | wholeFrame,
			size:  uint64(len(data)),
			data:  unsafe.Pointer(unsafe.SliceData(data)),
		}
		err = d.parseCurrent()
		pic, _, ok, _ := receive(d)
		if err != nil || !ok {
			t.Logf("%-24s %v, a frame: %v", filepath.Base(name), err, ok)
			d.Close()
			continue
		}
		info, _ := pic.(video.PlanarFrame).PlaneInfo()
		planes := make([]byte, info.Bytes())
		if err := pic.(video.PlanarFrame).CopyPlanes(planes); err != nil {
			t.Error(err)
		}
		p, _ := info.Planes()
		var levels [256]int
		if len(want) == p[0].Rows*p[0].RowBytes {
			for y := range p[0].Rows {
				for x := range p[0].RowBytes {
					levels[max(
						planes[p[0].Offset+y*p[0].Stride+x],
						want[y*p[0].RowBytes+x],
					)-min(planes[p[0].Offset+y*p[0].Stride+x], want[y*p[0].RowBytes+x])]++
				}
			}
		}
		most := 0
		for i, n := range levels {
			if n > 0 {
				most = i
			}
		}
		t.Logf(
			"%-24s %+v: luma equal in %d of %d samples, 1 apart %d, 2 apart %d, at most %d",
			filepath.Base(name),
			info,
			levels[0],
			len(want),
			levels[1],
			levels[2],
			most,
		)
		d.releaseAll()
	}
}
