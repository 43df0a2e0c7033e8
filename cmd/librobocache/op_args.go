//go:build cgo

package main

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// opArgs is an operation without its memory: everything that a call from Python repeats from step
// to step.
type opArgs struct {
	Op      string      `json:"op"` // fuse | fuse_grad | voxelize | unproject | integrate
	Backend string      `json:"backend"`
	Device  int         `json:"device"`
	Tensors []tensorArg `json:"tensors"` // in the order of the op's Tensors(), scratch left out
	Has     []string    `json:"has"`     // the optional tensors of the op that are there

	Series   []seriesArg `json:"series"`
	Clock    string      `json:"clock"` // ns | given
	Epsilon  float64     `json:"epsilon"`
	Validate bool        `json:"validate"`

	Min       []number32       `json:"min"`
	Size      []number32       `json:"size"`
	Grid      []int            `json:"grid"`
	Mode      kernel.VoxelMode `json:"mode"`
	Outside   kernel.Outside   `json:"outside"`
	Budget    int64            `json:"budget"`
	Bits      bool             `json:"bits"`
	Fast      bool             `json:"fast"`
	Zeroed    bool             `json:"zeroed"`
	Fill      number32         `json:"fill"`
	Camera    []number32       `json:"camera"`
	Scale     number32         `json:"scale"`
	Pose      []number32       `json:"pose"`
	Truncate  number32         `json:"truncate"`
	MaxWeight number32         `json:"max_weight"`
}

type tensorArg struct {
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape"`
	Stride []int           `json:"stride"`
}

type seriesArg struct {
	Name       string      `json:"name"`
	Has        []string    `json:"has"` // lengths | offsets | samples
	Mode       kernel.Mode `json:"mode"`
	Edge       kernel.Edge `json:"edge"`
	MaxGap     int64       `json:"max_gap"`
	Before     int64       `json:"before"`
	After      int64       `json:"after"`
	Period     float64     `json:"period"`
	Lo         *float64    `json:"lo"`
	Quats      [][4]int    `json:"quats"`
	Continuous bool        `json:"continuous"`
	Unit       bool        `json:"unit"`
	Norm       *normArg    `json:"norm"`
	Plane      int         `json:"plane"`
	Clip       []number32  `json:"clip"`
	Augment    *augmentArg `json:"augment"`
}

type normArg struct {
	Kind string   `json:"kind"` // mean_std | min_max
	A    []number `json:"a"`
	B    []number `json:"b"`
}

type augmentArg struct {
	Seed    uint64      `json:"seed"`
	Epoch   uint64      `json:"epoch"`
	Op      uint32      `json:"op"`
	Noise   number32    `json:"noise"`
	Dropout number32    `json:"dropout"`
	Scale   [2]number32 `json:"scale"`
}

// feed gives out the tensors of the call in the order in which they came.
type feed struct {
	args []tensorArg
	has  []string
}

func (f *feed) must() (kernel.Tensor, error) {
	if len(f.args) == 0 {
		return kernel.Tensor{}, misuse("op", "a tensor is missing")
	}
	a := f.args[0]
	f.args = f.args[1:]
	if len(a.Stride) != len(a.Shape) {
		return kernel.Tensor{}, misuse(
			"op",
			fmt.Sprintf("%d strides for %d extents", len(a.Stride), len(a.Shape)),
		)
	}
	for _, d := range a.Shape {
		if d < 0 {
			return kernel.Tensor{}, misuse("op", fmt.Sprintf("negative extent %d", d))
		}
	}
	return kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride}, nil
}

