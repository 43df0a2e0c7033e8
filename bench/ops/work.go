package ops

import (
	"fmt"
	"sort"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Work is what the runners of a row of `bench ops` compute. runners/ops.py describes the same to the peers.
type Work struct {
	Kind string `json:"kind"` // fuse (resample: one stream), voxelize; call: a fuse from Python; flow: over PCIe; shards, shards-host: on two devices

	// fuse
	Mode    string   `json:"mode,omitempty"` // linear, slerp …; voxelize: count, occupancy, mean, max …
	DType   string   `json:"dtype,omitempty"`
	Out     string   `json:"out,omitempty"`
	B       int      `json:"B,omitempty"`
	T       int      `json:"T,omitempty"`
	Streams []Stream `json:"streams,omitempty"`
	Norm    bool     `json:"norm,omitempty"`
	Ragged  bool     `json:"ragged,omitempty"`

	// voxelize
	Layout string     `json:"layout,omitempty"` // dense, sparse
	Cloud  string     `json:"cloud,omitempty"`  // uniform; cells (5 % of the cells have all points); kitti (a real frame where the test data is, else one like it)
	N      int        `json:"N,omitempty"`
	F      int        `json:"F,omitempty"`
	Grid   [3]int     `json:"grid"`
	Min    [3]float32 `json:"min"`
	Size   [3]float32 `json:"size"`
}

// isOp says whether the row is an operation by itself: with a copy beside it, hot and cold.
func (w *Work) isOp() bool { return w.Kind == "fuse" || w.Kind == "voxelize" }

// Stream is one stream of a fuse: S samples of D numbers a batch entry.
type Stream struct {
	S int `json:"S"`
	D int `json:"D"`
}

// resample is a fuse of one stream.
func resample(b, s, t, d int, dtype string) Work {
	return Work{Kind: "fuse", Mode: "linear", DType: dtype, Out: dtype, B: b, T: t, Streams: []Stream{{s, d}}}
}

// fuse3 is the robot's three streams: frames' features at 30, joints at 100, force at 200 samples.
func fuse3(b int, dtype string) Work {
	return Work{Kind: "fuse", Mode: "linear", DType: dtype, Out: dtype, B: b, T: 50, Streams: []Stream{{30, 512}, {100, 64}, {200, 12}}}
}

// voxels is a grid of 128³ over the unit cube.
func voxels(n int, mode string, f int) Work {
	return Work{Kind: "voxelize", Mode: mode, Layout: "dense", Cloud: "uniform", N: n, F: f, Grid: [3]int{128, 128, 128}, Size: [3]float32{1.0 / 128, 1.0 / 128, 1.0 / 128}}
}

// title says it as the tables do.
func (w *Work) title() string {
	also := func(s *string, when bool, format string, a ...any) {
		if when {
			*s += fmt.Sprintf(format, a...)
		}
	}
	if w.Kind == "voxelize" {
		points := strings.NewReplacer("000000 ", "M ", "000 ", "k ").Replace(fmt.Sprintf("%d points", w.N))
		if w.Cloud == "kitti" {
			points = "a KITTI frame"
		}
		s := fmt.Sprintf("voxelize %d×%d×%d, %s: %s", w.Grid[0], w.Grid[1], w.Grid[2], points, w.Mode)
		also(&s, w.F > 0, " of %d", w.F)
		also(&s, w.Layout == "sparse", ", sparse")
		also(&s, w.Cloud == "cells", ", 5 %% occupied")
		return s
	}
	shape := fmt.Sprintf("%d×%d→%d×%d %s", w.B, w.Streams[0].S, w.T, w.Streams[0].D, shortType(w.DType))
	if form, ok := map[string]string{"call": "one call from Python, %s, no graph: host time", "flow": "trajectories %s from page-locked memory and back",
		"shards": "two GPUs, each %s, resident", "shards-host": "two GPUs, each %s, fed from the host"}[w.Kind]; ok {
		return fmt.Sprintf(form, shape)
	}
	s := "resample " + shape
	if len(w.Streams) > 1 {
		s = fmt.Sprintf("fuse %d streams (%s → %d), B = %d, %s", len(w.Streams), w.shapes(), w.T, w.B, shortType(w.DType))
	}
	also(&s, w.Mode != "linear", " %s", w.Mode)
	also(&s, w.Ragged, ", ragged")
	also(&s, w.Norm, ", normalise")
	also(&s, w.Out != w.DType, ", cast to %s", shortType(w.Out))
	return s
}

// shapes are the streams' samples and columns.
func (w *Work) shapes() string {
	var out []string
	for _, s := range w.Streams {
		out = append(out, fmt.Sprintf("%d×%d", s.S, s.D))
	}
	return strings.Join(out, ", ")
}

func shortType(t string) string {
	return strings.NewReplacer("bfloat", "bf", "float", "f").Replace(t)
}

// width is the sum of the streams' columns.
func (w *Work) width() (n int) {
	for _, s := range w.Streams {
		n += s.D
	}
	return n
}

func (w *Work) cells() int { return w.Grid[0] * w.Grid[1] * w.Grid[2] }

// dtype is a type by name.
func dtype(name string) robocache.DType {
	t, ok := robocache.ParseDType(name)
	if !ok {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "bench ops", Msg: "unsupported dtype", Got: name})
	}
	return t
}

