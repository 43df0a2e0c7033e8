package jpegxl

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDecoder: the embedded decoder is the one of scripts/jpegxl-wasm.sh.
func TestDecoder(t *testing.T) {
	if s := sha256.Sum256(decoderWasm); hex.EncodeToString(s[:]) !=
		"20c544c0ebc5dfc04f83ae33e4326390b289c95957c55e9acec2e6dfb057bc9a" {
		t.Errorf("%x", s)
	}
}

// TestKnown checks jpegxl.X1, jpegxl.X2 and jpegxl.X3 without Python.
func TestKnown(t *testing.T) {
	for name, want := range map[string]struct {
		values, size int
		sum          string
	}{
		"lossless.jxl": {48 * 64 * 3, 1, "c8610e3d366b3ed5"},
		"frames.jxl":   {3 * 12 * 16, 1, "665212ac7c34261e"},
		"rgb16.jxl":    {12 * 16 * 3, 2, "e8dd2c52cfd038db"},
	} {
		dst := make([]byte, want.values*want.size)
		if err := Decode(t.Context(), dst, file(t, name), want.size); err != nil {
			t.Error(name, err)
		}
		if s := sha256.Sum256(dst); hex.EncodeToString(s[:8]) != want.sum {
			t.Errorf("%s differs: %x", name, s[:8])
		}
	}
	lossless, lossy := make([]byte, 48*64*3), make([]byte, 48*64*3)
	if err := errors.Join(Decode(t.Context(), lossless, file(t, "lossless.jxl"), 1),
		Decode(t.Context(), lossy, file(t, "lossy.jxl"), 1)); err != nil {
		t.Fatal(err)
	}
	far := 0
	for i := range lossy {
		if d := int(lossy[i]) - int(lossless[i]); d > 60 || d < -60 {
			far++
		}
	}
	if far > 100 {
		t.Errorf("%d values are far from the image", far)
	}
	for _, c := range []struct {
		name   string
		values int
		size   int
		class  error
		text   string
	}{
		{"lossless.jxl", 48 * 64, 1, robocache.ErrMalformed, "have color"},
		{"lossless.jxl", 48 * 63 * 3, 1, robocache.ErrMalformed, "48×64"},
		{"lossless.jxl", 48 * 64 * 5, 1, robocache.ErrMalformed, "48×64"},
		{"lossless.jxl", 0, 1, robocache.ErrMalformed, "0 values"},
		{"lossless.jxl", 48 * 64 * 3, 2, robocache.ErrUnsupported, "8 bits"},
		{"lossless.jxl", 48 * 64 * 3, 4, robocache.ErrUnsupported, "4 bytes"},
		{"f32.jxl", 12 * 16 * 3, 2, robocache.ErrUnsupported, "32 bits"},
		{"frames.jxl", 2 * 12 * 16, 1, robocache.ErrMalformed, "3 of 12×16"},
	} {
		if err := Decode(t.Context(), make([]byte, c.values*c.size), file(t, c.name),
			c.size); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s as %d values of %d: %v", c.name, c.values, c.size, err)
		}
	}
}

// TestDamage: streams truncated at every offset and streams with changed bytes yield an error or
// images. The next stream is decoded correctly (jpegxl.X4, jpegxl.X5).
func TestDamage(t *testing.T) {
	whole := file(t, "lossless.jxl")
	want := make([]byte, 48*64*3)
	if err := Decode(t.Context(), want, whole, 1); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, len(want))
	var e *robocache.Error
	step := 1
	if testing.Short() {
		step = 16 // each failure costs a decoder, which is slow to create under the race detector
	}
	for n := 0; n < len(whole); n += step {
		if err := Decode(t.Context(), dst, whole[:n], 1); !errors.As(err, &e) ||
			!errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for n := 0; n < len(whole); n += step {
		bad := bytes.Clone(whole)
		bad[n] ^= byte(1 << (n % 8))
		if err := Decode(t.Context(), dst, bad, 1); err != nil && !errors.As(err, &e) {
			t.Errorf("flip at %d: %v", n, err)
		}
	}
	clear(dst)
	if err := Decode(t.Context(), dst, whole, 1); err != nil || !bytes.Equal(dst, want) {
		t.Error("after damage:", err)
	}
}

// TestDeadline: a decoder stops at its time limit, and when the caller cancels (jpegxl.X4).
func TestDeadline(t *testing.T) {
	e, err := startEngine()
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.acquireInstance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	err = in.decodeImages(past, make([]byte, 48*64*3), file(t, "lossless.jxl"), 1)
	e.releaseInstance(in, false)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := Decode(gone, make([]byte, 48*64*3), file(t, "lossless.jxl"), 1); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}

// TestMany: goroutines decode concurrently (jpegxl.X5).
func TestMany(t *testing.T) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for _, name := range []string{"lossless.jxl", "lossy.jxl"} {
				if err := Decode(t.Context(), make([]byte, 48*64*3), file(t, name), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	e, err := startEngine()
	if err != nil {
		t.Fatal(err)
	}
	if e.mu.Lock(); len(e.idle) > cap(e.running) || len(e.running) != 0 {
		t.Errorf("%d decoders at rest, %d running", len(e.idle), len(e.running))
	}
	e.mu.Unlock()
}

// TestEqualsImagecodecs: streams that imagecodecs encodes are decoded to the same values: lossless
// ones bit for bit, lossy ones within 1 (jpegxl.X1).
func TestEqualsImagecodecs(t *testing.T) {
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if out, err := exec.Command(python, "-c",
		"import imagecodecs; assert imagecodecs.JPEGXL.available").CombinedOutput(); err != nil {
		t.Skipf("no imagecodecs in .venv: %v %s", err, out)
	}
	cmd := exec.Command(python, "testdata/imagecodecs_jxl.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(bytes.NewReader(out))
	next := func() []byte {
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err == io.EOF {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	seen := 0
	for {
		name := next()
		if name == nil {
			break
		}
		stream, want, size, lossless := next(), next(), int(next()[0]), next()[0] == 1
		got := make([]byte, len(want))
		if err := Decode(t.Context(), got, stream, size); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		seen++
		if lossless {
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs", name)
			}
			continue
		}
		for i := range got {
			if d := int(got[i]) - int(want[i]); d < -1 || d > 1 {
				t.Errorf("%s: value %d is %d, not %d", name, i, got[i], want[i])
				break
			}
		}
	}
	if seen < 80 {
		t.Error(seen, "streams")
	}
}

// FuzzDecode decodes arbitrary bytes as images of a few sizes.
func FuzzDecode(f *testing.F) {
	for _, n := range []string{"lossless.jxl", "lossy.jxl", "frames.jxl", "f32.jxl", "rgb16.jxl"} {
		b, err := os.ReadFile("testdata/" + n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(48*64*3), false)
		f.Add(b, uint16(12*16*3), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, values uint16, wide bool) {
		size := 1
		if wide {
			size = 2
		}
		begin := time.Now()
		err := Decode(t.Context(), make([]byte, int(values)*size), b, size)
		hostile.Typed(t, err)
		if d := time.Since(begin); d > 2*slack {
			t.Errorf("%d bytes took %v", len(b), d)
		}
	})
}

// BenchmarkDecode decodes images of UMI, 224×224.
func BenchmarkDecode(b *testing.B) {
	src := os.Getenv("ROBOCACHE_JXL")
	if src == "" {
		b.Skip("ROBOCACHE_JXL names a stream of 224×224 RGB")
	}
	stream, err := os.ReadFile(src)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 224*224*3)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(b.Context(), dst, stream, 1); err != nil {
			b.Fatal(err)
		}
	}
}
