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
	// maxRawTimes is the maximum number of rows of an episode whose times are read, because each
	// row is a file.
	maxRawTimes = 256
)

// examineClocks records the time arrays of the frames, because CALVIN's layout uses none. It does
// nothing if the caller sets the rate.
func (d *Dataset) examineClocks(ctx context.Context) error {
	if d.rateStated {
		return nil
	}
	for i := range d.members {
		m := &d.members[i]
		s := d.streams[streamKey(m.name)]
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

// examineTimes reads the times of the first episodes. It does not read a remote store, because each
// row is a file.
func (d *Dataset) examineTimes(ctx context.Context, name string, s *stream) error {
	faulty := false
	for e := 0; e < min(len(d.episodes), clocksRead) && !robocache.IsRemote(d.Bytes); e++ {
		if d.lacksStream(d.episodes[e], s) || d.Len(e) > maxRawTimes {
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

// rawTimes reads the values of an array in the frames of an episode. Frames that lack the array are
// skipped.
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

// recordTextClock records a time array that has no numbers.
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
