package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
)

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

// stretch is what a window was: both its ends are arrivals of batches.
type stretch struct {
	First    time.Duration // from the first call to the first batch
	OpenedAt time.Time
	Length   time.Duration
	Wait     time.Duration // of Length, inside Next
	Arrivals []int64       // µs after OpenedAt
	Rows     []int
	Samples  int64
}

// windowOptions: the window opens when batch number Warmup (counted from 0) arrives, and closes at the first arrival that is at
// least Duration later.
type windowOptions struct {
	Warmup      int
	Duration    time.Duration
	Open, Close func() // called at the two ends; may be nil
}

// next gives the next batch, past the ends of epochs, which the tally is told of.
func next(ctx context.Context, src source, t *tally) (taken, error) {
	for empty := 0; ; empty++ {
		b, err := src.Next(ctx)
		if !errors.Is(err, io.EOF) {
			return b, err
		}
		if empty > 0 {
			return b, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Msg: "an epoch without a batch"}
		}
		t.endEpoch()
	}
}

// measureWindow takes batches as fast as they come.
func measureWindow(ctx context.Context, c clock, src source, t *tally, o windowOptions) (stretch, error) {
	var s stretch
	begin := c.Now()
	for i := range o.Warmup + 1 {
		b, err := next(ctx, src, t)
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.First = c.Now().Sub(begin)
		}
		t.add(b.Samples, b.Episodes)
		b.Release()
	}
	if o.Open != nil {
		o.Open()
	}
	s.OpenedAt = c.Now()
	t.randomness = true
	for s.Length < o.Duration {
		asked := c.Now()
		b, err := next(ctx, src, t)
		if err != nil {
			return s, err
		}
		now := c.Now()
		s.Wait += now.Sub(asked)
		s.Length = now.Sub(s.OpenedAt)
		s.Arrivals = append(s.Arrivals, s.Length.Microseconds())
		s.Rows = append(s.Rows, len(b.Samples))
		s.Samples += int64(len(b.Samples))
		t.add(b.Samples, b.Episodes)
		b.Release()
	}
	t.randomness = false
	t.closeOrder()
	if o.Close != nil {
		o.Close()
	}
	return s, nil
}

// measureWait is a consumer that takes step for each batch: the share of its time that goes on waiting, in percent.
// The first step comes before the first call, so that the queues stand as a training run would find them.
func measureWait(ctx context.Context, c clock, src source, t *tally, step time.Duration, batches int) (float64, error) {
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
