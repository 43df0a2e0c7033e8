//go:build linux && amd64 && !purego

package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestVoxelsEndWhereTheyEnd covers cpu.C4: points, features and results end at pages that may not
// be touched, and nothing beyond a row is read or written.
func TestVoxelsEndWhereTheyEnd(t *testing.T) {
	defer func(n int) { minPointsPerThread = n }(minPointsPerThread)
	minPointsPerThread = 64
	for width := 1; width <= 17; width++ {
		for _, n := range []int{1, 2, 3, 7, 8, 9, 600} {
			points, features := guarded(t, 12*n), guarded(t, 4*n*width)
			for i := range n {
				for a := range 3 {
					storeFloat(points[12*i+4*a:], float32((i*(7+a))%5)+0.5)
				}
				for c := range width {
					storeFloat(features[4*(i*width+c):], float32(i%17))
				}
			}
			for _, mode := range []kernel.VoxelMode{
				kernel.Sum,
				kernel.Average,
				kernel.Maximum,
				kernel.FirstPoint,
			} {
				for _, sparse := range []bool{false, true} {
					for _, threads := range []int{1, 3} {
						op := func(memory func(n int) []byte) (*kernel.VoxelOp, []byte) {
							o := &kernel.VoxelOp{
								Points: kernel.Tensor{
									DType: robocache.Float32,
									Shape: []int{n, 3},
									Data:  points,
								},
								Features: &kernel.Tensor{
									DType: robocache.Float32,
									Shape: []int{n, width},
									Data:  features,
								},
								Size: [3]float32{1, 1, 1},
								Grid: [3]int{5, 5, 5},
								Mode: mode,
							}
							if !sparse {
								data := memory(4 * 125 * width)
								o.Out = &kernel.Tensor{
									DType: robocache.Float32,
									Shape: []int{5, 5, 5, width},
									Data:  data,
								}
								return o, data
							}
							capacity := min(n, 4)
							data := memory(4 * capacity * width)
							o.Coords = &kernel.Tensor{
								DType: robocache.Int32,
								Shape: []int{capacity, 4},
								Data:  memory(16 * capacity),
							}
							o.Rows = &kernel.Tensor{
								DType: robocache.Float32,
								Shape: []int{capacity, width},
								Data:  data,
							}
							o.Found = &kernel.Tensor{
								DType: robocache.Int64,
								Shape: []int{1},
								Data:  memory(8),
							}
							return o, data
						}
						want, w := op(func(n int) []byte { return make([]byte, n) })
						got, g := op(func(n int) []byte { return guarded(t, n) })
						if err := (kernel.Reference{}).Run(want); err != nil {
							t.Fatal(err)
						}
						if err := New(threads).Run(got); err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(w, g) {
							t.Error(
								fmt.Sprint(
									"width ",
									width,
									", ",
									n,
									" points, ",
									mode,
									", sparse ",
									sparse,
									", ",
									threads,
									" threads: not the reference's bytes",
								),
							)
						}
					}
				}
			}
		}
	}
}
