package defects

import (
	"math"
	"testing"
)

// Every defect of a size has its quantity at the requested distance from the clean episodes, and the
// set is the same each time.
func TestPlantedSizes(t *testing.T) {
	episodes := makeEpisodes(30, 1, 5)
	again := makeEpisodes(30, 1, 5)
	var clean []*episode
	for i, e := range episodes {
		if e.defect == "" {
			clean = append(clean, e)
		}
		if again[i].seed != e.seed || again[i].defect != e.defect {
			t.Fatal("the order differs")
		}
	}
	for k := range allDefects {
		d := &allDefects[k]
		count := 0
		for _, e := range episodes {
			if e.defect != d.name {
				continue
			}
			count++
			if d.measure == nil {
				continue
			}
			values := make([]float64, len(clean))
			for i, c := range clean {
				values[i] = d.measure(c)
			}
			mean, spread := meanAndSpread(values)
			size := (d.measure(e) - mean) / spread
			if d.less {
				size = -size
			}
			want := spreads[e.size]
			if math.Abs(size-want) > 0.15*want+0.5 {
				t.Errorf("%s: %.2f spreads, want %v", d.name, size, want)
			}
		}
		if count != 3 {
			t.Errorf("%s: %d episodes", d.name, count)
		}
	}
}

// A frozen image repeats the one before, with its noise.
func TestFrozenImages(t *testing.T) {
	e := makeEpisode(3, 0)
	at := e.fastest()
	for k := range allDefects {
		if allDefects[k].name == "frozen_camera" {
			allDefects[k].apply(e, 3)
		}
	}
	a, b := make([]byte, side*side*3), make([]byte, side*side*3)
	e.render(0, at-1, a)
	for row := at; row < at+4; row++ {
		e.render(0, row, b)
		if same := string(a) == string(b); same != (row < at+3) {
			t.Errorf("row %d: same is %v", row-at, same)
		}
	}
}
