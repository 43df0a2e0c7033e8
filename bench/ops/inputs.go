package ops

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
)

// inputs are a row's inputs on the host: the same for ours and for the peers, who read them from files.
type inputs struct {
	times   [][]int64 // a stream each: [B,S], ragged [sum of S]
	offsets [][]int64 // ragged
	targets []int64   // [B,T]
	values  []kernel.Tensor
	mean    []float32
	std     []float32
	points  []float32
	feature []float32
}

// block is the random numbers that values are made of: they repeat, since speed does not depend on them and gigabytes of fresh ones cost minutes.
const block = 1<<20 + 7

var normals = sync.OnceValue(func() []float32 {
	rng := rand.New(rand.NewPCG(7, 5))
	out := make([]float32, block)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
})

// encoded is the block in a type, little-endian.
func encoded(t robocache.DType) []byte {
	var out []byte
	for _, v := range normals() {
		switch t {
		case robocache.BFloat16:
			out = binary.LittleEndian.AppendUint16(out, kernel.Float32toB16(v))
		case robocache.Float16:
			out = binary.LittleEndian.AppendUint16(out, kernel.Float32to16(v))
		case robocache.Float64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(v)))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// repeated fills n bytes with a block.
func repeated(part []byte, n int) []byte {
	out := aligned(n)
	for at := 0; at < n; {
		at += copy(out[at:], part)
	}
	return out
}

// aligned is memory at the start of a cache line, as allocators of numeric libraries give it, every page of it touched.
func aligned(n int) []byte {
	raw := make([]byte, n+64)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) & 63)
	out := raw[skip : skip+n : skip+n]
	for i := 0; i < n; i += 4096 {
		out[i] = 1
	}
	return out
}

// newInputs makes a row's inputs. Each batch entry begins at an epoch timestamp of its own; streams cover the same span with jitter, targets the span evenly.
func newInputs(w *Work) (in *inputs, err error) {
	defer guard.Into(&err)
	in = &inputs{}
	if w.Kind == "voxelize" {
		in.cloud(w)
		return in, nil
	}
	t := dtype(w.DType)
	rng := rand.New(rand.NewPCG(11, uint64(w.B)))
	const span = 1_000_000_000
	start := func(b int) int64 { return 1_700_000_000_000_000_000 + int64(b)*3_000_000_000 }
	part := encoded(t)
	for _, s := range w.Streams {
		times, offsets := make([]int64, 0, w.B*s.S), []int64{0}
		for b := range w.B {
			n := s.S
			if w.Ragged {
				n = s.S/2 + rng.IntN(s.S/2+1)
			}
			step := float64(span) / float64(max(n-1, 1))
			for k := range n {
				x := int64(float64(k) * step)
				if k > 0 && k < n-1 {
					x += int64((rng.Float64() - 0.5) * 0.4 * step)
				}
				times = append(times, start(b)+x)
			}
			offsets = append(offsets, int64(len(times)))
		}
		v := kernel.Tensor{DType: t, Shape: []int{w.B, s.S, s.D}}
		if w.Ragged {
			v.Shape = []int{len(times), s.D}
		}
		v.Data = repeated(part, v.Len()*t.Size())
		if w.Mode == "slerp" && t == robocache.Float32 {
			unit(v.Data)
		}
		in.times, in.offsets, in.values = append(in.times, times), append(in.offsets, offsets), append(in.values, v)
	}
	for b := range w.B {
		for k := range w.T {
			in.targets = append(in.targets, start(b)+int64(float64(k)*float64(span)/float64(max(w.T-1, 1))))
		}
	}
	for i := 0; w.Norm && i < w.width(); i++ {
		in.mean, in.std = append(in.mean, float32(rng.NormFloat64())), append(in.std, float32(0.5+rng.Float64()))
	}
	return in, nil
}

// unit makes quaternions of float32 numbers, of length 1 and none more than half a turn from the one before: others would come out as they are on
// a hit, and normalised, or with the other sign, beside it.
func unit(b []byte) {
	q := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	for i := 0; i+4 <= len(q); i += 4 {
		length, dot := 0.0, 0.0
		for k := range 4 {
			length += float64(q[i+k]) * float64(q[i+k])
			if i > 0 {
				dot += float64(q[i+k]) * float64(q[i+k-4])
			}
		}
		if length = math.Sqrt(length); dot < 0 {
			length = -length
		}
		for k := range 4 {
			q[i+k] = float32(float64(q[i+k]) / length)
		}
	}
}

