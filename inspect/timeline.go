package inspect

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// maxTimeless is the largest number of rows for which a stream without a clock gets made-up times.
const maxTimeless = 8 << 20

// Timeline holds the times of a stream's rows in an episode.
type Timeline struct {
	Rows     int
	Times    []int64 // as recorded, but never descending; without a clock, row i is at i seconds
	Timeless bool
	Problem  string
}

// Timelines holds the timeline of each stream of an episode, in the order of Info.Features. Streams
// with the same clock share a Timeline.
type Timelines struct {
	Start, End int64 // first and last timestamp of any stream
	Streams    []*Timeline
	Bytes      int64
}

// TimelinesOf returns the timelines of all streams of an episode. A stream that cannot be read has
// a Problem and no rows.
func TimelinesOf(ctx context.Context, ds robocache.Dataset, e int) (_ *Timelines, err error) {
	defer crash.Recover("inspect", &err)
	all := &Timelines{Start: math.MaxInt64, End: math.MinInt64}
	clocks := map[string]*Timeline{}
	features := ds.Info().Features
	for i := range features {
		f := &features[i]
		l := clocks[f.Clock]
		if l == nil || l.Problem != "" {
			if l, err = TimelineOf(ctx, ds, e, f); err != nil {
				return nil, err
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			clocks[f.Clock] = l
			all.Bytes += int64(8 * len(l.Times))
		}
		all.Streams = append(all.Streams, l)
	}
	// A latched stream is published only once. It limits the time axis only if there are no other
	// streams.
	for _, latched := range []bool{false, true} {
		for i, l := range all.Streams {
			if len(l.Times) > 0 && features[i].Latched == latched {
				all.Start, all.End = min(all.Start, l.Times[0]),
					max(all.End, l.Times[len(l.Times)-1])
			}
		}
		if all.End >= all.Start {
			return all, nil
		}
	}
	all.Start, all.End = 0, 0
	return all, nil
}

// TimelineOf returns the timeline of one stream, or of the task.
func TimelineOf(
	ctx context.Context,
	ds robocache.Dataset,
	e int,
	f *robocache.Feature,
) (*Timeline, error) {
	l := &Timeline{}
	key := f.Key
	if key == "task" {
		key = ""
	}
	times, err := ds.Times(ctx, e, key)
	if robocache.IsFatal(err) {
		return nil, err
	}
	if err != nil {
		if l.Problem = err.Error(); ds.Info().FPS.Zero() {
			n, err := robocache.RowsIn(ctx, ds, e, f)
			if robocache.IsFatal(err) {
				return nil, err
			}
			if err == nil && n <= maxTimeless {
				l.Rows, l.Timeless, l.Problem = n, true, ""
				l.Times = align.Uniform(0, int64(n-1)*1e9, robocache.Rate{Num: 1, Den: 1})
			}
		}
		return l, nil
	}
	l.Rows, l.Times = len(times), times
	for i := 1; i < len(times); i++ {
		if times[i] < l.Times[i-1] {
			if l.Problem == "" {
				l.Problem = "timestamps go back at row " + strconv.Itoa(i) +
					": such rows are shown at the time of the row before"
				l.Times = slices.Clone(times)
			}
			l.Times[i] = l.Times[i-1]
		}
	}
	return l, nil
}

// LongestStep returns the longest step between rows that is not a gap.
func (l *Timeline) LongestStep(f *robocache.Feature) int64 {
	if step := robocache.LongestStep(l.Times); step > 0 && !f.Latched && !l.Timeless {
		return step
	}
	return math.MaxInt64
}
