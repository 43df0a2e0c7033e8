//go:build linux

package sim

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// demo returns a machine with the kernels of testdata/demo.cu. Without g++ the test is skipped.
func demo(t *testing.T, o Options) *Machine {
	t.Helper()
	m, err := New("testdata", []string{"demo"}, o)
	if errors.Is(err, robocache.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bytesOf[T any](
	p *T,
) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

type sum struct {
	in, out uintptr
	n       int64
	fault   uint32
}

// runSum adds n ones. The end of the input is the end of a page.
func runSum(t *testing.T, o Options, n int, fault uint32, before bool) ([]float32, error) {
	t.Helper()
	m := demo(t, o)
	blocks := (n + 255) / 256
	in, b, err := m.Alloc(n*4, 4, before)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(in)
	for i := range n {
		binary.LittleEndian.PutUint32(b[i*4:], math.Float32bits(float32(i%97)))
	}
	out, r, err := m.Alloc(blocks*4, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(out)
	p := sum{in, out, int64(n), fault}
	if err := m.Launch("sum", uint32(blocks), 256, 0, bytesOf(&p)); err != nil {
		return nil, err
	}
	got := make([]float32, blocks)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(r[i*4:]))
	}
	return got, nil
}

// TestSum covers sim.S1 and sim.S3.
func TestSum(t *testing.T) {
	for _, o := range []Options{{}, {Seed: 1}, {Seed: 2, Checked: true}} {
		for _, n := range []int{1, 255, 256, 257, 5000} {
			got, err := runSum(t, o, n, 0, n%2 == 0)
			if err != nil {
				t.Fatal(err)
			}
			for b, g := range got {
				want := float32(0)
				for i := b * 256; i < min(n, b*256+256); i++ {
					want += float32(i % 97)
				}
				if g != want {
					t.Fatalf("%+v, n %d, block %d: %v, not %v", o, n, b, g, want)
				}
			}
		}
	}
}

// TestMistakes covers sim.S2, sim.S4 and sim.S5: each mistake is found.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		fault   uint32
		checked bool
		want    string
	}{
		{1, true, "of shared memory"},
		{2, false, "after the end of a buffer of 1200"},
		{2, true, "after the end of a buffer"},
		{3, false, "divergent barrier: thread"},
		{4, true, "that nobody wrote"},
	} {
		_, err := runSum(t, Options{Seed: 3, Checked: c.checked}, 300, c.fault, false)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("fault %d, checked %v: %v", c.fault, c.checked, err)
		}
	}
	// Without checks, a seed changes the result if a barrier is missing.
	right, err := runSum(t, Options{}, 300, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	differ := false
	for seed := range uint64(5) {
		got, err := runSum(t, Options{Seed: seed + 1}, 300, 1, false)
		differ = differ || err != nil || got[0] != right[0]
	}
	if !differ {
		t.Error("five orders of threads do not show a missing barrier")
	}
	// The machine can be used after an error.
	if got, err := runSum(t, Options{Seed: 3, Checked: true}, 300, 0, false); err != nil ||
		got[0] != right[0] {
		t.Error(got, err)
	}
}

type warp struct {
	out, in uintptr
	fault   uint32
}

// TestWarpOperations covers sim.S1.
func TestWarpOperations(t *testing.T) {
	for _, o := range []Options{{}, {Seed: 9}, {Seed: 4, Checked: true}} {
		m := demo(t, o)
		const n = 64
		in, bi, _ := m.Alloc(n*4, 4, false)
		out, bo, _ := m.Alloc(n*64, 16, false)
		v := make([]uint32, n)
		for i := range v {
			v[i] = uint32(i*37%101) + 1
			binary.LittleEndian.PutUint32(bi[i*4:], v[i])
		}
		p := warp{out, in, 0}
		if err := m.Launch("warp", 1, n, n*4, bytesOf(&p)); err != nil {
			t.Fatal(err)
		}
		odd := uint32(0)
		for _, x := range v {
			odd += x & 1
		}
		for i := range n {
			w, l := v[i/32*32:i/32*32+32], i%32
			var ballot, match, add, high, or8, add24 uint32
			low := uint32(math.MaxUint32)
			five := uint32(0)
			for k, x := range w {
				ballot |= x & 1 << k
				if x&3 == w[l]&3 {
					match |= 1 << k
				}
				add, high, low = add+x, max(high, x), min(low, x)
				if k < 8 {
					or8 |= x
				} else {
					add24 += x
				}
				if x == 5 {
					five = 1
				}
			}
			want := [16]uint32{
				w[3], w[max(l-1, 0)], w[l], w[l^16], ballot, five | 2, match, add, high, low, add24,
				w[l^1], odd, w[l&^7+1],
				uint32(bits.LeadingZeros32(w[l])) | uint32(bits.TrailingZeros32(w[l])+
					1)<<8 | uint32(bits.OnesCount32(w[l]))<<16, bits.Reverse32(w[l]),
			}
			if l+2 < 32 {
				want[2] = w[l+2]
			}
			if l < 8 {
				want[10] = or8
			}
			for k, x := range want {
				if got := binary.LittleEndian.Uint32(bo[i*64+k*4:]); got != x {
					t.Errorf("%+v thread %d, operation %d: %#x, not %#x", o, i, k, got, x)
				}
			}
		}
		p.fault = 1
		if err := m.Launch("warp", 1, n, n*4, bytesOf(&p)); err == nil ||
			!strings.Contains(err.Error(), "has ended") {
			t.Error("a lane that has ended:", err)
		}
		m.Free(in)
		m.Free(out)
	}
}

type race struct {
	out  uintptr
	kind uint32
}

// TestRaces covers sim.S4 and sim.S5.
func TestRaces(t *testing.T) {
	m := demo(t, Options{Seed: 5, Checked: true})
	for kind, want := range []string{
		"",
		"race",
		"",
		"another block writes",
		"race",
		"not aligned",
		"division by zero",
		"100 bytes of shared memory",
		"",
		"did not wait for",
		"not aligned",
	} {
		out, b, _ := m.Alloc(4*4*64, 4, false)
		clear(b)
		p := race{out, uint32(kind)}
		err := m.Launch("races", 4, 64, 100, bytesOf(&p))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("kind %d: %v", kind, err)
		}
		if kind == 0 && (b[0] != 0 || b[1] != 1 || b[4] != 63 || b[8] == 0) {
			t.Error("atomics:", b[:12])
		}
		m.Free(out)
	}
	// Blocks write different values, in an order that the kernel defines.
	m.Ordered = true
	out, _, _ := m.Alloc(4*4*64, 4, false)
	defer m.Free(out)
	p := race{out, 3}
	if err := m.Launch("races", 4, 64, 0, bytesOf(&p)); err != nil {
		t.Error(err)
	}
	if err := m.Launch("none", 1, 1, 0, nil); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error(err)
	}
}

// TestNoSource checks that a compile error names its place.
func TestNoSource(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip(err)
	}
	if _, err := New("testdata", []string{"broken"}, Options{}); err == nil ||
		!strings.Contains(err.Error(), "broken.cu") {
		t.Error(err)
	}
}

func BenchmarkLaunch(b *testing.B) {
	m, err := New("testdata", []string{"demo"}, Options{})
	if err != nil {
		b.Skip(err)
	}
	in, _, _ := m.Alloc(1<<20, 4, false)
	out, _, _ := m.Alloc(1<<12, 4, false)
	p := sum{in, out, 1 << 18, 0}
	for b.Loop() {
		if err := m.Launch("sum", 1<<10, 256, 0, bytesOf(&p)); err != nil {
			b.Fatal(err)
		}
	}
}
