package calvin

import (
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

const (
	// clocksRead is the number of episodes whose times are read to find faults.
	clocksRead = 4
	// maxRawTimes is the number of rows of an episode whose times are read: each is a file.
	maxRawTimes = 256
)

// examineClocks records the time arrays of the frames: CALVIN's layout takes none. It does
// nothing if the caller states the rate.
func (d *Dataset) examineClocks(ctx context.Context) error {
	if d.rateStated {
		return nil
	}
	for i := range d.members {
		m := &d.members[i]
		s := d.streams[key(m.name)]
		if !robocache.NamesClock(m.name) || s == nil {
			continue
		}
		elements := s.feature.Elements()
		switch {
		case s.feature.Kind == robocache.KindNumeric && elements == 1:
			if err := d.examineTimes(ctx, m.name, s); err != nil {
				return err
			}
		case !robocache.NamesClockWeakly(m.name):
			d.About.AddUnusedClock(robocache.UnusedClock{
				Stream: m.name, Reason: fmt.Sprintf("has %d values for each row", elements),
			})
		}
	}
	return nil
}

// examineTimes reads the times of the first episodes. A set in a remote store is not read,
// because each row is a file.
func (d *Dataset) examineTimes(ctx context.Context, name string, s *stream) error {
	faulty := false
	for e := 0; e < min(len(d.eps), clocksRead) && !robocache.IsRemote(d.Bytes); e++ {
		if d.lacks(d.eps[e], s) || d.Len(e) > maxRawTimes {
			continue
		}
		values, err := d.rawTimes(ctx, e, s)
		if err != nil {
			return err
		}
		reason := robocache.ClockFault(values)
		if len(values) < d.Len(e) {
			reason = robocache.ClockLengthFault(int64(len(values)), int64(d.Len(e)))
		}
		if reason != "" {
			faulty = true
			where := robocache.Where{"episode": e}
			d.About.AddUnusedClock(
				robocache.UnusedClock{Stream: name, Where: where, Reason: reason},
			)
		}
	}
	if !faulty {
		d.About.AddUnusedClock(robocache.UnusedClock{
			Stream: name,
			Sound:  true,
			Reason: fmt.Sprintf(
				"is not taken as the clock of the rows, which are at %s Hz",
				d.rate,
			),
			Advice: fmt.Sprintf("Check that the rows are at %s Hz", d.rate),
		})
	}
	return nil
}

// rawTimes reads the values of an array that the frames of an episode have. Frames that lack the
// array count for nothing.
func (d *Dataset) rawTimes(ctx context.Context, e int, s *stream) (values []float64, err error) {
	b := make([]byte, s.feature.RowBytes())
	for row := range d.Len(e) {
		err := d.Gather(ctx, s.feature.Key, []robocache.Row{{Episode: e, Index: row}}, b)
		limit := errors.Is(err, robocache.ErrResourceLimit) && !robocache.IsMachineLimit(err)
		if robocache.Bad(err) || limit {
			continue
		}
		if err != nil {
			return nil, err
		}
		values = robocache.Float64s(values, s.feature.DType, b)
	}
	return values, nil
}

// recordTextClock records a time array without numbers.
func (d *Dataset) recordTextClock(c *arrayCandidate) {
	if !robocache.NamesClock(c.name) || robocache.NamesClockWeakly(c.name) || d.rateStated {
		return
	}
	reason := "holds values of type " + c.typ.String() + " and no numbers"
	if c.typ.Kind == 'S' || c.typ.Kind == 'U' {
		reason = "holds text and no numbers"
	}
	d.About.AddUnusedClock(robocache.UnusedClock{
		Stream: c.name, Where: robocache.Where{"file": c.frame}, Reason: reason,
	})
}
