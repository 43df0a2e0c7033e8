package ops

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Ours is the name of our runner.
const Ours = "robocache"

// Row is one line of `robocache-bench ops`: a workload on a device, and what is asked of ours.
type Row struct {
	Name   string       `json:"name"` // as in --rows
	Title  string       `json:"title"`
	Device string       `json:"device"` // cpu, cuda
	Work   Work         `json:"work"`
	Bars   []report.Bar `json:"bars,omitempty"`
	Curve  string       `json:"curve,omitempty"` // the sweep that it is a point of
	Quick  bool         `json:"-"`               // --quick runs it
}

// Work is what the runners of a row compute. runners/robocache_bench/ops.py describes the same to
// the peers.
type Work struct {
	Kind string `json:"kind"` // fuse (resample: one stream), voxelize; call: a fuse from Python

	// fuse
	// linear, slerp …; voxelize: count, occupancy, mean, max …
	Mode    string `json:"mode,omitempty"`
	DType   string `json:"dtype,omitempty"`
	Out     string `json:"out,omitempty"`
	B       int    `json:"B,omitempty"`
	T       int    `json:"T,omitempty"`
	Streams []struct {
		S int `json:"S"` // samples of
		D int `json:"D"` // numbers a batch entry
	} `json:"streams,omitempty"`
	Norm   bool `json:"norm,omitempty"`
	Ragged bool `json:"ragged,omitempty"`

	// voxelize
	Layout string `json:"layout,omitempty"` // dense, sparse
	// uniform; cells (5 % of the cells have all points); kitti (a real frame where the test data
	// is, else one like it)
	Cloud string     `json:"cloud,omitempty"`
	N     int        `json:"N,omitempty"`
	F     int        `json:"F,omitempty"`
	Grid  [3]int     `json:"grid"`
	Min   [3]float32 `json:"min"`
	Size  [3]float32 `json:"size"`
}

//go:embed rows.yaml
var rowsYAML []byte

var tables = sync.OnceValue(func() map[string][]Row {
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

// RowsNamed picks rows of a device: names, beginnings of names ("voxel"), or curve names; nil picks
// what is no sweep, or the quick ones.
func RowsNamed(device string, names []string, quick, sweep bool) ([]Row, error) {
	all := slices.Clone(tables()[device])
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
