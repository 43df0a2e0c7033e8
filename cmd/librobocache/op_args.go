//go:build cgo

package main

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// opArgs describes an operation without its memory. Python sends it once and runs the operation
// many times.
type opArgs struct {
	Op      string      `json:"op"` // fuse | fuse_grad | voxelize | unproject | integrate
	Backend string      `json:"backend"`
	Device  int         `json:"device"`
	Tensors []tensorArg `json:"tensors"` // in the order of the op's Tensors(), without scratch
	Has     []string    `json:"has"`     // names of the optional tensors that are present

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

// tensorQueue returns the tensors of a call one by one, in order.
type tensorQueue struct {
	args []tensorArg
	has  []string
}

func (f *tensorQueue) next() (kernel.Tensor, error) {
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

func (f *tensorQueue) nextOptional(name string) (*kernel.Tensor, error) {
	if !slices.Contains(f.has, name) {
		return nil, nil
	}
	t, err := f.next()
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// operation is one instance of a prepared operation. Its tensors get their memory for each run.
type operation struct {
	op      kernel.Op
	tensors []*kernel.Tensor
	// firstOutput is the index of the first output tensor; all later tensors are outputs too. 0
	// means that the caller ensures that they do not overlap.
	firstOutput int
}

// buildOperation creates an instance of the operation. It does not change the arguments, because it
// is called again for each concurrent run.
func (a *opArgs) buildOperation() (_ *operation, err error) {
	f := &tensorQueue{args: a.Tensors, has: a.Has}
	clock, ok := map[string]kernel.Clock{
		"":      kernel.Nanoseconds,
		"ns":    kernel.Nanoseconds,
		"given": kernel.AsGiven,
	}[a.Clock]
	if !ok {
		return nil, misuse("op", fmt.Sprintf("Invalid clock %q", a.Clock))
	}
	var o operation
	var first *kernel.Tensor
	switch a.Op {
	case "fuse":
		op := &kernel.FuseOp{Clock: clock, Epsilon: a.Epsilon, Validate: a.Validate}
		for i := range a.Series {
			series, err := a.Series[i].readSeries(f, true)
			if err != nil {
				return nil, err
			}
			op.Series = append(op.Series, series)
		}
		f.has = a.Has
		if op.Targets, err = f.next(); err != nil {
			return nil, err
		}
		if op.Out, err = f.next(); err != nil {
			return nil, err
		}
		if op.Valid, err = f.nextOptional("valid"); err != nil {
			return nil, err
		}
		if op.Counts, err = f.nextOptional("counts"); err != nil {
			return nil, err
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Out
	case "fuse_grad":
		if len(a.Series) != 1 {
			return nil, misuse("op", "a gradient is of one stream")
		}
		op := &kernel.FuseGradOp{Clock: clock, Epsilon: a.Epsilon}
		if op.Series, err = a.Series[0].readSeries(f, false); err != nil {
			return nil, err
		}
		for _, to := range []*kernel.Tensor{&op.Targets, &op.Out, &op.Grad} {
			if *to, err = f.next(); err != nil {
				return nil, err
			}
		}
		op.Series.Values = kernel.Tensor{
			DType:  op.Grad.DType,
			Shape:  op.Grad.Shape,
			Stride: op.Grad.Stride,
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Grad
	case "voxelize":
		op, err := a.voxelOp(f)
		if err != nil {
			return nil, err
		}
		o, first = operation{op: op, tensors: op.Tensors()}, op.Out
		if first == nil {
			first = op.Coords
		}
	case "unproject":
		op := &kernel.DepthOp{Scale: float32(a.Scale)}
		if op.Depth, err = f.next(); err != nil {
			return nil, err
		}
		if op.Out, err = f.next(); err != nil {
			return nil, err
		}
		if op.Valid, err = f.nextOptional("valid"); err != nil {
			return nil, err
		}
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
		op := &kernel.TSDFOp{
			Scale:     float32(a.Scale),
			Truncate:  float32(a.Truncate),
			MaxWeight: float32(a.MaxWeight),
		}
		for _, to := range []*kernel.Tensor{&op.Depth, &op.Value, &op.Weight} {
			if *to, err = f.next(); err != nil {
				return nil, err
			}
		}
		for _, v := range []struct {
			name string
			to   []float32
			from []number32
		}{
			{"camera", op.Camera[:], a.Camera},
			{"view", op.View[:], a.Pose},
			{"grid_min", op.Min[:], a.Min},
			{"voxel_size", op.Size[:], a.Size},
		} {
			if err := floats32(v.to, v.from, v.name); err != nil {
				return nil, err
			}
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Value
	default:
		return nil, misuse("op", fmt.Sprintf("there is no operation %q", a.Op))
	}
	o.firstOutput = slices.Index(o.tensors, first)
	if len(f.args) != 0 {
		return nil, misuse("op", fmt.Sprintf("%d tensors too many", len(f.args)))
	}
	return &o, nil
}

func (s *seriesArg) readSeries(f *tensorQueue, values bool) (kernel.Series, error) {
	f.has = s.Has
	out := kernel.Series{Name: s.Name}
	if values {
		var err error
		if out.Values, err = f.next(); err != nil {
			return kernel.Series{}, err
		}
	}
	var err error
	if out.Times, err = f.next(); err != nil {
		return kernel.Series{}, err
	}
	if out.Lengths, err = f.nextOptional("lengths"); err != nil {
		return kernel.Series{}, err
	}
	if out.Offsets, err = f.nextOptional("offsets"); err != nil {
		return kernel.Series{}, err
	}
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
			out.Epilogue.Norm = kernel.NewMeanStd(
				castFloats[float64](n.A),
				castFloats[float64](n.B),
			)
		case "min_max":
			out.Epilogue.Norm = kernel.NewMinMax(castFloats[float64](n.A), castFloats[float64](n.B))
		default:
			return kernel.Series{}, misuse(
				"op",
				fmt.Sprintf("there is no normalisation %q", n.Kind),
			)
		}
	}
	if a := s.Augment; a != nil {
		samples, err := f.nextOptional("samples")
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
			Samples: samples,
		}
	}
	return out, nil
}

func (a *opArgs) voxelOp(f *tensorQueue) (*kernel.VoxelOp, error) {
	op := &kernel.VoxelOp{
		Mode:     a.Mode,
		Outside:  a.Outside,
		Budget:   a.Budget,
		Validate: a.Validate,
		Bits:     a.Bits,
		Fast:     a.Fast,
		Zeroed:   a.Zeroed,
		Fill:     float32(a.Fill),
	}
	var err error
	if op.Points, err = f.next(); err != nil {
		return nil, err
	}
	for _, optional := range []struct {
		name string
		to   **kernel.Tensor
	}{
		{"features", &op.Features},
		{"lengths", &op.Lengths},
		{"offsets", &op.Offsets},
		{"out", &op.Out},
		{"coords", &op.Coords},
		{"rows", &op.Rows},
		{"counts", &op.Counts},
		{"found", &op.Found},
		{"stats", &op.Stats},
	} {
		if *optional.to, err = f.nextOptional(optional.name); err != nil {
			return nil, err
		}
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
