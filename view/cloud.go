package view

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

// serveCloud answers the points of a row as x, y, z and a value. If there are too many points, it
// thins them by voxels.
func (s *Server) serveCloud(q *request) error {
	f, ctx := q.feature, q.Context()
	if f.Kind != robocache.KindPointCloud || !f.Ragged() || f.Elements() < 2 {
		return robocache.Unsupported(
			"view",
			robocache.Where{"stream": f.Key},
			"a stream of kind %s has no points",
			string(f.Kind),
		)
	}
	row, err := q.rowNumber(ctx)
	if err != nil {
		return err
	}
	data, counts, err := robocache.GatherRagged(
		ctx,
		q.set.ds,
		f.Key,
		[]robocache.Row{{Episode: q.episode, Index: row}},
	)
	if err != nil {
		return err
	}
	entry := *f
	entry.Shape = f.Shape[1:]
	names := inspect.ChannelNames(&entry)
	place := func(name string, otherwise int) int {
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
		return otherwise
	}
	width := f.Elements()
	x, y, z := place("x", 0), place("y", 1), place("z", min(2, width-1))
	value := place("intensity", place("reflectance", z))
	values := robocache.Float64s(nil, f.DType, data)
	points := make([][4]float32, 0, counts[0])
	for i := range counts[0] {
		p := values[i*width:][:width]
		if d := p[x] + p[y] + p[z]; d-d == 0 {
			points = append(
				points,
				[4]float32{float32(p[x]), float32(p[y]), float32(p[z]), float32(p[value])},
			)
		}
	}
	shown, voxel := thinPoints(points, maxCloud)
	header := map[string]any{
		"row":    row,
		"points": len(shown),
		"of":     counts[0],
		"voxel":  voxel,
		"value":  names[value],
	}
	raw := make([]float64, 0, 2*len(shown)) // two float32 per float64
	for _, p := range shown {
		for i := 0; i < 4; i += 2 {
			raw = append(
				raw,
				math.Float64frombits(
					uint64(math.Float32bits(p[i]))|uint64(math.Float32bits(p[i+1]))<<32,
				),
			)
		}
	}
	return q.writeBinary(header, raw)
}

// thinPoints keeps the first point of each voxel. It uses the smallest voxels that leave at most so
// many points. voxel is their side length; 0 means that all points are kept.
func thinPoints(points [][4]float32, most int) (kept [][4]float32, voxel float64) {
	if len(points) <= most {
		return points, 0
	}
	low, high := points[0], points[0]
	for _, p := range points {
		for i := range 3 {
			low[i], high[i] = min(low[i], p[i]), max(high[i], p[i])
		}
	}
	span := float64(max(high[0]-low[0], high[1]-low[1], high[2]-low[2]))
	for voxel = max(span, 1e-9) / 1024; ; voxel *= 1.3 {
		seen := make(map[[3]int32]bool, most)
		kept = kept[:0:0]
		for _, p := range points {
			var at [3]int32
			for i := range 3 {
				at[i] = int32(float64(p[i]-low[i]) / voxel)
			}
			if !seen[at] {
				seen[at] = true
				if kept = append(kept, p); len(kept) > most {
					break
				}
			}
		}
		if len(kept) <= most {
			return kept, voxel
		}
	}
}
