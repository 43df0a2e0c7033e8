package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
)

// clock is the time that a measurement sees; tests give one that only they move.
type clock interface {
	Now() time.Time
	Sleep(d time.Duration)
}

type wallClock struct{}

func (wallClock) Now() time.Time        { return time.Now() }
func (wallClock) Sleep(d time.Duration) { time.Sleep(d) }

// taken is one batch as the window sees it. Its slices are valid until Release.
type taken struct {
	Samples  []int64
	Episodes []int32
	Release  func()
}

// source gives batches epoch after epoch; io.EOF stands between two epochs.
type source interface {
	Next(ctx context.Context) (taken, error)
}

// stretch is what a window was: both its ends are arrivals of batches, or ends of epochs.
type stretch struct {
	First    time.Duration // from the first call to the first batch
	OpenedAt time.Time
	Length   time.Duration
	Wait     time.Duration // of Length, inside Next
	Arrivals []int64       // µs after OpenedAt
	Rows     []int
	Samples  int64
	Epochs   int // of a window of whole epochs
}

// windowOptions: the window opens when batch number Warmup (counted from 0) arrives, and closes at the first arrival that is at least Duration later.
// With Epochs it is so many whole epochs, after Warm ones, and more where those do not fill Seconds.
type windowOptions struct {
	Warmup      int
	Duration    time.Duration
	Warm        int
	Epochs      int
	Seconds     float64
	Open, Close func() // called at the two ends; may be nil
}

const mostEpochs = 5000

var errEmpty = &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Msg: "an epoch without a batch"}

// item gives the next batch, or the end of an epoch, which the sink is told of.
func item(ctx context.Context, src source, t sink) (b taken, end bool, err error) {
	b, err = src.Next(ctx)
	if errors.Is(err, io.EOF) {
		t.endEpoch()
		return b, true, nil
	}
	return b, false, err
}

// next gives the next batch, past the ends of epochs.
func next(ctx context.Context, src source, t sink) (taken, error) {
	for range 2 {
		if b, end, err := item(ctx, src, t); !end {
			return b, err
		}
	}
	return taken{}, errEmpty
}

// measureWindow takes batches as fast as they come.
func measureWindow(ctx context.Context, c clock, src source, t sink, o windowOptions) (stretch, error) {
	var s stretch
	take := func(b taken) { t.add(b.Samples, b.Episodes); b.Release() }
	begin := c.Now()
	last, whole, given, some := begin, o.Epochs > 0, 0, false
	left := o.Warmup + 1 // batches, or epochs
	if whole {
		left = max(o.Warm, 1)
	}
	for left > 0 {
		b, end, err := item(ctx, src, t)
		switch {
		case err != nil:
			return s, err
		case !end:
			if given++; !some {
				s.First, some = c.Now().Sub(begin), true
			}
			take(b)
		case given == 0:
			return s, errEmpty
		default:
			given = 0
		}
		if end == whole {
			if left--; left > 0 {
				last = c.Now()
			}
		}
	}
	if whole {
		s.Epochs = min(max(o.Epochs, int(math.Ceil(o.Seconds/max(c.Now().Sub(last).Seconds(), 1e-6)))), mostEpochs)
	}
	if o.Open != nil {
		o.Open()
	}
	s.OpenedAt = c.Now()
	t.window(true)
	for done := 0; done < s.Epochs || !whole && s.Length < o.Duration; {
		asked := c.Now()
		b, end, err := item(ctx, src, t)
		if end && !whole {
			b, err = next(ctx, src, t)
		}
		if err != nil {
			return s, err
		}
		now := c.Now()
		s.Wait, s.Length = s.Wait+now.Sub(asked), now.Sub(s.OpenedAt)
		if end && whole {
			done++
			continue
		}
		if !whole {
			s.Arrivals = append(s.Arrivals, s.Length.Microseconds())
		}
		s.Rows = append(s.Rows, len(b.Samples))
		s.Samples += int64(len(b.Samples))
		take(b)
	}
	t.window(false)
	if o.Close != nil {
		o.Close()
	}
	return s, nil
}

// measureWait is a consumer that takes step for each batch: the share of its time that goes on waiting, in percent.
// The first step comes before the first call, so that the queues stand as a training run would find them.
func measureWait(ctx context.Context, c clock, src source, t sink, step time.Duration, batches int) (float64, error) {
	begin, waited := c.Now(), time.Duration(0)
	for range batches {
		c.Sleep(step)
		asked := c.Now()
		b, err := next(ctx, src, t)
		if err != nil {
			return 0, err
		}
		waited += c.Now().Sub(asked)
		t.add(b.Samples, b.Episodes)
		b.Release()
	}
	if total := c.Now().Sub(begin); total > 0 {
		return 100 * waited.Seconds() / total.Seconds(), nil
	}
	return 0, nil
}

// waitBatches is how many batches the waiting consumer takes: half a window's time, at most 15 s, at least three.
func waitBatches(window time.Duration, seen int, step time.Duration) int {
	if step <= 0 {
		return 3
	}
	return max(3, min(seen, int(min(window/2, 15*time.Second)/step)))
}

// gaps are the times between arrivals divided by the batch's samples, ascending, in ms.
func gaps(arrivals []int64, rows []int) []float64 {
	out := make([]float64, 0, len(arrivals))
	before := int64(0)
	for i, a := range arrivals {
		if rows[i] > 0 {
			out = append(out, float64(a-before)/1e3/float64(rows[i]))
		}
		before = a
	}
	slices.Sort(out)
	return out
}

// quantile is the nearest rank sorted[round(p(n−1))].
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1)+0.5)]
}
