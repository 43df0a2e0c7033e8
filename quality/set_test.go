package quality

import (
	"math"
	"math/rand/v2"
	"testing"
)

// setTable returns a table of random trajectories: waves with a phase for each episode.
func setTable(n int, seed uint64) *Table {
	const points, states, actions = 16, 4, 3
	t := newTable(n, points*(states+actions), 0)
	t.SketchPoints, t.SketchStates = points, states
	rng := rand.New(rand.NewPCG(seed, 1))
	for row := range n {
		t.Episodes[row], t.Lengths[row] = int64(row), 100
		t.Tasks[row] = []string{"a", "b"}[row%2]
		var phase [states]float64
		for d := range phase {
			phase[d] = 6 * rng.Float64()
		}
		s := t.Sketch(row)
		for p := range points {
			for d := range states + actions {
				s[p*(states+actions)+d] = float32(
					math.Sin(phase[d%states] + float64(p)/5 + float64(d/states)),
				)
			}
		}
	}
	return t
}

// copySketch makes row to a copy of row from with noise.
func copySketch(t *Table, from, to int, noise float64, rng *rand.Rand) {
	for i, v := range t.Sketch(from) {
		t.Sketch(to)[i] = v + float32(noise*rng.NormFloat64())
	}
}

// Copies are found among few and many episodes, exact ones and near ones, and name the original.
func TestDuplicates(t *testing.T) {
	for _, n := range []int{100, 3000} {
		table, rng := setTable(n, 3), rand.New(rand.NewPCG(9, 9))
		copySketch(table, 10, 50, 0, rng)
		copySketch(table, 20, 60, 0.003, rng)
		dims := table.SketchWidth / table.SketchPoints
		copySketch(table, 30, 70, 0, rng)
		p, ok := newPointSet(table)
		if !ok {
			t.Fatal("no trajectories")
		}
		for i := range table.Sketch(70) { // mirrored about the means
			if d := i % dims; d == 1 || d == 5 {
				table.Sketch(70)[i] = float32(2*p.center[d]) - table.Sketch(70)[i]
			}
		}
		addSetColumns(table)
		near, mirrored := table.Columns["duplicate"], table.Columns["mirrored"]
		of := table.Columns["duplicate_of"]
		if near[50] != exactOctaves || of[50] != 10 || near[60] < duplicateOctaves || of[60] != 20 {
			t.Errorf("%d: exact %v of %v, near %v of %v", n, near[50], of[50], near[60], of[60])
		}
		if mirrored[70] < duplicateOctaves || of[70] != 30 || near[70] >= duplicateOctaves {
			t.Errorf("%d: mirrored %v of %v, plain %v", n, mirrored[70], of[70], near[70])
		}
		wrong := 0
		for row := range n {
			if of[row] == of[row] && row != 50 && row != 60 && row != 70 {
				wrong++
			}
		}
		if wrong > n/100 {
			t.Errorf("%d of %d episodes are copies of another", wrong, n)
		}
	}
}

// An episode of another length, or with other images, is no copy.
func TestDuplicatesDiffer(t *testing.T) {
	table, rng := setTable(60, 4), rand.New(rand.NewPCG(9, 9))
	copySketch(table, 10, 50, 0, rng)
	table.Lengths[50] = 50
	addSetColumns(table)
	if v := table.Columns["duplicate"][50]; v >= duplicateOctaves {
		t.Errorf("half as long: %v", v)
	}
}

// The result does not depend on other order of equal work: two runs are equal bit by bit.
func TestSetColumnsRepeat(t *testing.T) {
	a, b := setTable(1500, 5), setTable(1500, 5)
	addSetColumns(a)
	addSetColumns(b)
	for _, m := range setMetrics {
		for row, v := range a.Columns[m.Name] {
			if w := b.Columns[m.Name][row]; math.Float64bits(v) != math.Float64bits(w) {
				t.Fatalf("%s of row %d: %v and %v", m.Name, row, v, w)
			}
		}
	}
}

// An episode of the other task, one with inverted actions, and one in states of its own stand out.
func TestSetOutliers(t *testing.T) {
	const n = 200
	table, rng := setTable(n, 6), rand.New(rand.NewPCG(1, 1))
	dims := table.SketchWidth / table.SketchPoints
	for row := range n {
		copySketch(table, row%2, row, 0.05, rng)
	}
	copySketch(table, 1, 40, 0.05, rng) // row 40 is of task a
	for p := range table.SketchPoints {
		for d := table.SketchStates; d < dims; d++ {
			table.Sketch(80)[p*dims+d] *= -1
		}
		table.Sketch(120)[p*dims] += 9
	}
	addSetColumns(table)
	for name, row := range map[string]int{"path_outlier": 120, "disagreement": 80, "rarity": 120} {
		column := table.Columns[name]
		for other, v := range column {
			if other != row && other != 120 && !(v < column[row]) {
				t.Errorf("%s: row %d has %v, row %d only %v", name, other, v, row, column[row])
				break
			}
		}
	}
	column := table.Columns["path_outlier"]
	if !(column[40] > 3*column[42]) {
		t.Errorf("path_outlier of the other task: %v, of its own: %v", column[40], column[42])
	}
	expectNear(t, "task_share", table.Columns["task_share"][0], 1, 1e-9)
}

// A table without sketches, without episodes, or with one episode has no copies.
func TestSetColumnsOfLittle(t *testing.T) {
	for _, n := range []int{0, 1, 2} {
		addSetColumns(newTable(n, 0, 0))
		table := setTable(n, 1)
		for i := range table.Sketches {
			if i%3 == 0 {
				table.Sketches[i] = float32(math.NaN())
			}
		}
		addSetColumns(table)
	}
	table := setTable(1, 1)
	addSetColumns(table)
	expectNear(t, "rarity of the only episode", table.Columns["rarity"][0], 1, 0)
	expectNear(t, "duplicate", table.Columns["duplicate"][0], 0, 0)
}
