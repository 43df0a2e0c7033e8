package zarr

import (
	"context"
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// clocksRead is the number of episodes whose times are read to find faults.
const clocksRead = 64

// maxRawTimes is the number of rows of an episode whose times are read to find faults.
const maxRawTimes = 4096

// examineClock reports whether the array of timestamps can be the clock of the rows. If not, it
// records the reason, unless the caller sets the rate.
func (d *Dataset) examineClock(ctx context.Context, rateStated bool) (usable bool, err error) {
	record := func(c robocache.UnusedClock) {
		if !rateStated {
			d.About.AddUnusedClock(c)
		}
	}
	v := d.views["timestamp"]
	if v == nil {
		return false, d.examineOtherClocks(ctx, record)
	}
	if reason := d.formFault(v); reason != "" {
		record(robocache.UnusedClock{Stream: v.a.Path, Reason: reason})
		return false, nil
	}
	constant, err := d.examineTimes(ctx, v, record)
	return !constant, err
}

// examineOtherClocks records arrays with other usual names of a clock. The layout uses none of
// them.
func (d *Dataset) examineOtherClocks(
	ctx context.Context,
	record func(robocache.UnusedClock),
) error {
	for _, path := range d.sortedPaths() {
		name := strings.TrimPrefix(path, "data/")
		if !robocache.NamesClock(name) {
			continue
		}
		key := ""
		for k, v := range d.views {
			if v.a.Path == path {
				key = k
			}
		}
		v := d.views[key]
		if key == "" {
			continue
		}
		reason := d.formFault(v)
		if reason != "" {
			if !robocache.NamesClockWeakly(name) {
				record(robocache.UnusedClock{Stream: path, Reason: reason})
			}
			continue
		}
		before := len(d.About.UnusedClocks)
		if _, err := d.examineTimes(ctx, v, record); err != nil {
			return err
		}
		if len(d.About.UnusedClocks) == before && d.rate.Zero() {
			wanted := strings.TrimSuffix(path, name) + "timestamp"
			record(robocache.UnusedClock{
				Stream: path,
				Sound:  true,
				Reason: "is not taken as the clock of the rows, which is " + wanted,
				Advice: "Rename the array to " + wanted,
			})
		}
	}
	return nil
}

// formFault returns the reason why the type or shape of an array does not fit a clock, or "".
func (d *Dataset) formFault(v *view) string {
	switch rows := d.ends[len(d.ends)-1]; {
	case v.a.err != nil:
		return "cannot be decoded: " + v.a.err.Error()
	case v.f.Kind == robocache.KindText || v.f.Kind == robocache.KindEvent:
		return "holds text and no numbers"
	case v.f.DType == robocache.Bool:
		return "holds values of type bool and no times"
	case v.f.Kind != robocache.KindNumeric:
		return "holds images and no numbers"
	case v.f.Elements() != 1:
		return fmt.Sprintf("has %d values for each row", v.f.Elements())
	case v.f.Clock != "":
		return robocache.ClockLengthFault(int64(v.a.Shape[0]), rows)
	}
	return ""
}

// examineTimes records the faults of an array of times in the episodes. It reports whether the
// values are constant in all episodes whose values are read.
func (d *Dataset) examineTimes(
	ctx context.Context,
	v *view,
	record func(robocache.UnusedClock),
) (bool, error) {
	stream := v.a.Path
	most := clocksRead
	if robocache.IsRemote(d.st) {
		most = 1
	}
	examined, constant := 0, 0
	for e := range len(d.ends) - 1 {
		where := robocache.Where{"episode": e}
		if have := int64(v.a.Shape[0]); have < d.ends[e+1] {
			reason := robocache.ClockLengthFault(max(have-d.ends[e], 0), d.ends[e+1]-d.ends[e])
			record(robocache.UnusedClock{Stream: stream, Where: where, Reason: reason})
			continue
		}
		if examined == most {
			continue
		}
		values, err := d.rawTimes(ctx, v.a, e)
		if err != nil && !robocache.Bad(err) {
			return false, err
		}
		if err != nil || len(values) == 0 {
			continue // reported when the episode is read
		}
		examined++
		if reason := robocache.ClockFault(values); reason != "" {
			record(robocache.UnusedClock{Stream: stream, Where: where, Reason: reason})
		}
		if robocache.IsConstantClock(values) {
			constant++
		}
	}
	return constant > 0 && constant == examined, nil
}

// rawTimes reads the first stored times of an episode. It returns nil if the array ends earlier.
func (d *Dataset) rawTimes(ctx context.Context, a *Array, episode int) ([]float64, error) {
	n := min(d.Len(episode), maxRawTimes)
	if int64(a.Shape[0]) < d.ends[episode]+int64(n) {
		return nil, nil
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = int(d.ends[episode]) + i
	}
	b := make([]byte, n*a.Type.Size)
	if err := d.gatherRows(ctx, a, rows, b); err != nil {
		return nil, err
	}
	return robocache.Float64s(nil, a.Type.DType(), b), nil
}
