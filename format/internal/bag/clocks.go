package bag

import (
	"fmt"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

// The clocks of a message.
const (
	Header  = "header"  // the device's clock: header.stamp in the payload
	Publish = "publish" // the sender's clock
	Log     = "log"     // the recorder's clock
)

const (
	defaultTolerance = 100 * time.Millisecond
	// maxHeaderOffset is the maximum difference between a header timestamp and the recorder's time.
	// A larger difference means that the device counts from its boot, or was never set. Its streams
	// would then not overlap with others.
	maxHeaderOffset = int64(60 * time.Second)
)

// timestamps are the times of a topic's rows by each clock. A slice is nil if it was not read.
type timestamps struct{ header, publish, log []int64 }

// byClock returns the times by a clock.
func (s *timestamps) byClock(clock string) []int64 {
	switch clock {
	case Header:
		return s.header
	case Publish:
		return s.publish
	}
	return s.log
}

// headerFault returns the reason why header timestamps cannot be the clock of a stream, and the
// code of its finding. Both are "" if they can.
func headerFault(header, log []int64, tolerance int64) (code, why string) {
	zero, far := 0, 0         // numbers of headers that are 0, and far from the recorder's time
	latest := int64(-1 << 62) // less than any timestamp
	for i, h := range header {
		if h == 0 {
			zero++
			continue
		}
		if d := h - log[i]; d > maxHeaderOffset || d < -maxHeaderOffset {
			far++
		}
		if h < latest-tolerance {
			return "header-steps-back", fmt.Sprintf(
				"header timestamps step back by %v at message %d",
				time.Duration(latest-h),
				i,
			)
		}
		latest = max(latest, h)
	}
	switch {
	case len(header) == 0:
		return "", ""
	case zero == len(header):
		return "header-zero", "header timestamps are 0 throughout"
	case zero > 0:
		return "header-zero", fmt.Sprintf("%d of %d header timestamps are 0", zero, len(header))
	case far > 0:
		offset := abs(header[0] - log[0]) // of the first message
		return "header-implausible", fmt.Sprintf(
			"header timestamps lie up to %v from the recorder's time",
			time.Duration(offset).Round(time.Millisecond),
		)
	}
	return "", ""
}

// abs returns the absolute value of v.
func abs(v int64) int64 { return max(v, -v) }

// rowOrder returns the rows in the order of their timestamps, or nil if they are already in order.
// A step back by more than the tolerance is an error.
func rowOrder(at []int64, tolerance int64, clock string) ([]int32, error) {
	latest := int64(-1 << 62) // less than any timestamp
	for i, t := range at {
		if t < latest-tolerance {
			return nil, robocache.Malformed(
				"times",
				robocache.Where{"index": i, "clock": clock},
				"the clock steps back",
			).
				Expected(
					fmt.Sprintf(
						"%d or later, less a tolerance of %v",
						latest,
						time.Duration(tolerance),
					),
					fmt.Sprint(t),
				).
				WithHint(
					"open with %s, or %s to begin an episode there, or a larger %s",
					robocache.Option("options", "clock", "log"),
					robocache.Option("options", "episodes_by", "steps"),
					robocache.Option("options", "tolerance", 1),
				)
		}
		latest = max(latest, t)
	}
	return reader.InOrder(at), nil
}
