package conform

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// spaceCase is one vector of voxels, depth images or TSDF; generate_voxels.py says what the fields are.
type spaceCase struct {
	Op       string   `json:"op"`
	Name     string   `json:"name"`
	Points   *array   `json:"points"`
	Features *array   `json:"features"`
	Lengths  []string `json:"lengths"`
	Offsets  []string `json:"offsets"`
	Grid     []int    `json:"grid"`
	Mode     string   `json:"mode"`
	Outside  string   `json:"outside"`
	Bits     bool     `json:"bits"`
	Fill     string   `json:"fill"`
	DType    string   `json:"dtype"`
	Capacity *int     `json:"capacity"`
	Found    int64    `json:"found"`
	Coords   []int32  `json:"coords"`
	Counts   []int32  `json:"counts"`
	Rows     []string `json:"rows"`
	Stats    []int64  `json:"stats"`

	Depth     *array         `json:"depth"`
	Camera    []string       `json:"camera"`
	Scale     string         `json:"scale"`
	Pose      []string       `json:"pose"`
	View      []string       `json:"view"`
	Min       []string       `json:"min"`
	Size      []string       `json:"size"`
	Truncate  string         `json:"truncate"`
	MaxWeight string         `json:"max_weight"`
	Value     *array         `json:"value"`
	Weight    *array         `json:"weight"`
	Stride    []int          `json:"stride"`
	Base      int            `json:"base"`
	Want      []string       `json:"want"`
	Valid     []int          `json:"valid"`
	WantW     []string       `json:"want_weight"`
	Error     *ExpectedError `json:"error"`
}

// RunVoxels gives every vector of voxels, depth images and TSDF to the back end. It returns how many ran, and the failures.
func RunVoxels(b Space) (ran int, failures []error) {
	var s suite
	for _, file := range files("voxels") {
		each(&s, file, func(c *spaceCase) (string, error) { return c.Name, c.run(b) })
	}
	each(&s, "voxels/large.json", func(c *largeVoxels) (string, error) {
		// Equal bits in each run: additions in another order would differ.
		for n := 1; n < 5 && c.Mode == "mean"; n++ {
			s.ran++
			if err := c.run(b); err != nil {
				return c.Name, fmt.Errorf("run %d: %w", n, err)
			}
		}
		return c.Name, c.run(b)
	})
	return s.ran, s.failures
}

func (c *spaceCase) run(b Space) error {
	switch c.Op {
	case "voxelize":
		return c.voxelize(b)
	case "unproject":
		return c.unproject(b)
	case "integrate":
		return c.integrate(b)
	}
	return fmt.Errorf("unknown op %q", c.Op)
}

func (c *spaceCase) voxelize(b Space) error {
	var r reader
	op := &kernel.VoxelOp{Points: r.tensor(c.Points), Lengths: r.index(c.Lengths), Offsets: r.index(c.Offsets), Bits: c.Bits, Fill: r.float32(c.Fill), Validate: c.Error != nil}
	if c.Features != nil {
		f := r.tensor(c.Features)
		op.Features = &f
	}
	copy(op.Grid[:], c.Grid)
	r.floats(op.Min[:], c.Min)
	r.floats(op.Size[:], c.Size)
	r.err = errors.Join(r.err, op.Mode.UnmarshalText([]byte(c.Mode)), op.Outside.UnmarshalText([]byte(c.Outside)))
	if r.err != nil {
		return r.err
	}
	op.Stats = Filled(robocache.Int64, 3)
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
	if done, err := c.Error.checked([]*kernel.Tensor{&op.Points}, func() error { return b.Voxelize(op) }); done {
		return err
	}
	errs := []error{expect("stats", op.Stats, words(c.Stats, 16), nil)}
	if op.Out != nil {
		errs = append(errs, expect("out", op.Out, c.Want, nil))
	} else {
		// What is beyond those found is not written: expect sees that of a shorter view.
		n := min(int(c.Found), *c.Capacity)
		op.Coords.Shape[0] = n
		errs = append(errs, expect("found", op.Found, words([]int64{c.Found}, 16), nil), expect("coords", op.Coords, words(c.Coords, 8), nil))
		if op.Counts != nil {
			op.Counts.Shape[0] = n
			errs = append(errs, expect("counts", op.Counts, words(c.Counts, 8), nil))
		}
		if op.Rows != nil {
			op.Rows.Shape[0] = n
			errs = append(errs, expect("rows", op.Rows, c.Rows, nil))
		}
	}
	return errors.Join(errs...)
}

func (c *spaceCase) unproject(b Space) error {
	var r reader
	op := &kernel.DepthOp{Depth: r.tensor(c.Depth), Scale: r.float32(c.Scale)}
	r.floats(op.Camera[:], c.Camera)
	if c.Pose != nil {
		op.Pose = new([12]float32)
		r.floats(op.Pose[:], c.Pose)
	}
	if r.err != nil {
		return r.err
	}
	op.Out = *blank(&array{DType: robocache.Float32, Shape: append(slices.Clone(op.Depth.Shape), 3), Stride: c.Stride, Base: c.Base})
	op.Valid = Filled(robocache.Uint8, op.Depth.Shape...)
	if done, err := c.Error.failed(b.Unproject(op)); done {
		return err
	}
	return errors.Join(expect("out", &op.Out, c.Want, nil), expect("valid", op.Valid, words(c.Valid, 2), nil))
}

func (c *spaceCase) integrate(b Space) error {
	var r reader
	op := &kernel.TSDFOp{Depth: r.tensor(c.Depth), Scale: r.float32(c.Scale), Truncate: r.float32(c.Truncate), MaxWeight: r.float32(c.MaxWeight), Value: r.tensor(c.Value), Weight: r.tensor(c.Weight)}
	r.floats(op.Camera[:], c.Camera)
	r.floats(op.View[:], c.View)
	r.floats(op.Min[:], c.Min)
	r.floats(op.Size[:], c.Size)
	if r.err != nil {
		return r.err
	}
	if done, err := c.Error.failed(b.Integrate(op)); done {
		return err
	}
	return errors.Join(expect("value", &op.Value, c.Want, nil), expect("weight", &op.Weight, c.WantW, nil))
}
