package cpu

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestVoxelsStayInTheirMemory checks that no byte after a dense result is written, for any row
// width and number of cells.
func TestVoxelsStayInTheirMemory(t *testing.T) {
	const guard = 64
	for width := 1; width <= 9; width++ {
		for _, grid := range [][3]int{{11, 7, 13}, {1, 1, 2}, {1, 1, 5}, {2, 3, 7}, {5, 5, 4}} {
			const n = 3000
			points, features := make([]byte, 12*n), make([]byte, 4*n*width)
			for i := range n {
				for a := range 3 {
					storeFloat(points[12*i+4*a:], float32((i*(7+a))%grid[a])+0.5)
				}
				for c := range width {
					storeFloat(features[4*(i*width+c):], float32(i%17))
				}
			}
			cells := grid[0] * grid[1] * grid[2]
			data := make([]byte, 4*cells*width+guard)
			for i := range data {
				data[i] = 0xa5
			}
			op := &kernel.VoxelOp{
				Points: kernel.Tensor{DType: robocache.Float32, Shape: []int{n, 3}, Data: points},
				Features: &kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{n, width},
					Data:  features,
				},
				Size: [3]float32{1, 1, 1},
				Grid: grid,
				Mode: kernel.Sum,
				Out: &kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{grid[0], grid[1], grid[2], width},
					Data:  data[:4*cells*width],
				},
			}
			if err := New(2).Run(op); err != nil {
				t.Fatal(err)
			}
			for i, b := range data[4*cells*width:] {
				if b != 0xa5 {
					t.Fatalf(
						"grid %v, width %d: byte %d behind the result was written",
						grid,
						width,
						i,
					)
				}
			}
		}
	}
}

// storeFloat writes a float32.
func storeFloat(b []byte, x float32) {
	binary.LittleEndian.PutUint32(b, math.Float32bits(x))
}
