package delta

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

const (
	// clocksRead is the number of episodes whose times are read to find faults.
	clocksRead = 64
	// maxRawTimes is the number of rows of an episode whose times are read to find faults.
	maxRawTimes = 4096
)

// examineClock keeps the time column as the clock of the rows if it can be used, and records it as
// unused otherwise. If the table has no such column, it records columns whose names suggest a
// clock.
func (d *Dataset) examineClock(
	ctx context.Context,
	t *table,
	byName map[string]*readColumn,
	opt robocache.OpenOptions,
) error {
	record := func(c robocache.UnusedClock) {
		if opt.HZ.Zero() {
			d.About.AddUnusedClock(c)
		}
	}
	if c := d.clock; c != nil {
		if reason := formFault(c); reason != "" {
			record(robocache.UnusedClock{Stream: c.name, Reason: reason})
			d.clock = nil
			return nil
		}
		constant, err := d.examineTimes(ctx, c, record)
		if constant && opt.Options["timestamp"] == "" {
			d.clock = nil
		}
		return err
	}
	for i := range t.fields {
		name := t.fields[i].Name
		if byName[name] == nil && robocache.NamesClock(name) && !robocache.NamesClockWeakly(name) {
			reason := fmt.Sprintf("has the type %s, which is not read", t.fields[i].Type)
			record(robocache.UnusedClock{Stream: name, Reason: reason})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if !robocache.NamesClock(name) {
			continue
		}
		c := byName[name]
		if reason := formFault(c); reason != "" {
			if !robocache.NamesClockWeakly(name) {
				record(robocache.UnusedClock{Stream: name, Reason: reason})
			}
			continue
		}
		before := len(d.About.UnusedClocks)
		if _, err := d.examineTimes(ctx, c, record); err != nil {
			return err
		}
		if len(d.About.UnusedClocks) == before && d.About.FPS.Zero() {
			record(robocache.UnusedClock{
				Stream: name, Sound: true, Reason: "is not taken as the clock of the rows",
				Advice: "Name it: " + robocache.Option("options", "timestamp", name),
			})
		}
	}
	return nil
}

// formFault returns why the type or the shape of a column is not that of a clock, or "".
func formFault(c *readColumn) string {
	switch {
	case c.feature.Kind == robocache.KindText || c.feature.Kind == robocache.KindEvent:
		return "holds text and no numbers"
	case c.feature.Kind != robocache.KindNumeric:
		return "holds values of type " + c.elem + " and no numbers"
	case c.feature.DType == robocache.Bool:
		return "holds values of type boolean and no times"
	case c.dims != nil:
		return "holds a list for each row and no number"
	case c.feature.Masked:
		return "has nulls in place of times"
	}
	return ""
}

// examineTimes records the faults of a column of times in the first episodes. It reports whether
// the values are constant in all of them.
func (d *Dataset) examineTimes(
	ctx context.Context,
	c *readColumn,
	record func(robocache.UnusedClock),
) (bool, error) {
	limit := clocksRead
	if robocache.IsRemote(d.Bytes) {
		limit = 1
	}
	examined, constant := 0, 0
	for e := range min(len(d.episodes), limit) {
		n := min(d.Len(e), maxRawTimes)
		b := make([]byte, n*c.feature.DType.Size())
		err := d.gatherRows(ctx, c, reader.Rows(e, 0, n), b)
		if err != nil && !robocache.Bad(err) {
			return false, err
		}
		if err != nil || n == 0 {
			continue // reported when the episode is read
		}
		values := robocache.Float64s(nil, c.feature.DType, b)
		examined++
		if reason := robocache.ClockFault(values); reason != "" {
			where := robocache.Where{"episode": d.About.EpisodeIndex(e)}
			record(robocache.UnusedClock{Stream: c.name, Where: where, Reason: reason})
		}
		if robocache.IsConstantClock(values) {
			constant++
		}
	}
	return constant > 0 && constant == examined, nil
}
