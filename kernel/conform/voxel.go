package conform

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Space is the part of a back end that knows points, voxels and depth images.
type Space interface {
	Voxelize(op *kernel.VoxelOp) error
	Unproject(op *kernel.DepthOp) error
	Integrate(op *kernel.TSDFOp) error
}

const voxelVectors = "testdata/vectors/voxels/"

// array is a tensor in a vector.
type array struct {
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape"`
	Stride []int           `json:"stride"`
	Base   int             `json:"base"`
	Skip   int             `json:"skip"` // bytes before the memory, so that elements are not aligned
	Memory []string        `json:"memory"`
}

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
	for _, name := range []string{"voxel.json", "depth.json", "tsdf.json", "errors.json"} {
		raw, err := kernel.Vectors.ReadFile(voxelVectors + name)
		var f struct{ Cases []spaceCase }
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err != nil {
			return ran, append(failures, fmt.Errorf("%s: %w", name, err))
		}
		for i := range f.Cases {
			c := &f.Cases[i]
			ran++
			if err := c.run(b); err != nil {
				failures = append(failures, fmt.Errorf("voxels/%s: %s: %w", name, c.Name, err))
			}
		}
	}
	n, more := runLargeVoxels(b)
	return ran + n, append(failures, more...)
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

// reader collects the first error of many small readings.
type reader struct{ err error }

func (r *reader) float(s string) float32 {
	if s == "" {
		return 0
	}
	u, err := strconv.ParseUint(s, 16, 32)
	r.err = errors.Join(r.err, err)
	return math.Float32frombits(uint32(u))
}

func (r *reader) floats(dst []float32, s []string) {
	if len(s) != len(dst) {
		r.err = errors.Join(r.err, fmt.Errorf("%d numbers, want %d", len(s), len(dst)))
		return
	}
	for i, x := range s {
		dst[i] = r.float(x)
	}
}

func (r *reader) tensor(a *array) kernel.Tensor {
	t := kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride, Base: a.Base, Data: make([]byte, a.Skip, a.Skip+8*len(a.Memory))}
	for _, h := range a.Memory {
		b, err := hex.DecodeString(h)
		r.err = errors.Join(r.err, err)
		for i := len(b) - 1; i >= 0; i-- {
			t.Data = append(t.Data, b[i])
		}
	}
	t.Data = t.Data[a.Skip:]
	return t
}

func (r *reader) index(s []string) *kernel.Tensor {
	if s == nil {
		return nil
	}
	x, err := Int64s(s)
	r.err = errors.Join(r.err, err)
	t := &kernel.Tensor{DType: robocache.Int64, Shape: []int{len(x)}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(v))
	}
	return t
}

// poison is what lies in memory that a back end has to fill, and beside it.
const poison = 0xA5

// blank is a result tensor that holds poison.
func blank(dt robocache.DType, shape, stride []int, base int) *kernel.Tensor {
	t := &kernel.Tensor{DType: dt, Shape: shape, Stride: stride, Base: base}
	size := 1 + base
	for i, d := range shape {
		if d < 0 || d > 1<<30 {
			return t // an error is expected
		}
		if s := t.Step(i); s > 0 {
			size += s * max(d-1, 0)
		}
	}
	if size <= 1<<28 {
		t.Data = make([]byte, size*dt.Size())
		for i := range t.Data {
			t.Data[i] = poison
		}
	}
	return t
}

// each calls f with every element's byte offset, in C order, and marks what lies between.
func each(t *kernel.Tensor, f func(i, o int)) {
	n := t.Len()
	index := make([]int, len(t.Shape))
	for i := range n {
		o := t.Base
		for a, k := range index {
			o += k * t.Step(a)
		}
		f(i, o*t.DType.Size())
		for a := len(index) - 1; a >= 0; a-- {
			if index[a]++; index[a] < t.Shape[a] {
				break
			}
			index[a] = 0
		}
	}
}

// expect compares a result with hex bits in C order, and proves that nothing beside it was written.
func expect(name string, t *kernel.Tensor, want []string) (err error) {
	if t.Len() != len(want) {
		return fmt.Errorf("%s: %v, want %d elements", name, t.Shape, len(want))
	}
	size := t.DType.Size()
	written := make([]bool, len(t.Data)/size)
	each(t, func(i, o int) {
		written[o/size] = true
		var g uint64
		for j := size - 1; j >= 0; j-- {
			g = g<<8 | uint64(t.Data[o+j])
		}
		switch w := want[i]; {
		case err != nil:
		case w == "nan" && !isNaN(g, t.DType):
			err = fmt.Errorf("%s: element %d of %v: %0*x, want a NaN", name, i, t.Shape, 2*size, g)
		case w != "nan" && w != fmt.Sprintf("%0*x", 2*size, g):
			err = fmt.Errorf("%s: element %d of %v: %0*x, want %s", name, i, t.Shape, 2*size, g, w)
		}
	})
	for i, w := range written {
		for j := 0; !w && j < size && err == nil; j++ {
			if t.Data[i*size+j] != poison {
				err = fmt.Errorf("%s: byte %d beside the result was written to", name, i*size+j)
			}
		}
	}
	return err
}

