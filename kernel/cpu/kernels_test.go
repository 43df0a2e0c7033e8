//go:build linux && amd64 && !purego

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestLayout: the generator counts fields in eights.
func TestLayout(t *testing.T) {
	var a rowArgs
	for name, at := range map[string][2]uintptr{"cols": {unsafe.Offsetof(a.cols), 64}, "a": {unsafe.Offsetof(a.a), 72}, "scale": {unsafe.Offsetof(a.scale), 88}, "lo": {unsafe.Offsetof(a.lo), 96},
		"limits": {unsafe.Offsetof(a.limits), 104}, "ahead": {unsafe.Offsetof(a.ahead), 120}, "valid": {unsafe.Offsetof(a.valid), 128}} {
		if at[0] != at[1] {
			t.Errorf("%s at %d, want %d", name, at[0], at[1])
		}
	}
	var s searchArgs
	if unsafe.Offsetof(s.rate) != 80 {
		t.Errorf("rate at %d", unsafe.Offsetof(s.rate))
	}
}

// guarded is memory that ends where nothing may be read.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	room := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, room+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Skip("no memory map: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[room:], unix.PROT_NONE); err != nil {
		t.Skip("no protection: ", err)
	}
	return m[room-n : room : room]
}

// TestRowsEndWhereTheyEnd runs every kernel on rows that end at a page that may not be touched, and looks for bytes changed before the result's rows and
// between them.
func TestRowsEndWhereTheyEnd(t *testing.T) {
	if !fast {
		t.Skip("this processor has no AVX2, FMA and F16C")
	}
	r := rand.New(rand.NewPCG(1, 2))
	try := func(name string, k func(*rowArgs), in, out, cols int) {
		t.Helper()
		const rows, sources, gap = 5, 4, 3
		src := guarded(t, (sources-1)*(cols+gap)*in+cols*in)
		dst := guarded(t, (rows-1)*(cols+gap)*out+cols*out)
		for i := range src {
			src[i] = byte(r.Uint32()) & 0x3f
		}
		for i := range dst {
			dst[i] = 0xa5
		}
		ab := slices.Repeat([]float32{2}, cols)
		left, right, weight := []int32{0, 3, 1, 2, 3}, []int32{3, 3, 2, 3, 0}, []float64{0.5, 0, 0.25, 1, 0}
		valid := make([]uint8, rows)
		a := rowArgs{dst: unsafe.Pointer(&dst[0]), src: unsafe.Pointer(&src[0]), dstStep: (cols + gap) * out, srcStep: (cols + gap) * in, left: &left[0], right: &right[0], weight: &weight[0],
			rows: rows, cols: cols, a: &ab[0], b: &ab[0], scale: 1, lo: -1e30, hi: 1e30, valid: &valid[0]}
		k(&a)
		for row := range rows - 1 {
			end := (row*(cols+gap) + cols) * out
			for i := range gap * out {
				if dst[end+i] != 0xa5 {
					t.Errorf("%s: %d columns: byte %d after row %d was written", name, cols, i, row)
				}
			}
		}
	}
	for cols := 1; cols <= 70; cols++ {
		for types, kernels := range lerps {
			for f, k := range kernels {
				if k != nil {
					try(fmt.Sprint(types, " form ", f), k, types[0].Size(), types[1].Size(), cols)
				}
			}
		}
		try("move", moveRows, 1, 1, cols)
		if cols%4 == 0 {
			try("slerp", slerpF32, 4, 4, cols)
		}
	}
	for cols := 32; cols <= 320; cols += 32 {
		// Streams need aligned rows: no gap.
		for _, d := range []robocache.DType{robocache.Float32, robocache.Float16, robocache.BFloat16} {
			size := d.Size()
			src, dst := guarded(t, 4*cols*size), guarded(t, 4*cols*size)
			left, weight := []int32{0, 1, 2, 3}, []float64{0.5, 0, 0.5, 0.5}
			a := rowArgs{dst: unsafe.Pointer(&dst[0]), src: unsafe.Pointer(&src[0]), dstStep: cols * size, srcStep: cols * size, left: &left[0], right: &left[0], weight: &weight[0], rows: 4, cols: cols, ahead: cols / 100}
			streamKernel(d, d)(&a)
		}
	}
}

