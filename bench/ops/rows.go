package ops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Ours is the name of our runner.
const Ours = "robocache"

// Row is one line of `bench ops`: a workload on a device, and what is asked of ours.
type Row struct {
	Name   string       `json:"name"` // as in --rows
	Title  string       `json:"title"`
	Device string       `json:"device"` // cpu, cuda
	Work   Work         `json:"work"`
	Bars   []report.Bar `json:"bars,omitempty"`
	Curve  string       `json:"curve,omitempty"` // the sweep that it is a point of
	Quick  bool         `json:"-"`               // --quick runs it
}

// Rows gives every row of a device, sweeps last.
func Rows(device string) []Row {
	rows := rowsCPU()
	if device == "cuda" {
		rows = rowsCUDA()
	}
	return append(rows, sweepRows(device)...)
}

// RowsNamed picks rows: names, beginnings of names ("voxel"), or curve names; nil picks what is no sweep, or the quick ones.
func RowsNamed(device string, names []string, quick, sweep bool) ([]Row, error) {
	all := Rows(device)
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

func newRow(device, name string, w Work, bars ...string) Row {
	return Row{Name: name, Title: w.title(), Device: device, Work: w, Bars: report.Bars("us", bars...)}
}

func quick(r Row) Row { r.Quick = true; return r }

// change is a work that differs in something.
func change(w Work, f func(w *Work)) Work { f(&w); return w }

func ragged(w *Work) { w.Ragged = true }
func sparse(w *Work) { w.Layout = "sparse" }

func rowsCPU() []Row {
	const memory, coldMemory = "≥ 90 % of memcpy", "≥ 90 % of memcpy, cold"
	const f32 = "float32"
	row := func(name string, w Work, bars ...string) Row { return newRow("cpu", name, w, bars...) }
	kitti := Work{Kind: "voxelize", Mode: "mean", Layout: "sparse", Cloud: "kitti", F: 4, Grid: [3]int{400, 400, 20}, Min: [3]float32{0, -40, -3}, Size: [3]float32{0.2, 0.2, 0.2}}
	return []Row{
		quick(row("resample-256x100-50x32-f32", resample(256, 100, 50, 32, f32), memory, coldMemory, "≥ 1× torch.compile", "≥ 80× np.interp")),
		row("resample-32x500-256x256-f32", resample(32, 500, 256, 256, f32), memory, coldMemory, "≥ 1× torch.compile", "≥ 80× np.interp"),
		row("resample-64x4096-1024x128-f32", resample(64, 4096, 1024, 128, f32), memory, coldMemory, "≥ 2.5× torch.compile", "≥ 80× np.interp"),
		quick(row("resample-256x100-50x32-bf16", resample(256, 100, 50, 32, "bfloat16"), memory, coldMemory, "≥ 1× torch.compile")),
		row("resample-256x500-250x7-f32", resample(256, 500, 250, 7, f32), memory, coldMemory, "≥ 1× torch.compile"),
		row("resample-256x500-250x13-f32", resample(256, 500, 250, 13, f32), memory, coldMemory, "≥ 1× torch.compile"),
		row("resample-256x100-50x32-f32-ragged", change(resample(256, 100, 50, 32, f32), ragged), memory, coldMemory),
		row("fuse3-256-f32", fuse3(256, f32), memory, coldMemory, "≥ 1× torch.compile"),
		row("fuse3-256-f32-norm", change(fuse3(256, f32), func(w *Work) { w.Norm = true }), "≥ 1× torch.compile", "≤ 1.1× row fuse3-256-f32"),
		quick(row("slerp-256x100-50x4-f32", change(resample(256, 100, 50, 4, f32), func(w *Work) { w.Mode = "slerp" }), "≥ 40× numpy")),
		quick(row("voxel-count-500k", voxels(500_000, "count", 0), "≥ 4× torch")),
		row("voxel-occupancy-500k", voxels(500_000, "occupancy", 0), "≥ 4× torch"),
		row("voxel-mean4-500k", voxels(500_000, "mean", 4), "≥ 5× torch"),
		row("voxel-max4-500k", voxels(500_000, "max", 4)),
		row("voxel-sparse-mean4-500k", change(voxels(500_000, "mean", 4), sparse), "≥ 8× numpy"),
		quick(row("voxel-kitti-sparse-mean4", kitti, "≥ 3× open3d")),
		row("voxel-kitti-count", change(kitti, func(w *Work) { w.Mode, w.Layout, w.F = "count", "dense", 0 })),
		row("voxel-kitti-mean4", change(kitti, func(w *Work) { w.Layout = "dense" })),
		row("call", change(resample(4, 100, 50, 32, f32), func(w *Work) { w.Kind = "call" })),
	}
}

func rowsCUDA() []Row {
	const bf, f32 = "bfloat16", "float32"
	row := func(name string, w Work, bars ...string) Row { return newRow("cuda", name, w, bars...) }
	kind := func(k string, b int) Work { return change(resample(b, 100, 50, 32, bf), func(w *Work) { w.Kind = k }) }
	out := []Row{
		quick(row("resample-256x100-50x32-bf16", resample(256, 100, 50, 32, bf), "≤ 2.6 µs")),
		quick(row("resample-32x500-256x256-bf16", resample(32, 500, 256, 256, bf), "≤ 4.0 µs")),
		row("resample-64x4096-1024x128-bf16", resample(64, 4096, 1024, 128, bf), "≤ 14.5 µs"),
		row("resample-64x4096-1024x128-f32", resample(64, 4096, 1024, 128, f32), "≤ 28 µs"),
		quick(row("resample-4096x500-250x7-f32", resample(4096, 500, 250, 7, f32), "≤ 32 µs")),
		row("resample-4096x500-250x13-f32", resample(4096, 500, 250, 13, f32)),
		row("resample-2048x500-256x256-bf16", resample(2048, 500, 256, 256, bf), "≤ 190 µs", "≥ 97 % of copy"),
		row("resample-2048x500-256x256-f32", resample(2048, 500, 256, 256, f32), "≤ 370 µs", "≥ 97 % of copy"),
		row("resample-256x100-50x32-bf16-ragged", change(resample(256, 100, 50, 32, bf), ragged)),
		quick(row("fuse3-4-bf16", fuse3(4, bf), "≤ 3 µs")),
		row("fuse3-256-bf16", fuse3(256, bf), "≤ 9 µs"),
		row("fuse3-4096-bf16", fuse3(4096, bf), "≤ 110 µs"),
	}
	for _, b := range []int{4, 256, 4096} {
		w := change(fuse3(b, bf), func(w *Work) { w.Norm, w.Out = true, "float16" })
		r := row(fmt.Sprintf("fuse3-%d-bf16-norm-cast", b), w, fmt.Sprintf("≤ 1.1× row fuse3-%d-bf16", b))
		r.Quick = b == 4
		out = append(out, r)
	}
	return append(out,
		quick(row("voxel-count-500k", voxels(500_000, "count", 0), "≤ 9.5 µs")),
		row("voxel-occupancy-500k", voxels(500_000, "occupancy", 0), "≤ 9.5 µs"),
		quick(row("voxel-mean8-500k", voxels(500_000, "mean", 8), "≤ 50 µs")),
		row("voxel-max8-500k", voxels(500_000, "max", 8), "≤ 45 µs"),
		row("voxel-count-5m", voxels(5_000_000, "count", 0), "≤ 60 µs"),
		row("voxel-occupancy-5m", voxels(5_000_000, "occupancy", 0), "≤ 60 µs"),
		row("voxel-mean8-5m", voxels(5_000_000, "mean", 8), "≤ 320 µs"),
		row("voxel-max8-5m", voxels(5_000_000, "max", 8), "≤ 300 µs"),
		quick(row("voxel-sparse-mean8-500k", change(voxels(500_000, "mean", 8), func(w *Work) { w.Layout, w.Cloud = "sparse", "cells" }), "≥ 5× torch")),
		quick(row("call", kind("call", 4), "≤ 10 µs")),
		row("pcie-1m", kind("flow", 1<<20), "≥ 90 % of pcie", "≥ 90 % of pcie-in"),
		row("gpus-2", kind("shards", 1<<16), "≥ 97 % of linear"),
		row("gpus-2-host", kind("shards-host", 1<<19)),
	)
}

// sweepRows are the curves from launch-bound to memory-bound.
func sweepRows(device string) []Row {
	sizes, dtype := []int{1, 4, 16, 64, 256, 1024, 4096}, "float32"
	if device == "cuda" {
		sizes, dtype = append(sizes, 16384, 65536), "bfloat16"
	}
	var out []Row
	for _, c := range []struct {
		name string
		most int
		work func(b int) Work
	}{
		{"d32-" + shortType(dtype), 65536, func(b int) Work { return resample(b, 100, 50, 32, dtype) }},
		{"d7-f32", 65536, func(b int) Work { return resample(b, 100, 50, 7, "float32") }},
		{"d13-f32", 65536, func(b int) Work { return resample(b, 100, 50, 13, "float32") }},
		{"ragged-d32-" + shortType(dtype), 65536, func(b int) Work { return change(resample(b, 100, 50, 32, dtype), ragged) }},
		{"fuse3-" + shortType(dtype), 4096, func(b int) Work { return fuse3(b, dtype) }},
	} {
		for _, b := range sizes {
			if b <= c.most {
				r := newRow(device, fmt.Sprintf("sweep-%s-%d", c.name, b), c.work(b))
				r.Curve = c.name
				out = append(out, r)
			}
		}
	}
	return out
}
