package bag

import (
	"fmt"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

// The clocks of a message.
const (
	Header  = "header"  // the device's: header.stamp, inside the payload
	Publish = "publish" // the sender's
	Log     = "log"     // the recorder's
)

const (
	defaultTolerance = 100 * time.Millisecond
	// plausible is how far a header may lie from the recorder's time. Beyond it the device counts
	// from its boot, or was never set: then its streams do not meet the others'.
	plausible = int64(60 * time.Second)
)

// timestamps are the times of a topic's rows by each clock. What was not read is nil.
type timestamps struct{ header, publish, log []int64 }

// by gives the times by a clock.
func (s *timestamps) by(clock string) []int64 {
	switch clock {
	case Header:
		return s.header
	case Publish:
		return s.publish
	}
	return s.log
}

// verdict says why a header cannot be the clock of a stream; "" = it can.
func verdict(header, log []int64, tolerance int64) (code, why string) {
	zero, far := 0, 0
	high := int64(-1 << 62)
	for i, h := range header {
		if h == 0 {
			zero++
			continue
		}
		if d := h - log[i]; d > plausible || d < -plausible {
			far++
		}
		if h < high-tolerance {
			return "header-steps-back", fmt.Sprintf(
				"header timestamps step back by %v at message %d",
				time.Duration(high-h),
				i,
			)
		}
		high = max(high, h)
	}
	switch {
	case len(header) == 0:
		return "", ""
	case zero == len(header):
		return "header-zero", "header timestamps are 0 throughout"
	case zero > 0:
		return "header-zero", fmt.Sprintf("%d of %d header timestamps are 0", zero, len(header))
	case far > 0:
		i := slices.IndexFunc(header, func(h int64) bool { return h != 0 })
		return "header-implausible", fmt.Sprintf(
			"header timestamps lie up to %v from the recorder's time",
			time.Duration(abs(header[i]-log[i])).Round(time.Millisecond),
		)
	}
	return "", ""
}

func abs(v int64) int64 { return max(v, -v) }

// order gives the rows in the order of their timestamps; nil where they are in order. A step back
// beyond the tolerance is an error.
func order(at []int64, tolerance int64, clock string) ([]int32, error) {
	high := int64(-1 << 62)
	for i, t := range at {
		if t < high-tolerance {
			return nil, robocache.Malformed("times", robocache.Where{"index": i, "clock": clock}, "the clock steps back").
				Expected(fmt.Sprintf("%d or later, less a tolerance of %v", high, time.Duration(tolerance)), fmt.Sprint(t)).
				WithHint("open with %s, or %s to begin an episode there, or a larger %s", robocache.Option("options", "clock", "log"),
					robocache.Option("options", "episodes_by", "steps"),
					robocache.Option("options", "tolerance", 1))
		}
		high = max(high, t)
	}
	return reader.InOrder(at), nil
}