func words[T int32 | int64](x []T, digits int) []string {
	out := make([]string, len(x))
	for i, v := range x {
		out[i] = fmt.Sprintf("%0*x", digits, uint64(v)&(1<<(4*digits-1)<<1-1))
	}
	return out
}

// failed compares an error with the one that is wanted; done says that there is nothing more to compare.
func (c *spaceCase) failed(err error) (done bool, _ error) {
	if c.Error == nil {
		return err != nil, err
	}
	if err == nil {
		return true, fmt.Errorf("no error, want %q", c.Error.Phrase)
	}
	var e *robocache.Error
	if !errors.As(err, &e) || e.Class.Error() != c.Error.Class || !strings.Contains(err.Error(), c.Error.Phrase) {
		return true, fmt.Errorf("%w; want %s: %q", err, c.Error.Class, c.Error.Phrase)
	}
	return true, nil
}

func (c *spaceCase) voxelize(b Space) error {
	var r reader
	op := &kernel.VoxelOp{Points: r.tensor(c.Points), Lengths: r.index(c.Lengths), Offsets: r.index(c.Offsets), Bits: c.Bits, Fill: r.float(c.Fill), Validate: c.Error != nil}
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
	op.Stats = blank(robocache.Int64, []int{3}, nil, 0)
	if c.Capacity != nil {
		n := *c.Capacity
		op.Coords, op.Found = blank(robocache.Int32, []int{n, 4}, nil, 0), blank(robocache.Int64, []int{1}, nil, 0)
		if c.Counts != nil || op.Mode == kernel.Count {
			op.Counts = blank(robocache.Int32, []int{n}, nil, 0)
		}
		if op.Mode.Featured() {
			op.Rows = blank(robocache.Float32, []int{n, op.Features.Shape[len(op.Features.Shape)-1]}, nil, 0)
		}
	} else {
		dt, _ := robocache.ParseDType(c.DType)
		l, err := op.Layout()
		if err != nil {
			l = &kernel.VoxelLayout{Shape: []int{0}}
		}
		op.Out = blank(dt, l.Shape, c.Stride, c.Base)
	}
	before := string(op.Points.Data)
	if done, err := c.failed(b.Voxelize(op)); done {
		return err
	}
	if before != string(op.Points.Data) {
		return errors.New("the points were written to")
	}
	return c.voxelized(op)
}

func (c *spaceCase) voxelized(op *kernel.VoxelOp) error {
	errs := []error{expect("stats", op.Stats, words(c.Stats, 16))}
	if op.Out != nil {
		errs = append(errs, expect("out", op.Out, c.Want))
	} else {
		// What is beyond those found is not written: expect sees that of a shorter view.
		n := min(int(c.Found), *c.Capacity)
		op.Coords.Shape[0] = n
		errs = append(errs, expect("found", op.Found, words([]int64{c.Found}, 16)), expect("coords", op.Coords, words(c.Coords, 8)))
		if op.Counts != nil {
			op.Counts.Shape[0] = n
			errs = append(errs, expect("counts", op.Counts, words(c.Counts, 8)))
		}
		if op.Rows != nil {
			op.Rows.Shape[0] = n
			errs = append(errs, expect("rows", op.Rows, c.Rows))
		}
	}
	return errors.Join(errs...)
}

func (c *spaceCase) unproject(b Space) error {
	var r reader
	op := &kernel.DepthOp{Depth: r.tensor(c.Depth), Scale: r.float(c.Scale)}
	r.floats(op.Camera[:], c.Camera)
	if c.Pose != nil {
		op.Pose = new([12]float32)
		r.floats(op.Pose[:], c.Pose)
	}
	if r.err != nil {
		return r.err
	}
	op.Out = *blank(robocache.Float32, append(append([]int(nil), op.Depth.Shape...), 3), c.Stride, c.Base)
	op.Valid = blank(robocache.Uint8, op.Depth.Shape, nil, 0)
	if done, err := c.failed(b.Unproject(op)); done {
		return err
	}
	valid := make([]string, len(c.Valid))
	for i, v := range c.Valid {
		valid[i] = fmt.Sprintf("%02x", v)
	}
	return errors.Join(expect("out", &op.Out, c.Want), expect("valid", op.Valid, valid))
}

func (c *spaceCase) integrate(b Space) error {
	var r reader
	op := &kernel.TSDFOp{Depth: r.tensor(c.Depth), Scale: r.float(c.Scale), Truncate: r.float(c.Truncate), MaxWeight: r.float(c.MaxWeight), Value: r.tensor(c.Value), Weight: r.tensor(c.Weight)}
	r.floats(op.Camera[:], c.Camera)
	r.floats(op.View[:], c.View)
	r.floats(op.Min[:], c.Min)
	r.floats(op.Size[:], c.Size)
	if r.err != nil {
		return r.err
	}
	if done, err := c.failed(b.Integrate(op)); done {
		return err
	}
	return errors.Join(expect("value", &op.Value, c.Want), expect("weight", &op.Weight, c.WantW))
}
