package rlds

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// clocksRead is the number of episodes whose times are read to find faults. It is small, because
// reading one column reads a whole record.
const clocksRead = 4

// examineClocks records the unused time streams of the steps. It does nothing if the caller or our
// own writer states the clock.
func (d *Dataset) examineClocks(ctx context.Context, opt robocache.OpenOptions, own ownMetadata) {
	stated := !opt.HZ.Zero() || opt.Map != nil && !opt.Map.HZ.Zero()
	if stated || d.clock.leaf >= 0 || own.Robocache != nil {
		return
	}
	for i := range d.schema.leaves {
		l := &d.schema.leaves[i]
		if !l.step || !robocache.NamesClock(l.key) || l.unsupported == "" && d.absentFromAll(i) {
			continue
		}
		if reason := l.clockFault(); reason != "" {
			if !robocache.NamesClockWeakly(l.key) {
				d.About.AddUnusedClock(robocache.UnusedClock{Stream: l.key, Reason: reason})
			}
			continue
		}
		if faulty := d.examineTimes(ctx, i); !faulty && d.clock.rate.Zero() {
			d.About.AddUnusedClock(robocache.UnusedClock{
				Stream: l.key, Sound: true, Reason: "is not taken as the clock of the rows",
				Advice: "Name it: " + robocache.Option("options", "timestamps", l.key),
			})
		}
	}
}

// clockFault returns why the type or the shape of a stream is not that of a clock, or "".
func (l *leaf) clockFault() string {
	switch {
	case l.unsupported != "":
		return "is not read: " + l.unsupported
	case l.coding == textual:
		return "holds text and no numbers"
	case l.coding != plain:
		return "holds images and no numbers"
	case l.dtype == robocache.Bool:
		return "holds values of type bool and no times"
	case l.varies || l.nested():
		return "has a list of varying length for each row"
	case l.elements() != 1:
		return fmt.Sprintf("has %d values for each row", l.elements())
	case l.optional:
		return "is optional, and lacks times"
	}
	return ""
}

// examineTimes records the faults of a time stream in the first episodes, and reports whether there
// are any. It reads none of a remote dataset.
func (d *Dataset) examineTimes(ctx context.Context, leaf int) (faulty bool) {
	l := &d.schema.leaves[leaf]
	for e := 0; e < min(d.About.Episodes, clocksRead) && !robocache.IsRemote(d.Bytes); e++ {
		var values []float64
		err := guard.Try(func() {
			rec := d.loadValues(ctx, e)
			values = robocache.Float64s(nil, l.dtype, d.columnOf(rec, leaf, e).rows)
		})
		if err != nil && !robocache.Bad(err) {
			guard.Fail(err)
		}
		reason := robocache.ClockFault(values)
		var fault *robocache.Error
		if errors.As(err, &fault) {
			n, parseErr := strconv.ParseInt(fault.Got, 10, 64)
			if parseErr != nil {
				continue // reported when the episode is read
			}
			reason = robocache.ClockLengthFault(n, int64(d.Len(e)))
		}
		if reason != "" {
			faulty = true
			where := robocache.Where{"episode": d.About.EpisodeIndex(e)}
			d.About.AddUnusedClock(
				robocache.UnusedClock{Stream: l.key, Where: where, Reason: reason},
			)
		}
	}
	return faulty
}
