package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// shape is a workload of bench ops and of the sweep: B entries of S samples and D columns,
// resampled to T rows.
type shape struct {
	b, s, t, d int
	dtype      robocache.DType
	mode       kernel.Mode
}

// shapes are the workloads of the benchmarks.
var shapes = []shape{
	{256, 100, 50, 32, robocache.Float32, kernel.Linear},
	{32, 500, 256, 256, robocache.Float32, kernel.Linear},
	{64, 4096, 1024, 128, robocache.Float32, kernel.Linear},
	{256, 100, 50, 32, robocache.BFloat16, kernel.Linear},
	{256, 100, 50, 32, robocache.Float16, kernel.Linear},
	{256, 100, 50, 32, robocache.Float64, kernel.Linear},
	{4096, 500, 250, 7, robocache.Float32, kernel.Linear},
	{256, 500, 250, 7, robocache.Float32, kernel.Linear},
	{256, 500, 250, 13, robocache.Float32, kernel.Linear},
	{256, 100, 50, 4, robocache.Float32, kernel.Slerp},
	{256, 100, 50, 7, robocache.Float32, kernel.Angle},
	{256, 100, 50, 7, robocache.Float32, kernel.Mean},
	{256, 100, 50, 32, robocache.Float32, kernel.Nearest},
}

// String returns the name of the workload.
func (s shape) String() string {
	return fmt.Sprintf("%d×%d→%d×%d %v %v", s.b, s.s, s.t, s.d, s.dtype, s.mode)
}

// touched returns the smallest number of bytes that the work must read and write: at most two
// source rows per target row.
func (s shape) touched() int {
	return s.b * ((min(s.s, 2*s.t)+s.t)*s.d*s.dtype.Size() + 8*(s.s+s.t))
}

// op returns an operation with timestamps at 100 Hz that are late by up to a fifth of a period, and
// with targets at an even rate.
func (s shape) op() *kernel.FuseOp {
	r := dice{rand.New(rand.NewPCG(1, 1))}
	dense := func(d robocache.DType, shape ...int) kernel.Tensor {
		t := kernel.Tensor{DType: d, Shape: shape}
		t.Data = make([]byte, t.Len()*d.Size())
		for i := 0; i < len(t.Data); i += 4096 {
			t.Data[i] = 1
		}
		return t
	}
	op := &kernel.FuseOp{
		Series: []kernel.Series{
			{Values: dense(s.dtype, s.b, s.s, s.d), Times: dense(robocache.Int64, s.b, s.s)},
		},
		Targets: dense(robocache.Int64, s.b, s.t),
		Out:     dense(s.dtype, s.b, s.t, s.d),
	}
	op.Series[0].Rule = kernel.Rule{Mode: s.mode, Before: 10e6, After: 10e6}
	v := &op.Series[0].Values
	r.floats(v)
	for b := range s.b {
		for i := range s.s {
			r.time(&op.Series[0].Times, b*s.s+i, int64(i)*10e6+r.Int64N(2e6))
		}
		for i := range s.t {
			r.time(&op.Targets, b*s.t+i, int64(float64(i)*10e6*float64(s.s-1)/float64(s.t)))
		}
	}
	return op
}

// BenchmarkFuse compares each workload with a memcpy of the same number of bytes, half of them read
// and half written. This is the lower bound.
func BenchmarkFuse(b *testing.B) {
	for _, s := range shapes {
		op := s.op()
		for _, threads := range []int{1, 2} {
			k := New(threads)
			b.Run(fmt.Sprintf("%v/threads=%d", s, threads), func(b *testing.B) {
				b.SetBytes(int64(s.touched()))
				b.ReportAllocs()
				for b.Loop() {
					if err := k.Run(op); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		x, y := slices.Repeat([]byte{1}, s.touched()/2), slices.Repeat([]byte{2}, s.touched()/2)
		b.Run(s.String()+"/memcpy", func(b *testing.B) {
			b.SetBytes(int64(s.touched()))
			for b.Loop() {
				copy(x, y)
			}
		})
	}
}