// FuzzLerp compares the float32 kernel with the reference's fused multiply-add, bit for bit, on any bits.
func FuzzLerp(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x40000000), 0.1, uint64(1))
	f.Add(uint32(0x7f800000), uint32(0xff800000), 0.5, uint64(2))
	f.Add(uint32(1), uint32(0x80000001), 1e-40, uint64(3))
	f.Fuzz(func(t *testing.T, x, y uint32, w float64, seed uint64) {
		if !fast {
			t.Skip("no kernel here")
		}
		r := rand.New(rand.NewPCG(seed, 3))
		cols := 1 + r.IntN(75)
		src := make([]float32, 2*cols)
		for i := range src {
			src[i] = math.Float32frombits(r.Uint32())
		}
		src[r.IntN(cols)], src[cols+r.IntN(cols)] = math.Float32frombits(x), math.Float32frombits(y)
		dst := make([]float32, cols)
		left, right := int32(0), int32(1)
		a := rowArgs{dst: unsafe.Pointer(&dst[0]), src: unsafe.Pointer(&src[0]), dstStep: 4 * cols, srcStep: 4 * cols, left: &left, right: &right, weight: &w, rows: 1, cols: cols}
		lerpF32F32(&a)
		for i, got := range dst {
			want := kernel.FMA32(float32(w), src[cols+i]-src[i], src[i])
			if float32(w) == 0 {
				want = src[i]
			}
			if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
				t.Fatalf("column %d of %d: %x and %x at %v: %x, want %x", i, cols, math.Float32bits(src[i]), math.Float32bits(src[cols+i]), w, math.Float32bits(got), math.Float32bits(want))
			}
		}
	})
}

// FuzzBracket proves what the search finds, in assembly and in plain Go.
func FuzzBracket(f *testing.F) {
	for _, s := range []uint64{1, 2, 3, 4, 5} {
		f.Add(s, int64(1000), int64(1<<40), int64(0))
	}
	f.Add(uint64(6), int64(1), int64(1), int64(1<<61))
	f.Add(uint64(7), int64(1<<50), int64(1<<52-1), int64(-1<<62+1))
	f.Fuzz(func(t *testing.T, seed uint64, step, gap, start int64) {
		if !fast || step <= 0 || step > 1<<54 || gap <= 0 || gap > maxSpan || !inRange(start) {
			t.Skip("out of the function's range")
		}
		r := rand.New(rand.NewPCG(seed, 4))
		s := []int64{start}
		for range 3 + r.IntN(60) {
			next := s[len(s)-1] + r.Int64N(2*step)*int64(r.IntN(4))
			if !inRange(next) {
				break
			}
			s = append(s, next)
		}
		if len(s) < 4 || s[0] == s[len(s)-1] {
			t.Skip("too few")
		}
		targets := make([]int64, 1+r.IntN(40))
		for i := range targets {
			targets[i] = s[r.IntN(len(s))] + r.Int64N(2*step) - step/2
			if r.IntN(30) == 0 {
				targets[i] = int64(r.Uint64())
			}
		}
		if r.IntN(3) > 0 {
			slices.Sort(targets)
		}
		n := len(targets)
		left, right, weight := make([]int32, n), make([]int32, n), make([]float64, n)
		a := searchArgs{timestamps: &s[0], last: len(s) - 1, targets: &targets[0], rows: n, left: &left[0], right: &right[0], weight: &weight[0], maxGap: gap, start: s[0], rate: float64(len(s)-1) / float64(s[len(s)-1]-s[0])}
		for name, find := range map[string]func(*searchArgs) int{"bracket": bracket, "find": find, "plain Go": func(a *searchArgs) int { return bracketGo(a, 0) }} {
			for i := range find(&a) {
				k := left[i]
				lo, hi := s[k], s[right[i]]
				if right[i] != k+1 || targets[i] < lo || targets[i] >= hi || hi-lo > gap || weight[i] != float64(targets[i]-lo)/float64(hi-lo) {
					t.Fatalf("%s: row %d: t %d in [%d, %d), weight %v", name, i, targets[i], lo, hi, weight[i])
				}
			}
		}
	})
}

// TestGenerated: the committed assembly is what the generator writes.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	for _, args := range [][]string{{"mod", "download"}, {"run", ".", "-dir", dir}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = "gen"
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			if args[0] == "mod" {
				t.Skipf("the generator's modules are not to be had here: %s", out)
			}
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, name := range []string{"kernels_amd64.s", "kernels_amd64.go"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// avo's first line names the command, and so the folder.
		_, made, _ := strings.Cut(string(got), "\n")
		if _, rest, _ := strings.Cut(string(want), "\n"); made == "" || rest != made {
			t.Errorf("%s is not what kernel/cpu/gen writes: run go generate ./kernel/cpu", name)
		}
	}
}
