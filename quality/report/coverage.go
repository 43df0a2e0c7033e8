package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache/quality"
)

const coverageCells = 48 // of each axis

// writeCoverage draws where the states of all episodes lie, over the two channels of the state that
// vary most. Darker cells hold more episodes.
func writeCoverage(b *bytes.Buffer, t *quality.Table) {
	points, states := t.SketchPoints, t.SketchStates
	if points == 0 || states < 2 {
		return
	}
	perPoint := t.SketchWidth / points
	x, y := widestChannels(t, points, perPoint, states)
	low, high := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	each := func(fn func(row int, v [2]float64)) {
		for row := range t.Len() {
			s := t.Sketch(row)
			for p := range points {
				v := [2]float64{float64(s[p*perPoint+x]), float64(s[p*perPoint+y])}
				if v[0]-v[0] == 0 && v[1]-v[1] == 0 {
					fn(row, v)
				}
			}
		}
	}
	each(func(_ int, v [2]float64) {
		for k := range v {
			low[k], high[k] = min(low[k], v[k]), max(high[k], v[k])
		}
	})
	if !(low[0] < high[0] && low[1] < high[1]) {
		return
	}
	var count, last [coverageCells * coverageCells]int
	most, occupied := 1, 0
	each(func(row int, v [2]float64) {
		cell := 0
		for k := range v {
			at := int(coverageCells * (v[k] - low[k]) / (high[k] - low[k]))
			cell = cell*coverageCells + min(at, coverageCells-1)
		}
		if last[cell] == row+1 {
			return
		}
		last[cell] = row + 1
		if count[cell]++; count[cell] == 1 {
			occupied++
		}
		most = max(most, count[cell])
	})
	fmt.Fprintf(b, `<h2>Coverage of states</h2><p>Channels %d and %d of the state, scaled to the `+
		`range of the dataset. %d of %d cells are visited; the darkest by %d episodes.</p>`+
		`<div class="card" style="max-width:30rem"><svg viewBox="0 0 %d %d" role="img">`+
		`<title>coverage</title>`,
		x, y, occupied, coverageCells*coverageCells, most, coverageCells, coverageCells)
	writeCells(b, count[:], most)
	b.WriteString("</svg></div>")
}

// writeCells draws the cells in 5 steps of opacity, each as one path.
func writeCells(b *bytes.Buffer, count []int, most int) {
	const steps = 5
	var paths [steps]strings.Builder
	for cell, n := range count {
		if n == 0 {
			continue
		}
		step := min(steps-1, int(steps*math.Log1p(float64(n))/math.Log1p(float64(most))))
		fmt.Fprintf(&paths[step], "M%d %dh1v1h-1z", cell/coverageCells,
			coverageCells-1-cell%coverageCells)
	}
	for step := range paths {
		fmt.Fprintf(b, `<path class="b" opacity="%.1f" d="%s"/>`,
			float64(step+1)/steps, paths[step].String())
	}
}

// widestChannels returns the two channels of the state with the largest variance.
func widestChannels(t *quality.Table, points, perPoint, states int) (first, second int) {
	variance := make([]float64, states)
	for c := range variance {
		sum, squares, n := 0.0, 0.0, 0.0
		for row := range t.Len() {
			s := t.Sketch(row)
			for p := range points {
				if v := float64(s[p*perPoint+c]); v-v == 0 {
					sum, squares, n = sum+v, squares+v*v, n+1
				}
			}
		}
		variance[c] = (squares - sum*sum/max(n, 1)) / max(n, 1)
	}
	first, second = 0, 1
	if variance[1] > variance[0] {
		first, second = 1, 0
	}
	for c := 2; c < states; c++ {
		switch {
		case variance[c] > variance[first]:
			first, second = c, first
		case variance[c] > variance[second]:
			second = c
		}
	}
	return first, second
}
