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
	f := q.feature
	ctx := q.Context()
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
	names := pointChannels(f)
	width := f.Elements()
	channels := axesOf(names, width)
	points := finitePoints(robocache.Float64s(nil, f.DType, data), counts[0], width, channels)
	shown, voxel := thinPoints(points, maxCloud)
	header := map[string]any{
		"row":    row,
		"points": len(shown),
		"of":     counts[0],
		"voxel":  voxel,
		"value":  names[channels[3]],
	}
	raw := make([]float64, 0, 2*len(shown))
	for _, p := range shown {
		raw = append(raw, packFloats(p[0], p[1]), packFloats(p[2], p[3]))
	}
	return q.writeBinary(header, raw)
}

// pointChannels returns the names of the channels of a point.
func pointChannels(f *robocache.Feature) []string {
	point := *f
	point.Shape = f.Shape[1:]
	return inspect.ChannelNames(&point)
}

// axesOf returns the channels of x, y, z and the value of a point. Without names, they are the first
// of its width channels.
func axesOf(names []string, width int) [4]int {
	find := func(name string, otherwise int) int {
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
		return otherwise
	}
	z := find("z", min(2, width-1))
	return [4]int{
		find("x", 0),
		find("y", 1),
		z,
		find("intensity", find("reflectance", z)),
	}
}

// finitePoints returns the given channels of count points. Points without a finite place are left
// out.
func finitePoints(values []float64, count, width int, channels [4]int) [][4]float32 {
	points := make([][4]float32, 0, count)
	for i := range count {
		p := values[i*width:][:width]
		sum := p[channels[0]] + p[channels[1]] + p[channels[2]]
		if sum-sum != 0 { // NaN or infinite
			continue
		}
		var point [4]float32
		for k, c := range channels {
			point[k] = float32(p[c])
		}
		points = append(points, point)
	}
	return points
}

// packFloats returns a float64 with the bytes of two float32.
func packFloats(a, b float32) float64 {
	low := uint64(math.Float32bits(a))
	high := uint64(math.Float32bits(b))
	return math.Float64frombits(low | high<<32)
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
			low[i] = min(low[i], p[i])
			high[i] = max(high[i], p[i])
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
