package conform

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// spaceCase is one vector of voxels, depth images or TSDF. generate_voxels.py documents the fields.
type spaceCase struct {
	caseName
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

// RunVoxels runs every vector of voxels, depth images and TSDF on the back end. It returns the
// number of cases and the failures.
func RunVoxels(b kernel.Backend) (ran int, failures []error) {
	s := suite{backend: b}
	for _, file := range listFiles("voxels") {
		runFile[spaceCase](&s, file)
	}
	runFile[largeVoxels](&s, "voxels/large.json")
	return s.ran, s.failures
}

// runCase runs the case on the back end and compares the results.
func (c *spaceCase) runCase(b kernel.Backend) error {
	return map[string]func(b kernel.Backend) error{
		"voxelize":  c.runVoxelize,
		"unproject": c.runUnproject,
		"integrate": c.runIntegrate,
	}[c.Op](b)
}

// runVoxelize runs a VoxelOp. The result is sparse if the case has a capacity.
func (c *spaceCase) runVoxelize(b kernel.Backend) error {
	op := &kernel.VoxelOp{
		Points:   kernel.Tensor(c.Points),
		Features: (*kernel.Tensor)(c.Features),
		Lengths:  c.Lengths.indexTensor(),
		Offsets:  c.Offsets.indexTensor(),
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
		op.Coords = Filled(robocache.Int32, n, 4)
		op.Found = Filled(robocache.Int64, 1)
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
		op.Out = blankTensor(
			&tensorLayout{DType: dt, Shape: l.Shape, Stride: c.Stride, Base: c.Base},
		)
	}
	runs, err := c.Error.runExpecting(b, op)
	if err != nil || !runs {
		return err
	}
	return c.compareVoxels(op)
}

// compareVoxels compares the results of an operation with those of the case.
func (c *spaceCase) compareVoxels(op *kernel.VoxelOp) error {
	if err := expectElements("stats", op.Stats, hexWords(c.Stats, 16), nil); err != nil {
		return err
	}
	if err := expectElements("out", op.Out, c.Want, nil); err != nil {
		return err
	}
	if op.Out != nil {
		return nil
	}
	// Rows beyond those found must not be written. With shorter views, expectElements checks this.
	n := min(int(c.Found), *c.Capacity)
	for _, t := range []*kernel.Tensor{op.Coords, op.Counts, op.Rows} {
		if t != nil {
			t.Shape[0] = n
		}
	}
	if err := expectElements("found", op.Found, hexWords([]int64{c.Found}, 16), nil); err != nil {
		return err
	}
	if err := expectElements("coords", op.Coords, hexWords(c.Coords, 8), nil); err != nil {
		return err
	}
	if err := expectElements("counts", op.Counts, hexWords(c.Counts, 8), nil); err != nil {
		return err
	}
	return expectElements("rows", op.Rows, c.Rows, nil)
}

// runUnproject runs a DepthOp.
func (c *spaceCase) runUnproject(b kernel.Backend) error {
	op := &kernel.DepthOp{
		Depth:  kernel.Tensor(c.Depth),
		Camera: [4]float32(c.Camera),
		Scale:  float32(c.Scale),
	}
	if c.Pose != nil {
		op.Pose = (*[12]float32)(c.Pose)
	}
	op.Out = *blankTensor(&tensorLayout{
		DType:  robocache.Float32,
		Shape:  append(slices.Clone(op.Depth.Shape), 3),
		Stride: c.Stride,
		Base:   c.Base,
	})
	op.Valid = Filled(robocache.Uint8, op.Depth.Shape...)
	runs, err := c.Error.runExpecting(b, op)
	if err != nil {
		return err
	}
	if runs {
		if err := expectElements("out", &op.Out, c.Want, nil); err != nil {
			return err
		}
		if err := expectElements("valid", op.Valid, hexWords(c.Valid, 2), nil); err != nil {
			return err
		}
	}
	return nil
}

// runIntegrate runs a TSDFOp, which updates value and weight in place.
func (c *spaceCase) runIntegrate(b kernel.Backend) error {
	op := &kernel.TSDFOp{
		Depth:     kernel.Tensor(c.Depth),
		Camera:    [4]float32(c.Camera),
		Scale:     float32(c.Scale),
		View:      [12]float32(c.View),
		Min:       [3]float32(c.Min),
		Size:      [3]float32(c.Size),
		Truncate:  float32(c.Truncate),
		MaxWeight: float32(c.MaxWeight),
		Value:     kernel.Tensor(c.Value),
		Weight:    kernel.Tensor(c.Weight),
	}
	runs, err := c.Error.runExpecting(b, op)
	if err != nil {
		return err
	}
	if runs {
		if err := expectElements("value", &op.Value, c.Want, nil); err != nil {
			return err
		}
		if err := expectElements("weight", &op.Weight, c.WantW, nil); err != nil {
			return err
		}
	}
	return nil
}
