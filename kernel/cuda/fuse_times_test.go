package cuda

import (
	stdflag "flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// times enables tests that print the times of different kernels. Developers use them to choose
// kernels.
var times = stdflag.Bool("times", false, "measure the ways to launch a kernel")

// TestFuseTimes prints the time of each way, in graphs of 50 launches. chooseWay and directLimit
// are based on these numbers. It needs -times; -times -run TestFuseTimes/fuse3 selects shapes by
// name.
func TestFuseTimes(t *testing.T) {
	if !*times {
		t.Skip("-times measures")
	}
	d := device(t)
	st := stream(t, d)
	bf, f32, f16 := robocache.BFloat16, robocache.Float32, robocache.Float16
	fused := [][2]int{{30, 512}, {100, 64}, {200, 12}}
	was := fuseChoice
	defer func() { fuseChoice = was }()
	for _, c := range []struct {
		name     string
		b, rows  int
		streams  [][2]int
		from, to robocache.DType
		norm     bool
	}{
		{"long 32x4096-1024x128 bf16", 32, 1024, [][2]int{{4096, 128}}, bf, bf, false},
		{"long 256x4096-1024x128 bf16", 256, 1024, [][2]int{{4096, 128}}, bf, bf, false},
		{"long 128x2000-500x64 bf16", 128, 500, [][2]int{{2000, 64}}, bf, bf, false},
		{"long 64x8192-2048x64 bf16", 64, 2048, [][2]int{{8192, 64}}, bf, bf, false},
		{"long 64x1000-500x128 bf16", 64, 500, [][2]int{{1000, 128}}, bf, bf, false},
		{"long 32x4096-1024x128 f32", 32, 1024, [][2]int{{4096, 128}}, f32, f32, false},
		{"long 128x2000-500x64 f32", 128, 500, [][2]int{{2000, 64}}, f32, f32, false},
		{"wide 16384x100-50x8 bf16", 16384, 50, [][2]int{{100, 8}}, bf, bf, false},
		{"wide 16384x100-50x16 bf16", 16384, 50, [][2]int{{100, 16}}, bf, bf, false},
		{"wide 16384x100-50x64 bf16", 16384, 50, [][2]int{{100, 64}}, bf, bf, false},
		{"wide 16384x100-50x128 bf16", 16384, 50, [][2]int{{100, 128}}, bf, bf, false},
		{"wide 4096x100-50x16 f32", 4096, 50, [][2]int{{100, 16}}, f32, f32, false},
		{"wide 4096x100-50x64 f32", 4096, 50, [][2]int{{100, 64}}, f32, f32, false},
		{"wide 4096x30-50x32 bf16", 4096, 50, [][2]int{{30, 32}}, bf, bf, false},
		{"wide 4096x200-100x32 bf16", 4096, 100, [][2]int{{200, 32}}, bf, bf, false},
		{"wide 4096x500-50x32 bf16", 4096, 50, [][2]int{{500, 32}}, bf, bf, false},
		{"wide 4096 two bf16", 4096, 50, [][2]int{{100, 32}, {200, 16}}, bf, bf, false},
		{"64x4096-1024x128 bf16", 64, 1024, [][2]int{{4096, 128}}, bf, bf, false},
		{"64x4096-1024x128 f32", 64, 1024, [][2]int{{4096, 128}}, f32, f32, false},
		{"4096x500-250x7 f32", 4096, 250, [][2]int{{500, 7}}, f32, f32, false},
		{"4096x500-250x13 f32", 4096, 250, [][2]int{{500, 13}}, f32, f32, false},
		{"4096x100-50x7 f32", 4096, 50, [][2]int{{100, 7}}, f32, f32, false},
		{"2048x500-256x256 f32", 2048, 256, [][2]int{{500, 256}}, f32, f32, false},
		{"4096x100-50x32 bf16", 4096, 50, [][2]int{{100, 32}}, bf, bf, false},
		{"16384x100-50x32 bf16", 16384, 50, [][2]int{{100, 32}}, bf, bf, false},
		{"16384x100-50x32 f32", 16384, 50, [][2]int{{100, 32}}, f32, f32, false},
		{"fuse3 B64 bf16", 64, 50, fused, bf, bf, false},
		{"fuse3 B256 bf16", 256, 50, fused, bf, bf, false},
		{"fuse3 B256 bf16-f16 norm", 256, 50, fused, bf, f16, true},
		{"fuse3 B1024 bf16", 1024, 50, fused, bf, bf, false},
		{"fuse3 B4096 bf16", 4096, 50, fused, bf, bf, false},
		{"fuse3 B4096 bf16-f16 norm", 4096, 50, fused, bf, f16, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := &kernel.FuseOp{
				Targets: kernel.Tensor{DType: robocache.Int64, Shape: []int{c.b, c.rows}},
			}
			cols := 0
			for _, s := range c.streams {
				x := kernel.Series{
					Values: kernel.Tensor{DType: c.from, Shape: []int{c.b, s[0], s[1]}},
					Times:  kernel.Tensor{DType: robocache.Int64, Shape: []int{c.b, s[0]}},
				}
				if c.norm {
					x.Epilogue.Norm = &kernel.Norm{
						A: make([]float32, s[1]),
						B: slices.Repeat([]float32{1.5}, s[1]),
					}
				}
				op.Series = append(op.Series, x)
				cols += s[1]
			}
			op.Out = kernel.Tensor{DType: c.to, Shape: []int{c.b, c.rows, cols}}
			addrs := directInputs(t, d, op, true)
			type result struct {
				us   float64
				what string
			}
			var all []result
			try := func(what string) {
				l, err := d.Prepare(op)
				if err != nil {
					t.Log(c.name, what, err)
					return
				}
				var k call
				for _, x := range l.calls {
					if x.grid > 0 && k.grid == 0 {
						k = x
					}
				}
				for _, early := range []bool{true, false} {
					early := early
					l.adjust = append(l.adjust, func([]uintptr) {
						for i := range l.calls {
							l.calls[i].early = early
						}
					})
					// it needs a thread per vector
					if strings.HasPrefix(k.kernel, "fuse_4_staged") && int(k.block) < cols/4 {
						continue
					}
					all = append(
						all,
						result{
							graphTime(t, d, st, l, addrs, 0, early),
							fmt.Sprintf(
								"%s %s %d x %d, %d B, early %v",
								what,
								k.kernel,
								k.grid,
								k.block,
								k.shared,
								early,
							),
						},
					)
				}
			}
			fuseChoice = was
			try("chosen")
			for _, fuseChoice = range []string{"direct", "tiles", "whole"} {
				try(fuseChoice)
			}
			chosen := all[0]
			slices.SortFunc(all, func(x, y result) int {
				if x.us < y.us {
					return -1
				}
				return 1
			})
			fmt.Printf("%-26s %8.2f  %s\n", c.name, chosen.us, chosen.what)
			for i, x := range all {
				if i < 8 || strings.HasPrefix(x.what, "chosen") ||
					strings.HasPrefix(x.what, "direct") {
					fmt.Printf("%-26s %8.2f  %s\n", "", x.us, x.what)
				}
			}
			for _, a := range addrs {
				d.Free(a)
			}
		})
	}
}
