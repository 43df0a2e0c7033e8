package conform

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// spaceCase is one vector of voxels, depth images or TSDF; generate_voxels.py says what the fields
// are.
type spaceCase struct {
	named
	Op       string           `json:"op"`
	Points   tensor           `json:"points"`
	Features *tensor          `json:"features"`
	Lengths  integers         `json:"lengths"`
	Offsets  integers         `json:"offsets"`
	Grid     [3]int           `json:"grid"`
	Mode     kernel.VoxelMode `json:"mode"`
	Outside  kernel.Outside   `json:"outside"`
	Bits     bool             `json:"bits"`
	Fill     bits32           `json:"fill"`
	DType    string           `json:"dtype"`
	Capacity *int             `json:"capacity"`
	Found    int64            `json:"found"`
	Coords   []int32          `json:"coords"`
	Counts   []int32          `json:"counts"`
	Rows     []string         `json:"rows"`
	Stats    []int64          `json:"stats"`

	Depth     tensor         `json:"depth"`
	Camera    numbers        `json:"camera"`
	Scale     bits32         `json:"scale"`
	Pose      numbers        `json:"pose"`
	View      numbers        `json:"view"`
	Min       numbers        `json:"min"`
	Size      numbers        `json:"size"`
	Truncate  bits32         `json:"truncate"`
	MaxWeight bits32         `json:"max_weight"`
	Value     tensor         `json:"value"`
	Weight    tensor         `json:"weight"`
	Stride    []int          `json:"stride"`
	Base      int            `json:"base"`
	Want      []string       `json:"want"`
	Valid     []int          `json:"valid"`
	WantW     []string       `json:"want_weight"`
	Error     *ExpectedError `json:"error"`
}

// RunVoxels gives every vector of voxels, depth images and TSDF to the back end. It returns how
// many ran, and the failures.
func RunVoxels(b kernel.Backend) (ran int, failures []error) {
	s := suite{b: b}
	for _, file := range files("voxels") {
		each[spaceCase](&s, file)
	}
	each[largeVoxels](&s, "voxels/large.json")
	return s.ran, s.failures
}

func (c *spaceCase) run(b kernel.Backend) error {
	return map[string]func(b kernel.Backend) error{"voxelize": c.voxelize, "unproject": c.unproject, "integrate": c.integrate}[c.Op](
		b,
	)
}

func (c *spaceCase) voxelize(b kernel.Backend) error {
	op := &kernel.VoxelOp{
		Points: kernel.Tensor(
			c.Points,
		),
		Features: (*kernel.Tensor)(c.Features),
		Lengths:  c.Lengths.index(),
		Offsets:  c.Offsets.index(),
		Min:      [3]float32(c.Min),
		Size:     [3]float32(c.Size),
		Grid:     c.Grid,
		Mode:     c.Mode,
		Outside:  c.Outside,
		Bits:     c.Bits,
		Fill:     float32(c.Fill),
		Validate: c.Error != nil,
		Stats:    Filled(robocache.Int64, 3),
	}
	if c.Capacity != nil {
		n := *c.Capacity
		op.Coords, op.Found = Filled(robocache.Int32, n, 4), Filled(robocache.Int64, 1)
		if c.Counts != nil || op.Mode == kernel.Count {
			op.Counts = Filled(robocache.Int32, n)
		}
		if op.Mode.Featured() {
			op.Rows = Filled(robocache.Float32, n, op.Features.Shape[len(op.Features.Shape)-1])
		}
	} else {
		dt, _ := robocache.ParseDType(c.DType)
		l, err := op.Layout()
		if err != nil {
			l = &kernel.VoxelLayout{Shape: []int{0}}
		}
		op.Out = blank(&array{DType: dt, Shape: l.Shape, Stride: c.Stride, Base: c.Base})
	}
	runs, err := c.Error.runs(b, op)
	if err != nil {
		return err
	}
	if !runs {
		return nil
	}
	if err := expect("stats", op.Stats, words(c.Stats, 16), nil); err != nil {
		return err
	}
	if err := expect("out", op.Out, c.Want, nil); err != nil {
		return err
	}
	if op.Out != nil {
		return nil
	}
	// What is beyond those found is not written: expect sees that of a shorter view.
	n := min(int(c.Found), *c.Capacity)
	for _, t := range []*kernel.Tensor{op.Coords, op.Counts, op.Rows} {
		if t != nil {
			t.Shape[0] = n
		}
	}
	if err := expect("found", op.Found, words([]int64{c.Found}, 16), nil); err != nil {
		return err
	}
	if err := expect("coords", op.Coords, words(c.Coords, 8), nil); err != nil {
		return err
	}
	if err := expect("counts", op.Counts, words(c.Counts, 8), nil); err != nil {
		return err
	}
	return expect("rows", op.Rows, c.Rows, nil)
}

func (c *spaceCase) unproject(b kernel.Backend) error {
	op := &kernel.DepthOp{
		Depth:  kernel.Tensor(c.Depth),
		Camera: [4]float32(c.Camera),
		Scale:  float32(c.Scale),
	}
	if c.Pose != nil {
		op.Pose = (*[12]float32)(c.Pose)
	}
	op.Out = *blank(&array{DType: robocache.Float32, Shape: append(slices.Clone(op.Depth.Shape), 3), Stride: c.Stride, Base: c.Base})
	op.Valid = Filled(robocache.Uint8, op.Depth.Shape...)
	runs, err := c.Error.runs(b, op)
	if err != nil {
		return err
	}
	if runs {
		if err := expect("out", &op.Out, c.Want, nil); err != nil {
			return err
		}
		if err := expect("valid", op.Valid, words(c.Valid, 2), nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *spaceCase) integrate(b kernel.Backend) error {
	op := &kernel.TSDFOp{
		Depth: kernel.Tensor(
			c.Depth,
		),
		Camera: [4]float32(c.Camera),
		Scale:  float32(c.Scale),
		View:   [12]float32(c.View),
		Min:    [3]float32(c.Min),
		Size:   [3]float32(c.Size),
		Truncate: float32(
			c.Truncate,
		),
		MaxWeight: float32(c.MaxWeight),
		Value:     kernel.Tensor(c.Value),
		Weight:    kernel.Tensor(c.Weight),
	}
	runs, err := c.Error.runs(b, op)
	if err != nil {
		return err
	}
	if runs {
		if err := expect("value", &op.Value, c.Want, nil); err != nil {
			return err
		}
		if err := expect("weight", &op.Weight, c.WantW, nil); err != nil {
			return err
		}
	}
	return nil
}
