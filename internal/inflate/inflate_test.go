package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

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

func deflated(t testing.TB, kind Kind, level int, data []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch kind {
	case RawDeflate:
		w, err = flate.NewWriter(&out, level)
	case ZlibStream:
		w, err = zlib.NewWriterLevel(&out, level)
	default:
		w, err = gzip.NewWriterLevel(&out, level)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var kinds = []Kind{RawDeflate, ZlibStream, GzipMember}

// ways holds the two implementations. They are the same if libdeflate is not linked.
var ways = map[string]func(Kind, []byte, []byte) (int, int, error){
	"built": inflateStream,
	"pure":  inflatePure,
}

func TestRoundTrip(t *testing.T) {
	t.Logf("libdeflate linked: %v", Native())
	for name, way := range ways {
		for _, kind := range kinds {
			for _, level := range []int{0, 1, 6, 9, -2} {
				for _, n := range []int{0, 1, 2, 3, 100, 65535, 65536, 300001} {
					data := plain(n, uint64(n))
					src := append(deflated(t, kind, level, data), "tail"...)
					dst := make([]byte, n+5)
					w, r, err := way(kind, dst, src)
					if err != nil || w != n || r != len(src)-4 || !bytes.Equal(dst[:w], data) {
						t.Fatalf(
							"%s %s level %d of %d bytes: wrote %d, read %d of %d, %v",
							name,
							kind,
							level,
							n,
							w,
							r,
							len(src)-4,
							err,
						)
					}
					if w, _, err = way(kind, dst[:n], src[:len(src)-4]); err != nil || w != n {
						t.Fatalf("%s %s: into exactly %d bytes: %d %v", name, kind, n, w, err)
					}
					if n > 0 {
						if _, _, err = way(kind, dst[:n-1], src); !errors.Is(err, ErrRoom) {
							t.Fatalf("%s %s: into one byte less: %v", name, kind, err)
						}
					}
				}
			}
		}
	}
}

// TestCut checks that data truncated at any offset is an error (inflate.N1).
func TestCut(t *testing.T) {
	data := plain(700, 1)
	dst := make([]byte, len(data))
	for name, way := range ways {
		for _, kind := range kinds {
			src := deflated(t, kind, 6, data)
			for n := range src {
				// truncated data may also look too long
				if _, _, err := way(kind, dst, src[:n]); !errors.Is(err, errDamaged) &&
					!errors.Is(err, ErrRoom) {
					t.Fatalf("%s %s cut at %d of %d: %v", name, kind, n, len(src), err)
				}
			}
		}
	}
}

func TestTypedErrors(t *testing.T) {
	data := plain(1000, 2)
	src := deflated(t, ZlibStream, 6, data)
	for _, n := range []int{0, 999, 1001} {
		err := Zlib(make([]byte, n), src)
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if n < 1000 != errors.Is(err, ErrRoom) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	dst := make([]byte, 1000)
	bad := bytes.Clone(src)
	bad[len(bad)-1]++
	if err := Zlib(dst, bad); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("wrong checksum: %v", err)
	}
	if err := Raw(dst, deflated(t, RawDeflate, 6, data)); err != nil || !bytes.Equal(dst, data) {
		t.Error(err)
	}
	if err := Raw(dst, nil); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("no data: %v", err)
	}
}

func TestGzipMembers(t *testing.T) {
	a, b := plain(500, 3), plain(300, 4)
	src := append(deflated(t, GzipMember, 6, a), deflated(t, GzipMember, 1, b)...)
	want := append(bytes.Clone(a), b...)
	for _, tail := range []string{"", "\x00\x00\x00"} {
		dst := make([]byte, 800)
		if err := Gzip(dst, append(bytes.Clone(src), tail...)); err != nil ||
			!bytes.Equal(dst, want) {
			t.Errorf("tail %q: %v", tail, err)
		}
	}
	for _, n := range []int{799, 801, 500, 0} {
		if err := Gzip(make([]byte, n), src); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("into %d: %v", n, err)
		}
	}
	if err := Gzip(make([]byte, 800), append(src, 'x')); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("rubbish behind: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				data := plain(1000+g*100+i, uint64(i))
				kind := kinds[(g+i)%3]
				dst := make([]byte, len(data))
				if _, _, err := Some(kind, dst, deflated(t, kind, 6, data)); err != nil ||
					!bytes.Equal(dst, data) {
					t.Errorf("%v %v", kind, err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzBothWays checks that data accepted by both implementations decompresses to the same bytes.
// Data with a checksum is accepted by both or by neither (inflate.N2).
func FuzzBothWays(f *testing.F) {
	for _, kind := range kinds {
		src := deflated(f, kind, 6, plain(300, 9))
		f.Add(byte(kind), uint16(300), src)
		f.Add(byte(kind), uint16(200), src)
		f.Add(byte(kind), uint16(400), src[:len(src)-3])
	}
	f.Fuzz(func(t *testing.T, k byte, room uint16, src []byte) {
		kind := kinds[k%3]
		a, b := make([]byte, room), make([]byte, room)
		wa, ra, ea := inflateStream(kind, a, src)
		wb, rb, eb := inflatePure(kind, b, src)
		if ea == nil && eb == nil && (wa != wb || ra != rb || !bytes.Equal(a[:wa], b[:wb])) ||
			kind == ZlibStream && (ea == nil) != (eb == nil) {
			t.Fatalf("%s into %d: %d %d %v; pure: %d %d %v", kind, room, wa, ra, ea, wb, rb, eb)
		}
	})
}

// BenchmarkZlib inflates chunks of 256 KiB. It reports the decompressed MB/s.
func BenchmarkZlib(b *testing.B) {
	data := plain(256<<10, 5)
	src := deflated(b, ZlibStream, 4, data)
	dst := make([]byte, len(data))
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run(fmt.Sprintf("built/native=%v", Native()), func() error { return Zlib(dst, src) })
	run("klauspost", func() error { _, _, err := inflatePure(ZlibStream, dst, src); return err })
	run("stdlib", func() error {
		r, err := zlib.NewReader(bytes.NewReader(src))
		if err == nil {
			_, err = io.ReadFull(r, dst)
		}
		return err
	})
}