func elementSize(name string) int { return dtype(name).Size() }

// cellType is what a dense grid holds, and how many of it a cell.
func (w *Work) cellType() (robocache.DType, int) {
	switch {
	case w.F > 0:
		return robocache.Float32, w.F
	case w.Mode == "occupancy":
		return robocache.Uint8, 1
	}
	return robocache.Int32, 1
}

// bytes is the floor of the work: each byte that it cannot do without, once. Of the sources only the rows that some target reads; of the timestamps
// all, int64; the whole result.
func (w *Work) bytes(in *inputs) int64 {
	if w.Kind == "voxelize" {
		n := int64(w.N) * int64(12+4*w.F)
		if w.Layout == "sparse" { // coordinates, count and features of each cell that is occupied
			return n + int64(in.occupied(w))*int64(16+4+4*w.F)
		}
		t, each := w.cellType()
		return n + int64(w.cells())*int64(t.Size()*each)
	}
	size, out := int64(elementSize(w.DType)), int64(elementSize(w.Out))
	total := int64(w.B) * int64(w.T) * (8 + int64(w.width())*out)
	if w.Norm {
		total += int64(w.width()) * 8
	}
	for i, s := range w.Streams {
		total += in.rowsRead(w, i)*int64(s.D)*size + 8*int64(len(in.times[i]))
		if w.Ragged {
			total += 8 * int64(w.B+1)
		}
	}
	return total
}

// rowsRead counts the samples of stream i that at least one target reads: both neighbours inside, one on a hit or at an edge.
func (in *inputs) rowsRead(w *Work, i int) int64 {
	var total int64
	for b := range w.B {
		lo, hi := b*w.Streams[i].S, (b+1)*w.Streams[i].S
		if w.Ragged {
			lo, hi = int(in.offsets[i][b]), int(in.offsets[i][b+1])
		}
		s, seen := in.times[i][lo:hi], map[int]bool{}
		if len(s) == 0 {
			continue
		}
		for _, x := range in.targets[b*w.T : (b+1)*w.T] {
			k := sort.Search(len(s), func(j int) bool { return s[j] > x }) - 1
			seen[max(k, 0)] = true
			if k >= 0 && k < len(s)-1 && s[k] != x && (w.Mode == "linear" || w.Mode == "slerp" || w.Mode == "angle") {
				seen[k+1] = true // a mode that takes one of the two is charged with one
			}
		}
		total += int64(len(seen))
	}
	return total
}

// cell is the flat index of a point's voxel, -1 outside: the contract's own arithmetic, float32 division and floor.
func (w *Work) cell(p []float32) int {
	flat := 0
	for a := range 3 {
		f := (p[a] - w.Min[a]) / w.Size[a]
		if !(f >= 0 && f < float32(w.Grid[a])) {
			return -1
		}
		flat = flat*w.Grid[a] + int(f)
	}
	return flat
}

// occupied counts the cells that some point lies in.
func (in *inputs) occupied(w *Work) (n int) {
	seen := make([]bool, w.cells())
	for i := range w.N {
		if c := w.cell(in.points[3*i : 3*i+3]); c >= 0 && !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}
