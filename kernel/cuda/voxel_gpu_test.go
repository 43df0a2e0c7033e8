package cuda

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestVoxelTimes prints times of voxel operations on a GPU, in graphs, as the plans choose them. It
// needs -times.
func TestVoxelTimes(t *testing.T) {
	if !*times {
		t.Skip("-times measures")
	}
	d := device(t)
	for _, c := range []struct {
		name    string
		mode    kernel.VoxelMode
		batch   int
		points  int
		grid    int
		columns int
		sparse  bool
		spread  float64 // fraction of the grid that contains points
	}{
		{"as bench", kernel.Count, 1, 500000, 128, 0, false, 1},
		{"as bench", kernel.Count, 1, 5000000, 128, 0, false, 1},
		{"as bench, inside", kernel.Count, 1, 5000000, 128, 0, false, 1},
		{"bar", kernel.Count, 1, 500000, 128, 0, false, 1},
		{"bar", kernel.Occupancy, 1, 500000, 128, 0, false, 1},
		{"bar", kernel.Average, 1, 500000, 128, 8, false, 1},
		{"bar", kernel.Maximum, 1, 500000, 128, 8, false, 1},
		{"bar", kernel.Count, 1, 5000000, 128, 0, false, 1},
		{"bar", kernel.Occupancy, 1, 5000000, 128, 0, false, 1},
		{"bar", kernel.Average, 1, 5000000, 128, 8, false, 1},
		{"bar", kernel.Maximum, 1, 5000000, 128, 8, false, 1},
		{"sum", kernel.Sum, 1, 500000, 128, 8, false, 1},
		{"first", kernel.FirstPoint, 1, 500000, 128, 8, false, 1},
		{"sparse", kernel.Average, 1, 500000, 128, 8, true, 1},
		{"sparse, large grid", kernel.Average, 1, 120000, 448, 8, true, 1},
		{"sparse, large grid", kernel.Count, 1, 120000, 448, 0, true, 0.3},
		{"small", kernel.Count, 1, 1000, 128, 0, false, 1},
		{"small", kernel.Average, 1, 10000, 64, 8, false, 1},
		{"small", kernel.Average, 1, 100000, 64, 8, false, 1},
		{"batch", kernel.Average, 32, 20000, 64, 8, false, 1},
		{"batch", kernel.Count, 32, 20000, 64, 0, false, 1},
		{"batch", kernel.Maximum, 256, 2000, 32, 4, false, 1},
		{"odd columns", kernel.Average, 1, 500000, 128, 3, false, 1},
		{"odd columns", kernel.Average, 1, 500000, 128, 13, false, 1},
		{"large grid", kernel.Count, 1, 500000, 512, 0, false, 1},
		{"large grid", kernel.Average, 1, 500000, 256, 4, false, 1},
		{"dense cloud", kernel.Average, 1, 500000, 128, 8, false, 0.2},
		{"one cell", kernel.Average, 1, 100000, 128, 8, false, 0.001},
		{"one cell", kernel.Maximum, 1, 100000, 128, 8, false, 0.001},
		{"one cell", kernel.Count, 1, 100000, 128, 0, false, 0.001},
	} {
		op := &kernel.VoxelOp{
			Mode: c.mode,
			Grid: [3]int{c.grid, c.grid, c.grid},
			Size: [3]float32{1, 1, 1},
		}
		place := func(dt robocache.DType, shape ...int) kernel.Tensor {
			x := kernel.Tensor{DType: dt, Shape: shape}
			addr, err := d.Alloc(max(x.Len(), 1) * dt.Size())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Free(addr) })
			x.Addr = addr
			return x
		}
		r := rand.New(rand.NewPCG(1, 2))
		random := func(scale float64, shape ...int) kernel.Tensor {
			x := place(robocache.Float32, shape...)
			b := make([]byte, x.Len()*4)
			for i := range x.Len() {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(r.Float64()*scale)))
			}
			if err := d.CopyIn(x.Addr, b); err != nil {
				t.Fatal(err)
			}
			return x
		}
		op.Points = random(c.spread*float64(c.grid), c.batch, c.points, 3)
		if strings.HasPrefix(c.name, "as bench") {
			op.Min, op.Size = [3]float32{-10, -10, -10}, [3]float32{0.15625, 0.15625, 0.15625}
			b := make([]byte, op.Points.Len()*4)
			for i := range op.Points.Len() {
				v := -10 + 20*r.Float32()
				if c.name == "as bench" && i%300 == 299 {
					v = -11
				}
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
			}
			if err := d.CopyIn(op.Points.Addr, b); err != nil {
				t.Fatal(err)
			}
		}
		if c.columns > 0 {
			f := random(1, c.batch, c.points, c.columns)
			op.Features = &f
		}
		if c.sparse {
			n := c.batch * c.points
			co := place(robocache.Int32, n, 4)
			cn := place(robocache.Int32, n)
			fo := place(robocache.Int64, 1)
			op.Coords, op.Counts, op.Found = &co, &cn, &fo
			if c.columns > 0 {
				ro := place(robocache.Float32, n, c.columns)
				op.Rows = &ro
			}
		} else {
			l, err := op.Layout()
			if err != nil {
				t.Fatal(err)
			}
			o := place(l.DType, l.Shape...)
			op.Out = &o
		}
		n, err := d.VoxelScratch(op)
		if err != nil {
			t.Fatal(err)
		}
		s := place(robocache.Uint8, n)
		op.Scratch = &s
		l, err := d.Prepare(op)
		if err != nil {
			t.Fatal(err)
		}
		var addrs []uintptr
		for _, x := range op.Tensors() {
			addrs = append(addrs, x.Addr)
		}
		timing, err := d.Time(
			20,
			20,
			func(_ int, stream uintptr) error { return l.Run(addrs, stream) },
		)
		if err != nil {
			t.Error(c, err)
			continue
		}
		t.Logf(
			"%-20s %-10s B %3d N %8d grid %3d³ F %2d sparse %-5v: %9.2f µs (best %.2f), scratch "+
				"%.1f MB",
			c.name,
			c.mode,
			c.batch,
			c.points,
			c.grid,
			c.columns,
			c.sparse,
			timing.Median,
			timing.Best,
			float64(n)/1e6,
		)
	}
}
