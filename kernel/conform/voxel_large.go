package conform

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// largeVoxels is a generated point cloud and the SHA-256 of its voxels. generate_voxels.py
// documents how it is generated.
type largeVoxels struct {
	caseName
	Seed     uint64           `json:"seed,string"`
	Points   int              `json:"points"`
	Batch    int              `json:"batch"`
	Features int              `json:"features"`
	Mode     kernel.VoxelMode `json:"mode"`
	Layout   string           `json:"layout"`
	Grid     [3]int           `json:"grid"`
	Size     numbers          `json:"size"`
	Spread   float64          `json:"spread"`
	From     float64          `json:"from"`
	Stats    []int64          `json:"stats"`
	Found    int              `json:"found"`
	SHA256   string           `json:"sha256"`
}

// splitmix is the random number generator of the large vectors (SplitMix64).
func splitmix(state *uint64) uint64 {
	*state += 0x9E3779B97F4A7C15
	z := *state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// newOp returns the operation of the case, with blank results.
func (c *largeVoxels) newOp() (*kernel.VoxelOp, error) {
	seed := c.Seed
	op := &kernel.VoxelOp{
		Grid:  c.Grid,
		Size:  [3]float32(c.Size),
		Mode:  c.Mode,
		Bits:  c.Layout == "bits",
		Stats: Filled(robocache.Int64, 3),
	}
	lead := []int{c.Points}
	if c.Batch > 1 {
		lead = []int{c.Batch, c.Points / c.Batch}
	}
	points := make([]byte, 0, 12*c.Points)
	for range 3 * c.Points {
		x := float64(splitmix(&seed) >> 40)
		points = le.AppendUint32(
			points,
			math.Float32bits(float32(float64(x*0x1p-24*c.Spread)+c.From)),
		)
	}
	op.Points = kernel.Tensor{
		DType: robocache.Float32,
		Shape: append(lead[:len(lead):len(lead)], 3),
		Data:  points,
	}
	if c.Features > 0 {
		features := make([]byte, 0, 4*c.Points*c.Features)
		for range c.Points * c.Features {
			features = le.AppendUint32(
				features,
				math.Float32bits((float32(splitmix(&seed)>>40)-1<<23)*0x1p-20),
			)
		}
		op.Features = &kernel.Tensor{
			DType: robocache.Float32,
			Shape: append(lead[:len(lead):len(lead)], c.Features),
			Data:  features,
		}
	}
	if c.Layout == "sparse" {
		op.Coords = Filled(robocache.Int32, c.Found, 4)
		op.Counts = Filled(robocache.Int32, c.Found)
		op.Found = Filled(robocache.Int64, 1)
		if op.Mode.Featured() {
			op.Rows = Filled(robocache.Float32, c.Found, c.Features)
		}
		return op, nil
	}
	l, err := op.Layout()
	if err != nil {
		return nil, err
	}
	op.Out = Filled(l.DType, l.Shape...)
	return op, nil
}

// runCase runs the case. It runs averages five times, because additions in another order would give
// different results from run to run.
func (c *largeVoxels) runCase(b kernel.Backend) error {
	if err := c.runOnce(b); err != nil {
		return err
	}
	if _, same := b.(interface{ Repeats() }); same || c.Mode != kernel.Average {
		return nil
	}
	for range 4 {
		if err := c.runOnce(b); err != nil {
			return err
		}
	}
	return nil
}

// runOnce runs the operation once and compares its counts and the digest of its results.
func (c *largeVoxels) runOnce(b kernel.Backend) error {
	op, err := c.newOp()
	if err != nil {
		return err
	}
	if err := b.Run(op); err != nil {
		return err
	}
	if err := expectElements("stats", op.Stats, hexWords(c.Stats, 16), nil); err != nil {
		return err
	}
	if op.Out != nil {
		if err := checkDigest(c.SHA256, op.Out.Data[:op.Out.Len()*op.Out.DType.Size()]); err !=
			nil {
			return err
		}
		return nil
	}
	if err := expectElements("found", op.Found, hexWords([]int{c.Found}, 16), nil); err != nil {
		return err
	}
	parts := [][]byte{op.Coords.Data[:16*c.Found], op.Counts.Data[:4*c.Found]}
	if op.Rows != nil {
		parts = append(parts, op.Rows.Data[:4*c.Found*c.Features])
	}
	return checkDigest(c.SHA256, parts...)
}
