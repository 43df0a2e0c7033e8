package conform

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// largeVoxels is a generated cloud and the SHA-256 of its voxels; generate_voxels.py says how it is made.
type largeVoxels struct {
	Name     string   `json:"name"`
	Seed     string   `json:"seed"`
	Points   int      `json:"points"`
	Batch    int      `json:"batch"`
	Features int      `json:"features"`
	Mode     string   `json:"mode"`
	Layout   string   `json:"layout"`
	Grid     [3]int   `json:"grid"`
	Size     []string `json:"size"`
	Spread   float64  `json:"spread"`
	From     float64  `json:"from"`
	Stats    []int64  `json:"stats"`
	Found    int      `json:"found"`
	SHA256   string   `json:"sha256"`
}

func runLargeVoxels(b Space) (ran int, failures []error) {
	raw, err := kernel.Vectors.ReadFile(voxelVectors + "large.json")
	var f struct{ Cases []largeVoxels }
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return 0, []error{err}
	}
	for i := range f.Cases {
		c := &f.Cases[i]
		runs := 1
		if c.Mode == "mean" {
			runs = 5 // equal bits in each: additions in another order would differ
		}
		for n := range runs {
			ran++
			if err := c.run(b); err != nil {
				failures = append(failures, fmt.Errorf("voxels/large.json: %s: run %d: %w", c.Name, n, err))
				break
			}
		}
	}
	return ran, failures
}

// splitmix is the generator of the large vectors.
func splitmix(state *uint64) uint64 {
	*state += 0x9E3779B97F4A7C15
	z := *state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// op lays the case out, with blank results.
func (c *largeVoxels) op() (*kernel.VoxelOp, error) {
	seed, err := strconv.ParseUint(c.Seed, 10, 64)
	if err != nil {
		return nil, err
	}
	var r reader
	op := &kernel.VoxelOp{Grid: c.Grid, Bits: c.Layout == "bits"}
	r.floats(op.Size[:], c.Size)
	if err := errors.Join(r.err, op.Mode.UnmarshalText([]byte(c.Mode))); err != nil {
		return nil, err
	}
	lead := []int{c.Points}
	if c.Batch > 1 {
		lead = []int{c.Batch, c.Points / c.Batch}
	}
	points := make([]byte, 0, 12*c.Points)
	for range 3 * c.Points {
		x := float64(splitmix(&seed) >> 40)
		points = binary.LittleEndian.AppendUint32(points, math.Float32bits(float32(float64(x*0x1p-24*c.Spread)+c.From)))
	}
	op.Points = kernel.Tensor{DType: robocache.Float32, Shape: append(append([]int(nil), lead...), 3), Data: points}
	if c.Features > 0 {
		features := make([]byte, 0, 4*c.Points*c.Features)
		for range c.Points * c.Features {
			features = binary.LittleEndian.AppendUint32(features, math.Float32bits((float32(splitmix(&seed)>>40)-1<<23)*0x1p-20))
		}
		op.Features = &kernel.Tensor{DType: robocache.Float32, Shape: append(append([]int(nil), lead...), c.Features), Data: features}
	}
	op.Stats = blank(robocache.Int64, []int{3}, nil, 0)
	if c.Layout == "sparse" {
		op.Coords, op.Counts, op.Found = blank(robocache.Int32, []int{c.Found, 4}, nil, 0), blank(robocache.Int32, []int{c.Found}, nil, 0), blank(robocache.Int64, []int{1}, nil, 0)
		if op.Mode.Featured() {
			op.Rows = blank(robocache.Float32, []int{c.Found, c.Features}, nil, 0)
		}
		return op, nil
	}
	l, err := op.Layout()
	if err != nil {
		return nil, err
	}
	op.Out = blank(l.DType, l.Shape, nil, 0)
	return op, nil
}

func (c *largeVoxels) run(b Space) error {
	op, err := c.op()
	if err != nil {
		return err
	}
	if err := b.Voxelize(op); err != nil {
		return err
	}
	if err := expect("stats", op.Stats, words(c.Stats, 16)); err != nil {
		return err
	}
	h := sha256.New()
	if op.Out != nil {
		h.Write(op.Out.Data[:op.Out.Len()*op.Out.DType.Size()])
	} else {
		if err := expect("found", op.Found, words([]int64{int64(c.Found)}, 16)); err != nil {
			return err
		}
		h.Write(op.Coords.Data[:16*c.Found])
		h.Write(op.Counts.Data[:4*c.Found])
		if op.Rows != nil {
			h.Write(op.Rows.Data[:4*c.Found*c.Features])
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != c.SHA256 {
		return fmt.Errorf("SHA-256 %s, want %s", got, c.SHA256)
	}
	return nil
}
