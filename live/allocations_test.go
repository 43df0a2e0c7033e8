//go:build !race

package live_test

import (
	"testing"

	"github.com/goatnote-inc/robocache/live"
)

// TestObserveAllocates checks that a tick allocates nothing after the first ones.
func TestObserveAllocates(t *testing.T) {
	l := openLive(t, numbersContract(t,
		`{"align": {"hz": 50, "delay": {"b": 0.02}, "modes": {"b": "linear"}},
		"delta_timestamps": {"a": [-0.04, -0.02, 0]}}`, "a", "b"))
	var o *live.Observation
	at := int64(0)
	rows := pair(1, 2)
	tick := func() {
		for range 5 {
			at += 4 * ms
			x := live.Sample{Stamp: at, Arrival: at, Data: rows}
			for _, key := range []string{"a", "b"} {
				if err := l.Push(key, &x); err != nil {
					t.Fatal(err)
				}
			}
		}
		var err error
		if o, err = l.Observe(t.Context(), at, 0, o); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		tick()
	}
	if n := testing.AllocsPerRun(200, tick); n > 0 {
		t.Errorf("a tick allocates %v times", n)
	}
}
