package inspect

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// The JSON has the keys of stats.json (inspect.I1). Numbers that are not finite do not hide the
// others (inspect.I3).
func TestStatsJSON(t *testing.T) {
	s := Stats{
		"camera": {
			Mean:      []float64{0.25, 0.5, 1},
			Count:     7,
			Shape:     []int{3, 1, 1},
			Quantiles: map[string][]float64{"q01": {0, 0, 0.5}},
		},
		"state": {
			Min:   []float64{math.Inf(-1), 2},
			Max:   []float64{math.NaN(), 3},
			Count: 9,
			Shape: []int{2},
		},
		"none": nil,
	}
	got, err := json.Marshal(Report{Info: robocache.Info{Format: "f"}, Stats: s})
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Stats json.RawMessage }
	if err := json.Unmarshal(got, &r); err != nil {
		t.Fatal(err)
	}
	want := `{"camera":{"mean":[[[0.25]],[[0.5]],[[1.0]]],"count":[7],"q01":[[[0.0]],[[0.0]],[[0.5]]]},"state":{"min":[null,2.0],"max":[null,3.0],"count":[9]}}`
	if string(r.Stats) != want {
		t.Errorf("got  %s\nwant %s", r.Stats, want)
	}
}
