package quality

import "math"

// pointSet holds the trajectories of the episodes, so that they can be compared: the states and
// actions of their sketches. Dimensions are standardized over the set.
type pointSet struct {
	table           *Table
	states, actions int // dimensions
	center, inverse []float64
	points          int
	lengths         []int64
	hasTrajectory   []bool
}

// newPointSet returns the trajectories of a table. ok is false if there are none.
func newPointSet(t *Table) (p *pointSet, ok bool) {
	if t.SketchPoints == 0 || t.SketchWidth == 0 {
		return nil, false
	}
	dims := t.SketchWidth / t.SketchPoints
	p = &pointSet{
		table: t, states: t.SketchStates, actions: dims - t.SketchStates, points: t.SketchPoints,
		lengths: t.Lengths, center: make([]float64, dims), inverse: make([]float64, dims),
		hasTrajectory: make([]bool, t.Len()),
	}
	squares, n := make([]float64, dims), 0.0
	for row := range t.Len() {
		v := t.Sketch(row)
		if p.hasTrajectory[row] = isFinite32(v); !p.hasTrajectory[row] {
			continue
		}
		n += float64(p.points)
		for i, x := range v {
			p.center[i%dims] += float64(x)
			squares[i%dims] += float64(x) * float64(x)
		}
	}
	if n == 0 {
		return nil, false
	}
	for d := range dims {
		p.center[d] /= n
		if s := math.Sqrt(max(0, squares[d]/n-p.center[d]*p.center[d])); s > 1e-6 {
			p.inverse[d] = 1 / s
		}
	}
	return p, true
}

func isFinite32(values []float32) bool {
	for _, v := range values {
		if v-v != 0 {
			return false
		}
	}
	return len(values) > 0
}

// standardize writes the trajectory of a row to dst, with mean 0 and deviation 1 over the set. A
// folded trajectory has the absolute differences to the mean of the episode, which an episode that
// is mirrored about any center shares.
func (p *pointSet) standardize(row int, folded bool, dst []float32) {
	dims := len(p.center)
	raw := p.table.Sketch(row)
	for d := range dims {
		center := p.center[d]
		if folded {
			center = 0
			for i := d; i < len(raw); i += dims {
				center += float64(raw[i]) / float64(p.points)
			}
		}
		for i := d; i < len(raw); i += dims {
			v := (float64(raw[i]) - center) * p.inverse[d]
			if folded {
				v = math.Abs(v)
			}
			dst[i] = float32(v)
		}
	}
}

// width returns the numbers of a trajectory.
func (p *pointSet) width() int { return p.table.SketchWidth }

// state writes the standardized state of point i of a row to dst.
func (p *pointSet) state(row, i int, dst []float64) { p.point(row, i, 0, dst) }

// action writes the standardized action of point i of a row to dst.
func (p *pointSet) action(row, i int, dst []float64) { p.point(row, i, p.states, dst) }

// point writes the standardized dimensions from from of point i of a row to dst.
func (p *pointSet) point(row, i, from int, dst []float64) {
	raw := p.table.Sketch(row)[i*len(p.center):]
	for d := range dst {
		dst[d] = (float64(raw[from+d]) - p.center[from+d]) * p.inverse[from+d]
	}
}

// mix64 returns a hash of a number (splitmix64, Steele et al. 2014).
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// randomSign returns 1 or −1, a pure function of its arguments.
func randomSign(direction, k int) float64 {
	return float64(int(mix64(uint64(direction)<<32|uint64(k))&1)*2 - 1)
}
