package cpu

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestRealClouds counts points of KITTI and nuScenes frames at 1 m. It compares the cells and
// counts with an oracle, computed by another reader in float64 from an origin at 0. If float32
// moves no point over a border when the origin is subtracted, all must be equal.
func TestRealClouds(t *testing.T) {
	dir := realdata.Path(t, "pointclouds")
	raw, err := os.ReadFile(filepath.Join(dir, "oracle", "points.json"))
	if err != nil {
		t.Fatal(err)
	}
	type voxels struct {
		Occupied int    `json:"occupied"`
		MinCell  [3]int `json:"min_cell"`
		MaxCell  [3]int `json:"max_cell"`
		Cells    string `json:"cells_sha256"`
		Counts   string `json:"counts_sha256"`
	}
	var oracle map[string]struct {
		Points int               `json:"points"`
		Voxels map[string]voxels `json:"voxels"`
	}
	if err := json.Unmarshal(raw, &oracle); err != nil {
		t.Fatal(err)
	}
	if len(oracle) < 4 {
		t.Fatalf("%d frames", len(oracle))
	}
	exact := 0
	for name, want := range oracle {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		columns := 4
		if strings.HasPrefix(name, "nuscenes") {
			columns = 5
		}
		v := want.Voxels["1.0"]
		op := &kernel.VoxelOp{
			Mode: kernel.Average,
			Size: [3]float32{1, 1, 1},
			Points: kernel.Tensor{
				DType:  robocache.Float32,
				Shape:  []int{want.Points, 3},
				Stride: []int{columns, 1},
				Data:   data,
			},
			// Intensity alone: one column among others.
			Features: &kernel.Tensor{
				DType:  robocache.Float32,
				Shape:  []int{want.Points, 1},
				Stride: []int{columns, 1},
				Base:   3,
				Data:   data,
			},
		}
		for a := range 3 {
			op.Min[a] = float32(v.MinCell[a])
			op.Grid[a] = v.MaxCell[a] - v.MinCell[a] + 1
		}
		carried := 0
		for i := range want.Points {
			for a := range 3 {
				x := math.Float32frombits(binary.LittleEndian.Uint32(data[4*(columns*i+a):]))
				if math.Floor(float64(x-op.Min[a])) != math.Floor(float64(x))-float64(op.Min[a]) {
					carried++
				}
			}
		}
		room := v.Occupied + carried
		op.Coords = blankTensor(robocache.Int32, room, 4)
		op.Counts = blankTensor(robocache.Int32, room)
		op.Found = blankTensor(robocache.Int64, 1)
		op.Rows, op.Stats = blankTensor(robocache.Float32, room, 1), blankTensor(robocache.Int64, 3)
		if err := New(2).Run(op); err != nil {
			t.Fatal(err)
		}
		found := int(binary.LittleEndian.Uint64(op.Found.Data))
		if found > room || found < v.Occupied-carried {
			t.Errorf("%s: %d cells, want %d", name, found, v.Occupied)
			continue
		}
		if n := binary.LittleEndian.Uint64(op.Stats.Data); n != uint64(want.Points) {
			t.Errorf("%s: %d points inside, want %d", name, n, want.Points)
		}
		cells, counts := sha256.New(), sha256.New()
		total := 0.0
		for i := range found {
			for a := range 3 {
				at := int(
					int32(binary.LittleEndian.Uint32(op.Coords.Data[16*i+4+4*a:])),
				) + v.MinCell[a]
				_ = binary.Write(cells, binary.LittleEndian, int64(at))
			}
			n := int64(binary.LittleEndian.Uint32(op.Counts.Data[4*i:]))
			_ = binary.Write(counts, binary.LittleEndian, n)
			total += float64(
				n,
			) * float64(
				math.Float32frombits(binary.LittleEndian.Uint32(op.Rows.Data[4*i:])),
			)
		}
		sum := 0.0
		for i := range want.Points {
			sum += float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*(columns*i+3):])))
		}
		if math.Abs(total-sum) > 1e-6*math.Abs(sum) {
			t.Errorf("%s: the means hold %v of intensity, want %v", name, total, sum)
		}
		if carried > 0 {
			continue
		}
		exact++
		if got := hex.EncodeToString(cells.Sum(nil)); got != v.Cells {
			t.Errorf("%s: other cells than the oracle's", name)
		}
		if got := hex.EncodeToString(counts.Sum(nil)); got != v.Counts {
			t.Errorf("%s: other counts than the oracle's", name)
		}
	}
	if exact < 2 {
		t.Errorf("%d frames were compared to the bit", exact)
	}
}

// blankTensor returns a tensor of zeros in C order.
func blankTensor(dt robocache.DType, shape ...int) *kernel.Tensor {
	t := &kernel.Tensor{DType: dt, Shape: shape}
	t.Data = make([]byte, t.Len()*dt.Size())
	return t
}

// FuzzVoxelize compares points, features and options with any bits with the reference.
func FuzzVoxelize(f *testing.F) {
	f.Add(
		[]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
		uint64(0x30201),
		uint8(3),
		uint8(3),
	)
	f.Add(make([]byte, 400), uint64(0x7ffff0), uint8(4), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, bits uint64, mode, width uint8) {
		w := int(width%9) + 1
		n := len(data) / (4 * (3 + w))
		fresh := func() *kernel.VoxelOp {
			op := &kernel.VoxelOp{
				Mode:    kernel.VoxelMode(mode % 7),
				Outside: kernel.Outside(bits >> 40 % 2),
				Points: kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{n, 3},
					Data:  data[:12*n],
				},
			}
			if op.Mode.Featured() {
				op.Features = &kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{n, w},
					Data:  data[12*n : 4*n*(3+w)],
				}
			}
			for a := range 3 {
				op.Grid[a] = int(bits>>(6*a)&15) + 1
				op.Size[a] = math.Float32frombits(uint32(bits>>(20+a)) | 1)
				if !(op.Size[a] > 0) || math.IsInf(float64(op.Size[a]), 0) {
					op.Size[a] = 0.5
				}
			}
			op.Stats = blankTensor(robocache.Int64, 3)
			if bits>>41&1 == 1 {
				op.Coords = blankTensor(robocache.Int32, n, 4)
				op.Counts = blankTensor(robocache.Int32, n)
				op.Found = blankTensor(robocache.Int64, 1)
				if op.Mode.Featured() {
					op.Rows = blankTensor(robocache.Float32, n, w)
				}
				return op
			}
			l, err := op.Layout()
			if err != nil {
				t.Fatal(err)
			}
			op.Out = blankTensor(l.DType, l.Shape...)
			return op
		}
		a, b := fresh(), fresh()
		if err := (kernel.Reference{}).Run(a); err != nil {
			t.Fatal(err)
		}
		if err := (small{New(int(bits>>42%3) + 1)}).Run(b); err != nil {
			t.Fatal(err)
		}
		for i, x := range a.Tensors() {
			y := b.Tensors()[i]
			for o := range x.Data {
				if x.Data[o] == y.Data[o] {
					continue
				}
				p := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[o&^3:]))
				q := math.Float32frombits(binary.LittleEndian.Uint32(y.Data[o&^3:]))
				if x.DType != robocache.Float32 || p == p || q == q {
					t.Fatalf(
						"%v %v: byte %d: %x, want %x",
						a.Mode,
						x.Shape,
						o,
						y.Data[o],
						x.Data[o],
					)
				}
			}
		}
	})
}
