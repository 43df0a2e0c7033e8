package quality

import (
	"cmp"
	"math"
	"slices"
)

// duplicateMetric is log2 of the median distance of episodes to their nearest one, divided by the
// distance to the nearest earlier episode; from 0 to 20. The distance is the RMS difference of the
// standardized trajectories. Unit: octaves; 20 is an exact copy. Source: locality-sensitive hashing
// by random projections (Datar et al. 2004). Known failure: a scripted robot repeats itself without
// images that tell the episodes apart.
var duplicateMetric = metric{
	Metric: Metric{
		Name:    "duplicate",
		Group:   GroupSet,
		Unit:    "octaves",
		Worse:   1,
		Summary: "How much nearer than usual the episode is to an earlier one; 20: a copy.",
		Source:  "Datar et al. 2004",
	},
	rule: &rule{code: "duplicate-episode", spread: 0, floor: 3, hint: hintLook},
}

// duplicateOfMetric is the earlier episode that a duplicate repeats, plain or mirrored. Unit:
// episode index.
var duplicateOfMetric = metric{
	Metric: Metric{
		Name:    "duplicate_of",
		Group:   GroupSet,
		Unit:    "episode",
		Worse:   0,
		Summary: "The earlier episode that this one repeats, at least 8 times as near as usual.",
		Source:  "duplicate and mirrored",
	},
}

// mirroredMetric is duplicate for the absolute differences to the mean of the episode, so that axes
// may be mirrored. Unit: octaves. Source: as duplicate. It is 0 for plain duplicates. Known failure:
// motions that are symmetric.
var mirroredMetric = metric{
	Metric: Metric{
		Name: "mirrored", Group: GroupSet, Unit: "octaves", Worse: 1,
		Summary:  "How much nearer the mirrored episode is to an earlier one than is usual.",
		Source:   "Datar et al. 2004",
		Inferred: true,
	},
	rule: &rule{code: "mirrored-episode", spread: 0, floor: 3, hint: hintLook},
}

const (
	exactOctaves     = 20.0 // an exact copy
	duplicateOctaves = 3.0  // from here duplicate_of names the other episode
	allPairs         = 1024 // episodes up to which every pair is compared
	searchTables     = 8
	searchWindow     = 16 // neighbors in a table with which an episode is compared
	hashBits         = 20 // bits of 64 from which frames differ
)

// nearest is the nearest earlier episode of a row, and the distance to the nearest of all.
type nearest struct {
	earlier, any float64 // infinite if none was found
	of           int
}

// findNearest returns the nearest episodes of each row. Up to allPairs episodes, all pairs are
// compared; otherwise those that fall into the same cell of one of searchTables random projections.
func (p *pointSet) findNearest(folded bool) []nearest {
	n := p.table.Len()
	out := make([]nearest, n)
	for i := range out {
		out[i] = nearest{math.Inf(1), math.Inf(1), -1}
	}
	compare := func(i, j int, a, b []float32) {
		i, j = max(i, j), min(i, j)
		d := rmsDistance(a, b)
		if d >= out[i].earlier && d >= out[j].any || !p.isComparable(i, j, folded) {
			return
		}
		out[i].any, out[j].any = min(out[i].any, d), min(out[j].any, d)
		if d < out[i].earlier {
			out[i].earlier, out[i].of = d, j
		}
	}
	if n <= allPairs {
		all := make([][]float32, n)
		for i := range n {
			if !p.hasTrajectory[i] {
				continue
			}
			all[i] = make([]float32, p.width())
			p.standardize(i, folded, all[i])
			for j := range i {
				if p.hasTrajectory[j] {
					compare(i, j, all[i], all[j])
				}
			}
		}
		return out
	}
	a, b := make([]float32, p.width()), make([]float32, p.width())
	for table := range searchTables {
		order, cells := p.sortCells(table, folded)
		for at, i := range order {
			p.standardize(i, folded, a)
			for k := at + 1; k < min(at+searchWindow, len(order)); k++ {
				if cells[i].key != cells[order[k]].key {
					break
				}
				p.standardize(order[k], folded, b)
				compare(i, order[k], a, b)
			}
		}
	}
	return out
}