// cloud makes points and features. One point in a hundred lies outside the grid.
func (in *inputs) cloud(w *Work) {
	rng := rand.New(rand.NewPCG(13, uint64(w.N)))
	if w.Cloud == "kitti" {
		in.points = kittiFrame(rng)
		w.N = len(in.points) / 3
	} else {
		in.points = make([]float32, 3*w.N)
	}
	var cells []int // that have all points; nil: any
	for i := 0; w.Cloud == "cells" && i < w.cells()/20; i++ {
		cells = append(cells, rng.IntN(w.cells()))
	}
	for i := 0; i < w.N && w.Cloud != "kitti"; i++ {
		p := in.points[3*i : 3*i+3]
		var at [3]int
		if cells != nil {
			c := cells[rng.IntN(len(cells))]
			at = [3]int{c / (w.Grid[1] * w.Grid[2]), c / w.Grid[2] % w.Grid[1], c % w.Grid[2]}
		}
		for a := range 3 {
			if u := rng.Float32(); cells != nil {
				p[a] = w.Min[a] + w.Size[a]*(float32(at[a])+0.1+0.8*u)
			} else {
				p[a] = w.Min[a] + w.Size[a]*float32(w.Grid[a])*u
			}
		}
		if i%100 == 99 {
			p[rng.IntN(3)] = w.Min[0] - 1
		}
	}
	in.feature = make([]float32, w.N*w.F)
	for at := 0; at < len(in.feature); {
		at += copy(in.feature[at:], normals())
	}
}

// kittiFrame is the points of a real frame of the test data, or as many that lie like it: ahead of the sensor, near ones denser.
func kittiFrame(rng *rand.Rand) (out []float32) {
	b, err := os.ReadFile(filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "pointclouds", "kitti", "000008.bin"))
	for i := 0; err == nil && i+16 <= len(b); i += 16 {
		for a := range 3 {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b[i+4*a:])))
		}
	}
	for len(out) == 0 || err != nil && len(out) < 3*17_000 {
		r, angle := 3*math.Exp(3.2*rng.Float64()), (rng.Float64()-0.5)*1.4
		out = append(out, float32(r*math.Cos(angle)), float32(r*math.Sin(angle)), float32(-1.7+0.5*math.Abs(rng.NormFloat64())))
	}
	return out
}

// bytesOf is the memory of numbers, little-endian on every machine that this runs on.
func bytesOf[T int64 | float32](v []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
}

// inputFile describes one input to a peer.
type inputFile struct {
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	File   string `json:"file"`
	Period int    `json:"period,omitempty"`
}

// write puts the inputs into files below dir, for the peers.
func (in *inputs) write(w *Work, dir, name string) map[string]inputFile {
	out := map[string]inputFile{}
	add := func(key, dtype string, data []byte, shape ...int) {
		d := inputFile{DType: dtype, Shape: shape, File: filepath.Join(dir, name+"-"+key)}
		if size := elementSize(dtype); len(data) > block*size && (key[0] == 'v' || key == "features") {
			d.Period, data = block, data[:block*size]
		}
		out[key] = d
		guard.Check(report.WriteFile(d.File, data))
	}
	if w.Kind == "voxelize" {
		add("points", "float32", bytesOf(in.points), w.N, 3)
		if w.F > 0 {
			add("features", "float32", bytesOf(in.feature), w.N, w.F)
		}
		return out
	}
	for i, s := range w.Streams {
		shape := []int{w.B, s.S}
		if w.Ragged {
			shape = []int{len(in.times[i])}
			add(fmt.Sprint("offsets", i), "int64", bytesOf(in.offsets[i]), w.B+1)
		}
		add(fmt.Sprint("values", i), w.DType, in.values[i].Data, in.values[i].Shape...)
		add(fmt.Sprint("times", i), "int64", bytesOf(in.times[i]), shape...)
	}
	add("targets", "int64", bytesOf(in.targets), w.B, w.T)
	if w.Norm {
		add("mean", "float32", bytesOf(in.mean), w.width())
		add("std", "float32", bytesOf(in.std), w.width())
	}
	return out
}
