package ops

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Ours is the name of the RoboCache runner.
const Ours = "robocache"

// Row is one line of `robocache-bench ops`: a workload on a device, with the bars for our runner.
type Row struct {
	Name   string       `json:"name"` // the value of --rows
	Title  string       `json:"title"`
	Device string       `json:"device"` // cpu | cuda
	Work   Work         `json:"work"`
	Bars   []report.Bar `json:"bars,omitempty"`
	Curve  string       `json:"curve,omitempty"` // name of the sweep that the row belongs to
	Quick  bool         `json:"-"`               // the row is part of --quick
}

// Work describes what the runners of a row compute. runners/robocache_bench/ops.py uses the same
// description for the peers.
type Work struct {
	// fuse (resample is a fuse of one stream), voxelize, or call (a fuse called from Python)
	Kind string `json:"kind"`

	// fuse
	// fuse: linear, slerp …; voxelize: count, occupancy, mean, max …
	Mode    string `json:"mode,omitempty"`
	DType   string `json:"dtype,omitempty"`
	Out     string `json:"out,omitempty"`
	B       int    `json:"B,omitempty"`
	T       int    `json:"T,omitempty"`
	Streams []struct {
		S int `json:"S"` // number of samples
		D int `json:"D"` // numbers per sample
	} `json:"streams,omitempty"`
	Norm   bool `json:"norm,omitempty"`
	Ragged bool `json:"ragged,omitempty"`

	// voxelize
	Layout string `json:"layout,omitempty"` // dense | sparse
	// uniform; cells: 5 % of the cells contain all points; kitti: a real frame of the test data, or
	// a similar synthetic one
	Cloud string     `json:"cloud,omitempty"`
	N     int        `json:"N,omitempty"`
	F     int        `json:"F,omitempty"`
	Grid  [3]int     `json:"grid"`
	Min   [3]float32 `json:"min"`
	Size  [3]float32 `json:"size"`
}

//go:embed rows.yaml
var rowsYAML []byte

var rowTables = sync.OnceValue(func() map[string][]Row {
	out := map[string][]Row{}
	for device, rows := range report.Data[map[string][]struct {
		Row
		Bars  []string `json:"bars"`
		Quick bool
		Sizes []int
	}](rowsYAML) {
		for _, r := range rows {
			one := r.Row
			one.Device, one.Quick, one.Bars = device, r.Quick, report.Bars("us", r.Bars...)
			if r.Sizes == nil {
				out[device] = append(out[device], one)
			}
			for _, n := range r.Sizes {
				one.Name, one.Title, one.Work.B = fmt.Sprintf(r.Name, n), fmt.Sprintf(r.Title, n), n
				out[device] = append(out[device], one)
			}
		}
	}
	return out
})

// RowsNamed returns rows of a device. names contains row names, prefixes of names ("voxel"), or
// curve names. If it is nil, RowsNamed returns all rows outside sweeps, or only the quick ones.
func RowsNamed(device string, names []string, quick, sweep bool) ([]Row, error) {
	all := slices.Clone(rowTables()[device])
	named := func(r Row, n string) bool { return strings.HasPrefix(r.Name, n) || r.Curve == n }
	for _, n := range names {
		if !slices.ContainsFunc(all, func(r Row) bool { return named(r, n) }) {
			var known []string
			for _, r := range all {
				known = append(known, r.Name)
			}
			return nil, report.UnknownName("row", n, known)
		}
	}
	return slices.DeleteFunc(all, func(r Row) bool {
		if names != nil {
			return !slices.ContainsFunc(names, func(n string) bool { return named(r, n) })
		}
		return quick && !r.Quick || r.Curve != "" && !sweep
	}), nil
}
