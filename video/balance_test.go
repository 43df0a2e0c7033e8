package video

import (
	"testing"
	"time"
)

// A balance finds the faster mode, uses it nearly all of the time, and follows changes. Without a
// difference, the host does not help.
func TestBalance(t *testing.T) {
	now, frames := time.Unix(1000, 0), 0.0
	var b helpBalance
	run := func(alone, helped float64, d time.Duration) (share float64) {
		steps, help := 0, 0
		for end := now.Add(d); now.Before(end); now = now.Add(time.Millisecond) {
			if steps++; b.hostHelps() {
				frames, help = frames+helped/1000, help+1
			} else {
				frames += alone / 1000
			}
			b.advance(now, int64(frames))
		}
		return float64(help) / float64(steps)
	}
	if share := run(5000, 9000, 1500*time.Millisecond); share != 1 {
		t.Errorf("%.3f of the beginning", share)
	}
	for _, x := range []struct {
		alone, helped, least, most float64
	}{
		{5000, 9000, 0.9, 1},
		{22000, 18000, 0, 0.15},
		{8000, 8000, 0, 0.1},
		{10000, 10100, 0, 0.1},
		{10000, 10700, 0.9, 1},
		{0, 100, 0.85, 1},
	} {
		run(x.alone, x.helped, lastHold) // the earlier decision may last this long
		if share := run(x.alone, x.helped, 2*time.Minute); share < x.least || share > x.most {
			t.Errorf(
				"%.0f frames a second alone, %.0f with help: it helped %.3f of the time",
				x.alone,
				x.helped,
				share,
			)
		}
	}
}
