package ops

import "fmt"

func newRow(device, name string, w Work, bars ...string) Row {
	return Row{Name: name, Title: w.title(), Device: device, Work: w, Bars: barsOf(bars...)}
}

func quick(r Row) Row { r.Quick = true; return r }

// opsRowsCPU is the second table of the issue; shapes of specs/peers.md section 3.
func rowsCPU() []Row {
	const memory, coldMemory = "≥ 90 % of memcpy", "≥ 90 % of memcpy, cold"
	row := func(name string, w Work, bars ...string) Row { return newRow("cpu", name, w, bars...) }
	slerp := resample(256, 100, 50, 4, "float32")
	slerp.Mode = "slerp"
	ragged := resample(256, 100, 50, 32, "float32")
	ragged.Ragged = true
	norm := fuse3(256, "float32")
	norm.Norm = true
	sparse := voxels(500_000, "mean", 4)
	sparse.Layout = "sparse"
	call := resample(4, 100, 50, 32, "float32")
	call.Kind = "call"
	kitti := Work{Kind: "voxelize", Mode: "mean", Layout: "sparse", Cloud: "kitti", F: 4, Grid: [3]int{400, 400, 20}, Min: [3]float32{0, -40, -3}, Size: [3]float32{0.2, 0.2, 0.2}}
	count := kitti
	count.Mode, count.Layout, count.F = "count", "dense", 0
	dense := kitti
	dense.Layout = "dense"
	return []Row{
		quick(row("resample-256x100-50x32-f32", resample(256, 100, 50, 32, "float32"), memory, coldMemory, "≥ 1× torch.compile", "≥ 80× np.interp")),
		row("resample-32x500-256x256-f32", resample(32, 500, 256, 256, "float32"), memory, coldMemory, "≥ 1× torch.compile", "≥ 80× np.interp"),
		row("resample-64x4096-1024x128-f32", resample(64, 4096, 1024, 128, "float32"), memory, coldMemory, "≥ 2.5× torch.compile", "≥ 80× np.interp"),
		quick(row("resample-256x100-50x32-bf16", resample(256, 100, 50, 32, "bfloat16"), memory, coldMemory, "≥ 1× torch.compile")),
		row("resample-256x500-250x7-f32", resample(256, 500, 250, 7, "float32"), memory, coldMemory, "≥ 1× torch.compile"),
		row("resample-256x500-250x13-f32", resample(256, 500, 250, 13, "float32"), memory, coldMemory, "≥ 1× torch.compile"),
		row("resample-256x100-50x32-f32-ragged", ragged, memory, coldMemory),
		row("fuse3-256-f32", fuse3(256, "float32"), memory, coldMemory, "≥ 1× torch.compile"),
		row("fuse3-256-f32-norm", norm, "≥ 1× torch.compile", "≤ 1.1× row fuse3-256-f32"),
		quick(row("slerp-256x100-50x4-f32", slerp, "≥ 40× numpy")),
		quick(row("voxel-count-500k", voxels(500_000, "count", 0), "≥ 4× torch")),
		row("voxel-occupancy-500k", voxels(500_000, "occupancy", 0), "≥ 4× torch"),
		row("voxel-mean4-500k", voxels(500_000, "mean", 4), "≥ 5× torch"),
		row("voxel-max4-500k", voxels(500_000, "max", 4)),
		row("voxel-sparse-mean4-500k", sparse, "≥ 8× numpy"),
		quick(row("voxel-kitti-sparse-mean4", kitti, "≥ 3× open3d")),
		row("voxel-kitti-count", count),
		row("voxel-kitti-mean4", dense),
		row("call", call),
	}
}

// opsRowsCUDA is the first table of the issue, and the second's rows of a GPU.
func rowsCUDA() []Row {
	row := func(name string, w Work, bars ...string) Row { return newRow("cuda", name, w, bars...) }
	const bf, f32 = "bfloat16", "float32"
	ragged := resample(256, 100, 50, 32, bf)
	ragged.Ragged = true
	out := []Row{
		quick(row("resample-256x100-50x32-bf16", resample(256, 100, 50, 32, bf), "≤ 2.6 µs")),
		quick(row("resample-32x500-256x256-bf16", resample(32, 500, 256, 256, bf), "≤ 4.0 µs")),
		row("resample-64x4096-1024x128-bf16", resample(64, 4096, 1024, 128, bf), "≤ 14.5 µs"),
		row("resample-64x4096-1024x128-f32", resample(64, 4096, 1024, 128, f32), "≤ 28 µs"),
		quick(row("resample-4096x500-250x7-f32", resample(4096, 500, 250, 7, f32), "≤ 32 µs")),
		row("resample-4096x500-250x13-f32", resample(4096, 500, 250, 13, f32)),
		row("resample-2048x500-256x256-bf16", resample(2048, 500, 256, 256, bf), "≤ 190 µs", "≥ 97 % of copy"),
		row("resample-2048x500-256x256-f32", resample(2048, 500, 256, 256, f32), "≤ 370 µs", "≥ 97 % of copy"),
		row("resample-256x100-50x32-bf16-ragged", ragged),
		quick(row("fuse3-4-bf16", fuse3(4, bf), "≤ 3 µs")),
		row("fuse3-256-bf16", fuse3(256, bf), "≤ 9 µs"),
		row("fuse3-4096-bf16", fuse3(4096, bf), "≤ 110 µs"),
	}
	for _, b := range []int{4, 256, 4096} {
		w := fuse3(b, bf)
		w.Norm, w.Out = true, "float16"
		r := row(fmt.Sprintf("fuse3-%d-bf16-norm-cast", b), w, fmt.Sprintf("≤ 1.1× row fuse3-%d-bf16", b))
		r.Quick = b == 4
		out = append(out, r)
	}
	sparse := voxels(500_000, "mean", 8)
	sparse.Layout, sparse.Cloud = "sparse", "cells"
	kind := func(k string, b int) Work {
		w := resample(b, 100, 50, 32, bf)
		w.Kind = k
		return w
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
		quick(row("voxel-sparse-mean8-500k", sparse, "≥ 5× torch")),
		quick(row("call", kind("call", 4), "≤ 10 µs")),
		row("pcie-1m", kind("flow", 1<<20), "≥ 90 % of pcie", "≥ 90 % of pcie-in"),
		row("gpus-2", kind("shards", 1<<16), "≥ 97 % of linear"),
		row("gpus-2-host", kind("shards-host", 1<<19)),
	)
}

// opsSweeps are the curves from launch-bound to memory-bound.
func sweepRows(device string) []Row {
	var out []Row
	sizes, dtype := []int{1, 4, 16, 64, 256, 1024, 4096}, "float32"
	if device == "cuda" {
		sizes, dtype = []int{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536}, "bfloat16"
	}
	add := func(curve string, b int, w Work) {
		r := newRow(device, fmt.Sprintf("sweep-%s-%d", curve, b), w)
		r.Curve = curve
		out = append(out, r)
	}
	for _, b := range sizes {
		add("d32-"+shortType(dtype), b, resample(b, 100, 50, 32, dtype))
	}
	for _, d := range []int{7, 13} {
		for _, b := range sizes {
			add(fmt.Sprintf("d%d-f32", d), b, resample(b, 100, 50, d, "float32"))
		}
	}
	for _, b := range sizes {
		w := resample(b, 100, 50, 32, dtype)
		w.Ragged = true
		add("ragged-d32-"+shortType(dtype), b, w)
	}
	for _, b := range sizes {
		if b <= 4096 {
			add("fuse3-"+shortType(dtype), b, fuse3(b, dtype))
		}
	}
	return out
}
