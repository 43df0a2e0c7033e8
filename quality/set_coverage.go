package quality

import "math"

// rarityMetric is the mean over the points of an episode's trajectory of 1 ÷ the number of episodes
// that visit the same cell of the state space. A cell is a cube of 4 random projections of the
// standardized state, with a side of half a deviation. Unit: share; 1 means that no other episode
// covers these states. Source: count-based novelty (Bellemare et al. 2016). Known failure: random
// projections merge distant states, so that rarity is a lower bound.
var rarityMetric = metric{
	Metric: Metric{
		Name: "rarity", Group: GroupSet, Unit: "share", Worse: 0,
		Summary: "How alone the episode is in the states that it visits.",
		Source:  "Bellemare et al. 2016",
	},
}

// disagreementMetric is the RMS difference of the standardized actions of an episode to the mean
// action of the other points in the same cell of the state space (rarityMetric), over cells of at
// least 3 episodes. Unit: deviations. Source: action variance of DemInf and of "quality and
// diversity" (Belkhale et al. 2023). Known failure: cells are coarse, so that a controller with a
// high gain disagrees with itself.
var disagreementMetric = metric{
	Metric: Metric{
		Name: "disagreement", Group: GroupSet, Unit: "deviations", Worse: 1,
		Summary: "How much the actions differ from those of other episodes in the same states.",
		Source:  "Belkhale et al. 2023",
	},
	rule: &rule{code: "contradicting-actions", spread: 6, floor: 0.3, hint: hintLook},
}

const (
	cellSlots    = 1 << 18 // bounds the memory of cells; distinct cells may share a slot
	cellAxes     = 4
	cellSide     = 0.5 // deviations
	cellActions  = 8   // dimensions of the action that are compared
	leastVisits  = 3   // episodes of a cell whose actions are compared
	noLastVisits = -1
)

// stateCells counts the episodes that visit each cell, and the sums of their actions.
type stateCells struct {
	points   *pointSet
	actions  int
	visits   []int32 // episodes
	last     []int32 // last row that visited
	count    []float32
	sums     []float32
	stateBuf []float64
}

// newStateCells counts all trajectories of a set.
func newStateCells(p *pointSet) *stateCells {
	c := &stateCells{
		points: p, actions: min(p.actions, cellActions), stateBuf: make([]float64, p.states),
		visits: make([]int32, cellSlots), last: make([]int32, cellSlots),
		count: make([]float32, cellSlots),
	}
	c.sums = make([]float32, cellSlots*c.actions)
	for i := range c.last {
		c.last[i] = noLastVisits
	}
	action := make([]float64, c.actions)
	c.eachPoint(func(row, i, slot int) {
		if c.last[slot] != int32(row) {
			c.visits[slot]++
			c.last[slot] = int32(row)
		}
		p.action(row, i, action)
		c.count[slot]++
		for d, v := range action {
			c.sums[slot*c.actions+d] += float32(v)
		}
	})
	return c
}

// eachPoint calls fn for each point of each trajectory with the slot of its cell.
func (c *stateCells) eachPoint(fn func(row, i, slot int)) {
	for row, has := range c.points.hasTrajectory {
		if has {
			for i := range c.points.points {
				fn(row, i, c.slotOf(row, i))
			}
		}
	}
}

// slotOf returns the slot of the cell of a point.
func (c *stateCells) slotOf(row, i int) int {
	c.points.state(row, i, c.stateBuf)
	hash := uint64(0)
	scale := 1 / (cellSide * math.Sqrt(float64(max(len(c.stateBuf), 1))))
	for axis := range cellAxes {
		x := 0.0
		for d, v := range c.stateBuf {
			x += v * randomSign(axis, d)
		}
		hash = mix64(hash ^ uint64(int64(math.Floor(x*scale))))
	}
	return int(hash % cellSlots)
}

// setCoverage fills the columns of rarity and disagreement.
func setCoverage(t *Table, p *pointSet) {
	if p.states == 0 {
		return
	}
	c := newStateCells(p)
	n := t.Len()
	alone, squares, compared := make([]float64, n), make([]float64, n), make([]float64, n)
	action := make([]float64, c.actions)
	c.eachPoint(func(row, i, slot int) {
		alone[row] += 1 / float64(c.visits[slot])
		if c.visits[slot] < leastVisits || c.actions == 0 {
			return
		}
		p.action(row, i, action)
		others := float64(c.count[slot] - 1)
		for d, v := range action {
			mean := (float64(c.sums[slot*c.actions+d]) - v) / others
			squares[row] += (v - mean) * (v - mean)
		}
		compared[row] += float64(c.actions)
	})
	for row, has := range p.hasTrajectory {
		if has {
			t.Columns["rarity"][row] = alone[row] / float64(p.points)
			t.Columns["disagreement"][row] = math.Sqrt(ratio(squares[row], compared[row]))
		}
	}
}
