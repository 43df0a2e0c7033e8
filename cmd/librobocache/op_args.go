//go:build cgo

package main

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
)

// opArgs is an operation without its memory: everything that a call from Python repeats from step to step.
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

func (f *feed) must() kernel.Tensor {
	if len(f.args) == 0 {
		guard.Fail(misuse("op", "a tensor is missing"))
	}
	a := f.args[0]
	f.args = f.args[1:]
	if len(a.Stride) != len(a.Shape) {
		guard.Fail(misuse("op", fmt.Sprintf("%d strides for %d extents", len(a.Stride), len(a.Shape))))
	}
	for _, d := range a.Shape {
		if d < 0 {
			guard.Fail(misuse("op", fmt.Sprintf("negative extent %d", d)))
		}
	}
	return kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride}
}

func (f *feed) maybe(name string) *kernel.Tensor {
	if !slices.Contains(f.has, name) {
		return nil
	}
	t := f.must()
	return &t
}

// operation is one instance of a prepared op: its tensors get their memory for one run.
type operation struct {
	op      kernel.Op
	tensors []*kernel.Tensor
	results int // the first tensor that is written, and so are those after it; 0: the caller knows them apart
}

// build makes an instance of the op. The arguments stay as they are: it is called again for each concurrent run.
func (a *opArgs) build() (_ *operation, err error) {
	defer guard.Into(&err)
	f := &feed{args: a.Tensors, has: a.Has}
	clock, ok := map[string]kernel.Clock{"": kernel.Nanoseconds, "ns": kernel.Nanoseconds, "given": kernel.AsGiven}[a.Clock]
	if !ok {
		guard.Fail(misuse("op", fmt.Sprintf("Invalid clock %q", a.Clock)))
	}
	var o operation
	var first *kernel.Tensor
	switch a.Op {
	case "fuse":
		op := &kernel.FuseOp{Clock: clock, Epsilon: a.Epsilon, Validate: a.Validate}
		for i := range a.Series {
			op.Series = append(op.Series, a.Series[i].series(f, true))
		}
		f.has = a.Has
		op.Targets, op.Out = f.must(), f.must()
		op.Valid, op.Counts = f.maybe("valid"), f.maybe("counts")
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Out
	case "fuse_grad":
		if len(a.Series) != 1 {
			guard.Fail(misuse("op", "a gradient is of one stream"))
		}
		op := &kernel.FuseGradOp{Clock: clock, Epsilon: a.Epsilon}
		op.Series = a.Series[0].series(f, false)
		op.Targets, op.Out, op.Grad = f.must(), f.must(), f.must()
		op.Series.Values = kernel.Tensor{DType: op.Grad.DType, Shape: op.Grad.Shape, Stride: op.Grad.Stride}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Grad
	case "voxelize":
		op := a.voxels(f)
		o, first = operation{op: op, tensors: op.Tensors()}, op.Out
		if first == nil {
			first = op.Coords
		}
	case "unproject":
		op := &kernel.DepthOp{Scale: float32(a.Scale), Depth: f.must(), Out: f.must(), Valid: f.maybe("valid")}
		floats32(op.Camera[:], a.Camera, "camera")
		if a.Pose != nil {
			op.Pose = new([12]float32)
			floats32(op.Pose[:], a.Pose, "pose")
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Out
	case "integrate":
		op := &kernel.TSDFOp{Scale: float32(a.Scale), Truncate: float32(a.Truncate), MaxWeight: float32(a.MaxWeight), Depth: f.must(), Value: f.must(), Weight: f.must()}
		for _, v := range []struct {
			name string
			to   []float32
			from []number32
		}{{"camera", op.Camera[:], a.Camera}, {"view", op.View[:], a.Pose}, {"grid_min", op.Min[:], a.Min}, {"voxel_size", op.Size[:], a.Size}} {
			floats32(v.to, v.from, v.name)
		}
		o, first = operation{op: op, tensors: op.Tensors()}, &op.Value
	default:
		guard.Fail(misuse("op", fmt.Sprintf("there is no operation %q", a.Op)))
	}
	o.results = slices.Index(o.tensors, first)
	if len(f.args) != 0 {
		return nil, misuse("op", fmt.Sprintf("%d tensors too many", len(f.args)))
	}
	return &o, nil
}

func (s *seriesArg) series(f *feed, values bool) kernel.Series {
	f.has = s.Has
	out := kernel.Series{Name: s.Name}
	if values {
		out.Values = f.must()
	}
	out.Times, out.Lengths, out.Offsets = f.must(), f.maybe("lengths"), f.maybe("offsets")
	out.Rule = kernel.Rule{Mode: s.Mode, Edge: s.Edge, MaxGap: s.MaxGap, Before: s.Before, After: s.After, Period: s.Period, Lo: s.Lo, Quats: s.Quats, Continuous: s.Continuous}
	out.Epilogue.Unit, out.Epilogue.Plane = s.Unit, s.Plane
	if s.Clip != nil {
		if len(s.Clip) != 2 {
			guard.Fail(misuse("op", "clip: expected the lowest and the highest value"))
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
			guard.Fail(misuse("op", fmt.Sprintf("there is no normalisation %q", n.Kind)))
		}
	}
	if a := s.Augment; a != nil {
		out.Epilogue.Augment = &kernel.Augment{Seed: a.Seed, Epoch: a.Epoch, Op: a.Op, Noise: float32(a.Noise), Dropout: float32(a.Dropout), ScaleLo: float32(a.Scale[0]), ScaleHi: float32(a.Scale[1]), Samples: f.maybe("samples")}
	}
	return out
}

func (a *opArgs) voxels(f *feed) *kernel.VoxelOp {
	op := &kernel.VoxelOp{Mode: a.Mode, Outside: a.Outside, Budget: a.Budget, Validate: a.Validate, Bits: a.Bits, Fast: a.Fast, Zeroed: a.Zeroed, Fill: float32(a.Fill), Points: f.must(),
		Features: f.maybe("features"), Lengths: f.maybe("lengths"), Offsets: f.maybe("offsets"), Out: f.maybe("out"),
		Coords: f.maybe("coords"), Rows: f.maybe("rows"), Counts: f.maybe("counts"), Found: f.maybe("found"), Stats: f.maybe("stats")}
	floats32(op.Min[:], a.Min, "grid_min")
	floats32(op.Size[:], a.Size, "voxel_size")
	if len(a.Grid) != 3 {
		guard.Fail(misuse("voxelize", "Invalid grid dimensions: expected 3, found "+fmt.Sprint(len(a.Grid))))
	}
	copy(op.Grid[:], a.Grid)
	return op
}

func floats32(to []float32, from []number32, what string) {
	if len(from) != len(to) {
		guard.Fail(misuse("op", fmt.Sprintf("%s: expected %d numbers, found %d", what, len(to), len(from))))
	}
	for i, x := range from {
		to[i] = float32(x)
	}
}
