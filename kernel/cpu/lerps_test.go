//go:build linux && (amd64 || arm64) && !purego

package cpu

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestLayout checks that the offsets of the generator match the fields of the struct.
func TestLayout(t *testing.T) {
	var a rowArgs
	for name, at := range map[string][2]uintptr{
		"cols": {
			unsafe.Offsetof(a.cols),
			64,
		}, "a": {
			unsafe.Offsetof(a.a),
			72,
		}, "scale": {unsafe.Offsetof(a.scale), 88}, "lo": {unsafe.Offsetof(a.lo), 96},
		"limits": {
			unsafe.Offsetof(a.limits),
			104,
		}, "ahead": {unsafe.Offsetof(a.ahead), 120}, "valid": {unsafe.Offsetof(a.valid), 128},
	} {
		if at[0] != at[1] {
			t.Errorf("%s at %d, want %d", name, at[0], at[1])
		}
	}
	var s searchArgs
	if unsafe.Offsetof(s.rate) != 80 {
		t.Errorf("rate at %d", unsafe.Offsetof(s.rate))
	}
}

// guarded returns memory that is followed by a page that may not be read.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	room := (n + page - 1) / page * page
	m, err := unix.Mmap(
		-1,
		0,
		room+page,
		unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE,
	)
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

// TestRowsEndWhereTheyEnd runs every kernel on rows that end at a page that may not be read. It
// also checks the bytes before the result's rows and between them.
func TestRowsEndWhereTheyEnd(t *testing.T) {
	if instructions == "" {
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
		left := []int32{0, 3, 1, 2, 3}
		right := []int32{3, 3, 2, 3, 0}
		weight := []float64{0.5, 0, 0.25, 1, 0}
		valid := make([]uint8, rows)
		a := rowArgs{
			dst: unsafe.Pointer(
				&dst[0],
			),
			src:     unsafe.Pointer(&src[0]),
			dstStep: (cols + gap) * out,
			srcStep: (cols + gap) * in,
			left:    &left[0],
			right:   &right[0],
			weight:  &weight[0],
			rows:    rows,
			cols:    cols,
			a:       &ab[0],
			b:       &ab[0],
			scale:   1,
			lo:      -1e30,
			hi:      1e30,
			valid:   &valid[0],
		}
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
		for types, kernels := range lerpKernels {
			for f, k := range kernels {
				if k != nil {
					try(fmt.Sprint(types, " form ", f), k, types[0].Size(), types[1].Size(), cols)
				}
			}
		}
		try("move", moveRows, 1, 1, cols)
		if k := slerpKernel(); k != nil && cols%4 == 0 {
			try("slerp", k, 4, 4, cols)
		}
	}
	for cols := 32; cols <= 320; cols += 32 {
		// Streaming stores need aligned rows, without a gap.
		for _, d := range []robocache.DType{
			robocache.Float32,
			robocache.Float16,
			robocache.BFloat16,
		} {
			size := d.Size()
			src, dst := guarded(t, 4*cols*size), guarded(t, 4*cols*size)
			left, weight := []int32{0, 1, 2, 3}, []float64{0.5, 0, 0.5, 0.5}
			a := rowArgs{
				dst:     unsafe.Pointer(&dst[0]),
				src:     unsafe.Pointer(&src[0]),
				dstStep: cols * size,
				srcStep: cols * size,
				left:    &left[0],
				right:   &left[0],
				weight:  &weight[0],
				rows:    4,
				cols:    cols,
				ahead:   cols / 100,
			}
			if k := streamKernel(d, d); k != nil {
				k(&a)
			}
		}
	}
}

// FuzzLerp compares the float32 kernel with the reference's fused multiply-add, bit by bit, on any
// bits.
func FuzzLerp(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x40000000), 0.1, uint64(1))
	f.Add(uint32(0x7f800000), uint32(0xff800000), 0.5, uint64(2))
	f.Add(uint32(1), uint32(0x80000001), 1e-40, uint64(3))
	f.Fuzz(func(t *testing.T, x, y uint32, w float64, seed uint64) {
		if instructions == "" {
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
		a := rowArgs{
			dst:     unsafe.Pointer(&dst[0]),
			src:     unsafe.Pointer(&src[0]),
			dstStep: 4 * cols,
			srcStep: 4 * cols,
			left:    &left,
			right:   &right,
			weight:  &w,
			rows:    1,
			cols:    cols,
		}
		lerpF32F32(&a)
		for i, got := range dst {
			want := kernel.FMA32(float32(w), src[cols+i]-src[i], src[i])
			if float32(w) == 0 {
				want = src[i]
			}
			if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
				t.Fatalf(
					"column %d of %d: %x and %x at %v: %x, want %x",
					i,
					cols,
					math.Float32bits(src[i]),
					math.Float32bits(src[cols+i]),
					w,
					math.Float32bits(got),
					math.Float32bits(want),
				)
			}
		}
	})
}

// TestSlerpBits checks that quaternions have the same bits on every machine with the kernel. It
// includes rows that are invalid and rows that are left to the reference.
func TestSlerpBits(t *testing.T) {
	k := slerpKernel()
	if k == nil {
		t.Skip("no kernel here")
	}
	const cols, sources, rows = 8, 400, 801
	r := rand.New(rand.NewPCG(5, 6))
	src, dst := make([]float32, sources*cols), make([]float32, rows*cols)
	for i := range sources {
		for q := 0; q < cols; q += 4 {
			v := src[i*cols+q:][:4]
			for j := range v {
				v[j] = float32(r.NormFloat64())
			}
			switch p := max(0, (i-1)*cols+q); r.IntN(12) {
			case 0: // no rotation
				clear(v)
			case 1:
				v[r.IntN(4)] = float32(math.Inf(1))
			case 2, 3, 4: // near the previous sample, or near its negative
				for j := range v {
					v[j] = -src[p+j] + float32(r.NormFloat64()*math.Pow(10, -float64(r.IntN(9))))
				}
			case 5: // at a right angle: the reference must decide the sign
				v[0], v[1], v[2], v[3] = -src[p+1], src[p], -src[p+3], src[p+2]
			}
		}
	}
	left := make([]int32, rows)
	right := make([]int32, rows)
	weight := make([]float64, rows)
	valid := slices.Repeat([]uint8{1}, rows)
	for i := range rows {
		left[i] = int32(r.IntN(sources - 1))
		right[i] = left[i] + 1
		if r.IntN(8) > 0 {
			weight[i] = r.Float64()
		}
	}
	a := rowArgs{
		dst:     unsafe.Pointer(&dst[0]),
		src:     unsafe.Pointer(&src[0]),
		dstStep: 4 * cols,
		srcStep: 4 * cols,
		left:    &left[0],
		right:   &right[0],
		weight:  &weight[0],
		rows:    rows,
		cols:    cols,
		valid:   &valid[0],
	}
	k(&a)
	h := fnv.New64a()
	var kinds [3]int
	for i, v := range valid {
		kinds[v]++
		h.Write([]byte{v})
		for _, x := range dst[i*cols:][:cols] {
			bits := math.Float32bits(x)
			if x != x {
				bits = 0x7fc00000
			}
			h.Write(binary.LittleEndian.AppendUint32(nil, bits))
		}
	}
	if min(kinds[0], kinds[1], kinds[2]) < 20 || a.limits[0] == 0 {
		t.Errorf("rows that are not valid, valid and left: %v, noted %v", kinds, a.limits[0])
	}
	if got, want := h.Sum64(), uint64(0xdca712fec488c74f); got != want {
		t.Errorf("results %#x, want %#x", got, want)
	}
}
