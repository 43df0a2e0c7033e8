package ops

import (
	"fmt"
	"strings"
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
