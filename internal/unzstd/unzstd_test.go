package unzstd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// plain returns n bytes that compress moderately, like sensor data.
func plain(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	v := byte(0)
	for i := range b {
		if r.IntN(4) == 0 {
			v += byte(r.IntN(9)) - 4
		}
		b[i] = v
	}
	return b
}

// frame compresses data. With stream, the frame does not declare its size.
func frame(t testing.TB, data []byte, sums, stream bool, level int) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(
		&out,
		zstd.WithEncoderCRC(sums),
		zstd.WithEncoderLevel(zstd.EncoderLevel(level)),
		zstd.WithEncoderConcurrency(1),
	)
	if err != nil {
		t.Fatal(err)
	}
	if !stream {
		return w.EncodeAll(data, nil)
	}
	for at := 0; at < len(data); at += 100_000 {
		if _, err := w.Write(data[at:min(at+100_000, len(data))]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ways holds the two implementations. They are the same if libzstd is not linked.
var ways = map[string]func(dst, src []byte, need int, sums Sums) (int, error){
	"built": unzstdFrames,
	"pure":  unzstdPure,
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var skippable = []byte("\x53\x2a\x4d\x18\x05\x00\x00\x00hello")

func TestRoundTrip(t *testing.T) {
	t.Logf("libzstd linked: %v", Native())
	for name, way := range ways {
		for _, n := range []int{0, 1, 3, 100, 65536, 131072, 131073, 700_001} {
			for _, stream := range []bool{false, true} {
				data := plain(n, uint64(n))
				one := frame(t, data, n%2 == 0, stream, 1+n%3)
				for form, src := range map[string][]byte{
					"one":       one,
					"skippable": join(skippable, one, skippable),
					"two":       join(one, skippable, frame(t, data, true, false, 1)),
				} {
					want := data
					if form == "two" {
						want = join(data, data)
					}
					for _, room := range []int{len(want), len(want) + 9} {
						dst := make([]byte, room+16)
						if got, err := way(dst[:room:room], src, needAll, Verify); err != nil ||
							!bytes.Equal(dst[:got], want) {
							t.Fatalf(
								"%s %s %d of %d, stream %v: %d %v",
								name,
								form,
								n,
								room,
								stream,
								got,
								err,
							)
						}
						if !bytes.Equal(dst[room:], make([]byte, 16)) {
							t.Fatalf("%s writes behind dst", name)
						}
					}
					if n > 0 {
						if got, err := way(make([]byte, len(want)-1), src, needAll,
							Verify); !errors.Is(err, ErrRoom) {
							t.Fatalf(
								"%s %s %d, stream %v: one byte less of room: %d %v",
								name,
								form,
								n,
								stream,
								got,
								err,
							)
						}
					}
				}
			}
		}
	}
}

// TestPrefix checks unzstd.U2 on intact data and on data truncated at any offset.
func TestPrefix(t *testing.T) {
	data := plain(600_000, 4)
	dst := make([]byte, len(data))
	for name, way := range ways {
		for _, stream := range []bool{false, true} {
			src := frame(t, data, true, stream, 2)
			for _, need := range []int{0, 1, 99, 131072, 200_000, 599_999, 600_000, 700_000} {
				clear(dst)
				n, err := way(dst, src, need, Ignore)
				if err != nil || n < min(need, len(data)) || !bytes.Equal(dst[:n], data[:n]) {
					t.Fatalf(
						"%s: %d of %d, stream %v: %d %v",
						name,
						need,
						len(data),
						stream,
						n,
						err,
					)
				}
				if most := need + 128<<10; n > most && (name == "built" && Native() || !stream) {
					t.Errorf("%s: %d decoded where %d are wanted, stream %v", name, n, need, stream)
				}
			}
			last := 0
			for cut := 0; cut < len(src); cut += 997 {
				clear(dst)
				n, err := way(dst, src[:cut], len(data), Ignore)
				if cut > 0 && err == nil || n < last || !bytes.Equal(dst[:n], data[:n]) {
					t.Fatalf(
						"%s: cut at %d of %d: %d, before %d: %v",
						name,
						cut,
						len(src),
						n,
						last,
						err,
					)
				}
				last = n
			}
			if last < 400_000 {
				t.Errorf("%s: of a frame that lacks its end only %d bytes come", name, last)
			}
		}
	}
}

func TestTypedErrors(t *testing.T) {
	data := plain(1000, 2)
	src := frame(t, data, true, false, 1)
	for _, n := range []int{0, 999} {
		if _,
			err := Decode(make([]byte, n), src, Verify); !errors.Is(err, robocache.ErrMalformed) ||
			!errors.Is(err, ErrRoom) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := Fill(make([]byte, 1001), src, Verify); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	dst := make([]byte, 1000)
	bad := bytes.Clone(src)
	bad[len(bad)-1]++
	if err := Fill(dst, bad, Verify); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("wrong check sum: %v", err)
	}
	if err := Fill(dst, bad, Ignore); err != nil || !bytes.Equal(dst, data) {
		t.Errorf("a sum that nobody asks for: %v", err)
	}
	for n := 1; n < len(src); n++ {
		if _, err := Decode(dst, src[:n], Verify); !errors.Is(err, errDamaged) &&
			!errors.Is(err, ErrRoom) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{
		"rubbish":        []byte("rubbish!"),
		"rubbish behind": join(src, []byte("x")),
		"dictionary":     []byte("\x28\xb5\x2f\xfd\x21\x07\x00\x01\x00\x00"),
	} {
		if _, err := Decode(dst, b, Verify); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoMemory checks that no memory is allocated for the window or size that a frame declares
// (unzstd.U1).
func TestNoMemory(t *testing.T) {
	allocated := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	dst := make([]byte, 64)
	window := []byte(
		"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00",
	) // 2 GiB window and an empty block
	size := []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x80\x01\x00\x00") // 2 GiB declared
	for name, way := range ways {
		for range 2 { // the first call creates a decoder
			_, _ = way(dst, frame(t, dst, false, false, 1), needAll, Verify)
		}
		before := allocated()
		if n, err := way(dst, window, needAll, Verify); n != 0 || err != nil {
			t.Errorf("%s: %d %v", name, n, err)
		}
		if _, err := way(dst, size, needAll, Verify); !errors.Is(err, ErrRoom) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := way(dst, size, 10, Ignore); !errors.Is(err, ErrRoom) {
			t.Errorf("%s: %v", name, err)
		}
		if got := allocated() - before; got > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, got)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				data := plain(1000+g*100+i, uint64(i))
				dst := make([]byte, len(data))
				if err := Fill(dst, frame(t, data, i%2 == 0, g%2 == 0, 1), Verify); err != nil ||
					!bytes.Equal(dst, data) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzBothWays checks that data accepted by both implementations decompresses to the same bytes,
// and that a prefix is the beginning of the whole (unzstd.U2, unzstd.U3).
func FuzzBothWays(f *testing.F) {
	data := plain(300, 9)
	for _, src := range [][]byte{
		frame(f, data, true, false, 1),
		frame(f, data, false, true, 2),
		join(frame(f, data, true, false, 3), skippable, frame(f, data[:9], false, true, 1)),
	} {
		f.Add(uint16(400), uint16(100), src)
		f.Add(uint16(200), uint16(200), src)
		f.Add(uint16(400), uint16(1), src[:len(src)-3])
	}
	f.Add(
		uint16(64),
		uint16(1),
		[]byte("\x28\xb5\x2f\xfd\x20\x40\x15\x00\x00\x08\x00\x01\x00\xfa\x2b\x80\x05"),
	)
	f.Fuzz(func(t *testing.T, room, need uint16, src []byte) {
		a, b := make([]byte, room), make([]byte, room)
		for _, sums := range []Sums{Verify, Ignore} {
			na, ea := unzstdFrames(a, src, needAll, sums)
			nb, eb := unzstdPure(b, src, needAll, sums)
			if ea != nil || eb != nil {
				continue
			}
			if !bytes.Equal(a[:na], b[:nb]) {
				t.Fatalf("into %d: %d and %d bytes that differ", room, na, nb)
			}
			for name, way := range ways {
				part := make([]byte, room)
				if n, err := way(part, src, int(need), Ignore); err != nil ||
					n < min(int(need), na) || n > na || !bytes.Equal(part[:n], a[:n]) {
					t.Fatalf("%s: %d of %d: %d %v", name, need, na, n, err)
				}
			}
		}
		for _, way := range ways {
			if n, _ := way(a, src, int(need), Ignore); n > len(a) {
				t.Fatalf("%d bytes in %d", n, len(a))
			}
		}
	})
}

// BenchmarkDecode reports the decompressed MB/s.
func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{8 << 10, 256 << 10, 4 << 20} {
		data := plain(size, 5)
		src := frame(b, data, false, false, 2)
		dst := make([]byte, len(data))
		for name, way := range map[string]func(dst, src []byte, need int, sums Sums) (int, error){
			fmt.Sprintf("built(libzstd=%v)", Native()): unzstdFrames,
			"klauspost": unzstdPure,
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := way(dst, src, needAll, Ignore); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