func (f *feed) maybe(name string) (*kernel.Tensor, error) {
	if !slices.Contains(f.has, name) {
		return nil, nil
	}
	t, err := f.must()
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// operation is one instance of a prepared op: its tensors get their memory for one run.
type operation struct {
	op      kernel.Op
	tensors []*kernel.Tensor
	// the first tensor that is written, and so are those after it; 0: the caller knows them apart
	results int
}

// build makes an instance of the op. The arguments stay as they are: it is called again for each
// concurrent run.
func (a *opArgs) build() (_ *operation, err error) {
	f := &feed{args: a.Tensors, has: a.Has}
	clock, ok := map[string]kernel.Clock{"": kernel.Nanoseconds, "ns": kernel.Nanoseconds, "given": kernel.AsGiven}[a.Clock]
	if !ok {
		return nil, misuse("op", fmt.Sprintf("Invalid clock %q", a.Clock))
	}
	var o operation
	var first *kernel.Tensor
	switch a.Op {
	case "fuse":
		op := &kernel.FuseOp{Clock: clock, Epsilon: a.Epsilon, Validate: a.Validate}
		for i := range a.Series {
			series, err := a.Series[i].series(f, true)
			if err != nil {
				return nil, err
			}
			op.Series = append(op.Series, series)
		}
		f.has = a.Has
		must, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue, err := f.must()
		if err != nil {
			return nil, err
		}
		op.Targets, op.Out = must, mustValue
		maybe, err := f.maybe("valid")
		if err != nil {
			return nil, err
		}
		maybeValue, err := f.maybe("counts")
		if err != nil {
			return nil, err
		}
		op.Valid, op.Counts = maybe, maybeValue
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Out
	case "fuse_grad":
		if len(a.Series) != 1 {
			return nil, misuse("op", "a gradient is of one stream")
		}
		op := &kernel.FuseGradOp{Clock: clock, Epsilon: a.Epsilon}
		if op.Series, err = a.Series[0].series(f, false); err != nil {
			return nil, err
		}
		must, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue2, err := f.must()
		if err != nil {
			return nil, err
		}
		op.Targets, op.Out, op.Grad = must, mustValue, mustValue2
		op.Series.Values = kernel.Tensor{
			DType:  op.Grad.DType,
			Shape:  op.Grad.Shape,
			Stride: op.Grad.Stride,
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Grad
	case "voxelize":
		op, err := a.voxels(f)
		if err != nil {
			return nil, err
		}
		o, first = operation{op: op, tensors: op.Tensors()}, op.Out
		if first == nil {
			first = op.Coords
		}
	case "unproject":
		must, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue, err := f.must()
		if err != nil {
			return nil, err
		}
		maybe, err := f.maybe("valid")
		if err != nil {
			return nil, err
		}
		op := &kernel.DepthOp{Scale: float32(a.Scale), Depth: must, Out: mustValue, Valid: maybe}
		if err := floats32(op.Camera[:], a.Camera, "camera"); err != nil {
			return nil, err
		}
		if a.Pose != nil {
			op.Pose = new([12]float32)
			if err := floats32(op.Pose[:], a.Pose, "pose"); err != nil {
				return nil, err
			}
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Out
	case "integrate":
		must, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue, err := f.must()
		if err != nil {
			return nil, err
		}
		mustValue2, err := f.must()
		if err != nil {
			return nil, err
		}
		op := &kernel.TSDFOp{
			Scale:     float32(a.Scale),
			Truncate:  float32(a.Truncate),
			MaxWeight: float32(a.MaxWeight),
			Depth:     must,
			Value:     mustValue,
			Weight:    mustValue2,
		}
		for _, v := range []struct {
			name string
			to   []float32
			from []number32
		}{{"camera", op.Camera[:], a.Camera}, {"view", op.View[:], a.Pose}, {"grid_min", op.Min[:], a.Min}, {"voxel_size", op.Size[:], a.Size}} {
			if err := floats32(v.to, v.from, v.name); err != nil {
				return nil, err
			}
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Value
	default:
		return nil, misuse("op", fmt.Sprintf("there is no operation %q", a.Op))
	}
	o.results = slices.Index(o.tensors, first)
	if len(f.args) != 0 {
		return nil, misuse("op", fmt.Sprintf("%d tensors too many", len(f.args)))
	}
	return &o, nil
}

func (s *seriesArg) series(f *feed, values bool) (kernel.Series, error) {
	f.has = s.Has
	out := kernel.Series{Name: s.Name}
	if values {
		var err error
		if out.Values, err = f.must(); err != nil {
			return kernel.Series{}, err
		}
	}
	must, err := f.must()
	if err != nil {
		return kernel.Series{}, err
	}
	maybe, err := f.maybe("lengths")
	if err != nil {
		return kernel.Series{}, err
	}
	maybeValue, err := f.maybe("offsets")
	if err != nil {
		return kernel.Series{}, err
	}
	out.Times, out.Lengths, out.Offsets = must, maybe, maybeValue
	out.Rule = kernel.Rule{
		Mode:       s.Mode,
		Edge:       s.Edge,
		MaxGap:     s.MaxGap,
		Before:     s.Before,
		After:      s.After,
		Period:     s.Period,
		Lo:         s.Lo,
		Quats:      s.Quats,
		Continuous: s.Continuous,
	}
	out.Epilogue.Unit, out.Epilogue.Plane = s.Unit, s.Plane
	if s.Clip != nil {
		if len(s.Clip) != 2 {
			return kernel.Series{}, misuse("op", "clip: expected the lowest and the highest value")
		}
		out.Epilogue.Clip = &[2]float32{float32(s.Clip[0]), float32(s.Clip[1])}
	}
	if n := s.Norm; n != nil {
		switch n.Kind {
		case "mean_std":
			out.Epilogue.Norm = kernel.NewMeanStd(cast[float64](n.A), cast[float64](n.B))
		case "min_max":
			out.Epilogue.Norm = kernel.NewMinMax(cast[float64](n.A), cast[float64](n.B))
		default:
			return kernel.Series{}, misuse(
				"op",
				fmt.Sprintf("there is no normalisation %q", n.Kind),
			)
		}
	}
	if a := s.Augment; a != nil {
		maybeValue2, err := f.maybe("samples")
		if err != nil {
			return kernel.Series{}, err
		}
		out.Epilogue.Augment = &kernel.Augment{
			Seed:    a.Seed,
			Epoch:   a.Epoch,
			Op:      a.Op,
			Noise:   float32(a.Noise),
			Dropout: float32(a.Dropout),
			ScaleLo: float32(a.Scale[0]),
			ScaleHi: float32(a.Scale[1]),
			Samples: maybeValue2,
		}
	}
	return out, nil
}

func (a *opArgs) voxels(f *feed) (*kernel.VoxelOp, error) {
	must, err := f.must()
	if err != nil {
		return nil, err
	}
	maybe, err := f.maybe("features")
	if err != nil {
		return nil, err
	}
	maybeValue, err := f.maybe("lengths")
	if err != nil {
		return nil, err
	}
	maybeValue2, err := f.maybe("offsets")
	if err != nil {
		return nil, err
	}
	maybeValue3, err := f.maybe("out")
	if err != nil {
		return nil, err
	}
	maybeValue4, err := f.maybe("coords")
	if err != nil {
		return nil, err
	}
	maybeValue5, err := f.maybe("rows")
	if err != nil {
		return nil, err
	}
	maybeValue6, err := f.maybe("counts")
	if err != nil {
		return nil, err
	}
	maybeValue7, err := f.maybe("found")
	if err != nil {
		return nil, err
	}
	maybeValue8, err := f.maybe("stats")
	if err != nil {
		return nil, err
	}
	op := &kernel.VoxelOp{
		Mode:     a.Mode,
		Outside:  a.Outside,
		Budget:   a.Budget,
		Validate: a.Validate,
		Bits:     a.Bits,
		Fast:     a.Fast,
		Zeroed:   a.Zeroed,
		Fill:     float32(a.Fill),
		Points:   must,
		Features: maybe,
		Lengths:  maybeValue,
		Offsets:  maybeValue2,
		Out:      maybeValue3,
		Coords:   maybeValue4,
		Rows:     maybeValue5,
		Counts:   maybeValue6,
		Found:    maybeValue7,
		Stats:    maybeValue8,
	}
	if err := floats32(op.Min[:], a.Min, "grid_min"); err != nil {
		return nil, err
	}
	if err := floats32(op.Size[:], a.Size, "voxel_size"); err != nil {
		return nil, err
	}
	if len(a.Grid) != 3 {
		return nil, misuse(
			"voxelize",
			"Invalid grid dimensions: expected 3, found "+fmt.Sprint(len(a.Grid)),
		)
	}
	copy(op.Grid[:], a.Grid)
	return op, nil
}

func floats32(to []float32, from []number32, what string) error {
	if len(from) != len(to) {
		return misuse(
			"op",
			fmt.Sprintf("%s: expected %d numbers, found %d", what, len(to), len(from)),
		)
	}
	for i, x := range from {
		to[i] = float32(x)
	}
	return nil
}
