package bag

import (
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestApartDrift checks the reported size of the drift between the header's clock and the
// recorder's. The smallest delays of the first and of the last fifth are closer together than the
// ends of the recording.
func TestApartDrift(t *testing.T) {
	drifting, stepping := &rows{n: 2001}, &rows{n: 2001}
	// 20 s; the header's clock gains 500 ppm, or steps by 50 ms, and each third message is delayed
	// by 2 ms
	for i := range int64(2001) {
		timestamp, late := i*10e6, 3e6+i%3*1e6
		drifting.header = append(drifting.header, timestamp+timestamp*500/1e6)
		drifting.log = append(drifting.log, timestamp+late)
		stepping.header = append(stepping.header, timestamp+i/1001*50e6)
		stepping.log = append(stepping.log, timestamp+late)
	}
	drifts := func(r *rows) (said []string) {
		for _, f := range compareClocks(&topic{hasHeader: true}, r, robocache.Where{}) {
			if f.Code == "clock-drift" {
				said = append(said, f.Message)
			}
		}
		return said
	}
	said := drifts(drifting)
	if len(said) != 1 || !strings.Contains(said[0], "by -500 parts in a million (-10") {
		t.Errorf("a clock that gains 500 ppm: %q", said)
	}
	if said := drifts(stepping); len(said) != 0 {
		t.Errorf("a clock that steps: %q", said)
	}
}