// isComparable reports whether two episodes may be copies: both have about the same length, and
// their frames do not differ.
func (p *pointSet) isComparable(i, j int, folded bool) bool {
	if a, b := p.lengths[i], p.lengths[j]; 10*min(a, b) < 9*max(a, b) {
		return false
	}
	plain, mirrored := hashDistance(p.table, i, j, false), hashDistance(p.table, i, j, true)
	return !(plain > hashBits) || folded && !(mirrored > hashBits)
}

// rmsDistance returns the root of the mean squared difference.
func rmsDistance(a, b []float32) float64 {
	sum := 0.0
	b = b[:len(a)]
	for i, x := range a {
		d := float64(x - b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(max(len(a), 1)))
}

// projectedCell is the cell of an episode in a search table, and its first coordinate.
type projectedCell struct {
	key   uint64
	first float64
}

// sortCells returns the rows with a trajectory in the order of the cells of a search table. A cell
// is a cube of three random projections. Its side shrinks with the number of episodes, so that a
// cell holds about as many at any size of the set.
func (p *pointSet) sortCells(table int, folded bool) (order []int, cells []projectedCell) {
	const axes = 3
	n := p.table.Len()
	cells = make([]projectedCell, n)
	coordinates := make([][axes]float64, n)
	signs := make([][axes]float64, p.width())
	for k := range signs {
		for axis := range axes {
			signs[k][axis] = randomSign(table*axes+axis, k)
		}
	}
	var sum, squares [axes]float64
	v := make([]float32, p.width())
	for i := range n {
		if !p.hasTrajectory[i] {
			continue
		}
		order = append(order, i)
		p.standardize(i, folded, v)
		for k, x := range v {
			for axis := range axes {
				coordinates[i][axis] += float64(x) * signs[k][axis]
			}
		}
		for axis, x := range coordinates[i] {
			sum[axis] += x
			squares[axis] += x * x
		}
	}
	count := float64(max(len(order), 1))
	side := max(0.05, 0.5*math.Cbrt(allPairs/count))
	for _, i := range order {
		key := uint64(table)
		for axis, x := range coordinates[i] {
			mean := sum[axis] / count
			deviation := math.Sqrt(max(squares[axis]/count-mean*mean, 1e-12))
			// Each table shifts its cells.
			at := (x-mean)/(deviation*side) + float64(table)/searchTables
			key = mix64(key ^ uint64(int64(math.Floor(at))))
		}
		cells[i] = projectedCell{key, coordinates[i][0]}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(cells[a].key, cells[b].key),
			cmp.Compare(cells[a].first, cells[b].first),
			cmp.Compare(a, b),
		)
	})
	return order, cells
}

// nearOctaves returns how much nearer each episode is to an earlier one than is usual.
func nearOctaves(found []nearest) []float64 {
	var known []float64
	for _, f := range found {
		if !math.IsInf(f.any, 0) {
			known = append(known, f.any)
		}
	}
	out := make([]float64, len(found))
	if len(known) == 0 {
		return out
	}
	usual := medianOf(known)
	for i, f := range found {
		if f.of >= 0 {
			out[i] = min(max(0, math.Log2(max(usual, 1e-6)/max(f.earlier, 1e-12))), exactOctaves)
		}
	}
	return out
}

// setDuplicates fills the columns about copies of episodes.
func setDuplicates(t *Table, p *pointSet) {
	plain, folded := p.findNearest(false), p.findNearest(true)
	near, mirrored := nearOctaves(plain), nearOctaves(folded)
	for i := range near {
		of := nan
		if near[i] >= duplicateOctaves {
			of, mirrored[i] = float64(t.Episodes[plain[i].of]), 0
		} else if mirrored[i] >= duplicateOctaves {
			of = float64(t.Episodes[folded[i].of])
		}
		t.Columns["duplicate"][i], t.Columns["mirrored"][i] = near[i], mirrored[i]
		t.Columns["duplicate_of"][i] = of
	}
}
