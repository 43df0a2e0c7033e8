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

const mostEpochs = 5000

// consumer takes batches from a source and tells the sink what came. It is the one loop of every
// measurement; class Stream of runners/robocache_bench/common.py is the other language's.
type consumer struct {
	src   source
	sink  sink
	given int // batches of the epoch
}

// take takes batches, a step of work before each, until done says that it is enough; done sees nil
// where an epoch ends. It gives the time inside Next.
func (m *consumer) take(
	ctx context.Context,
	step time.Duration,
	done func(b *taken) (bool, error),
) (wait time.Duration, err error) {
	for work := true; ; {
		if work && step > 0 {
			time.Sleep(step)
		}
		asked := time.Now()
		b, err := m.src.Next(ctx)
		wait += time.Since(asked)
		switch work = err == nil; {
		case work:
			m.given++
			enough, failed := done(&b)
			if failed != nil {
				return wait, failed
			}
			m.sink(int64(len(b.Samples)), b.Samples, b.Episodes)
			b.Release()
			if enough {
				return wait, nil
			}
		case !errors.Is(err, io.EOF):
			return wait, err
		case m.given == 0:
			return wait, robocache.Malformed("load", nil, "an epoch without a batch")
		default:
			m.given = 0
			m.sink(markEpoch, nil, nil)
			if enough, failed := done(nil); enough || failed != nil {
				return wait, failed
			}
		}
	}
}

// window takes batches as fast as they come, and writes what came into the outcome. Without
// Duration the window is whole epochs, after Warm ones, and more where those do not fill Seconds.
// Else it opens when batch number Warmup (counted from 0) arrives, and closes at the first arrival
// that is at least Duration later. mark is called at the two ends.
func (m *consumer) window(
	ctx context.Context,
	w *Workload,
	o *Outcome,
	mark func(open bool),
) (err error) {
	begin := time.Now()
	last, whole := begin, w.Duration == 0
	left := w.Warmup + 1 // batches, or epochs
	if whole {
		left = max(w.Warm, 1)
	}
	if _, err = m.take(ctx, 0, func(b *taken) (bool, error) {
		if b != nil && o.FirstBatchS == 0 {
			o.FirstBatchS = time.Since(begin).Seconds()
		}
		if left > 1 {
			last = time.Now()
		}
		if (b == nil) == whole {
			left--
		}
		return left == 0, nil
	}); err != nil {
		return err
	}
	if whole {
		o.Epochs = min(
			max(w.Epochs, 1, int(math.Ceil(w.Seconds/max(time.Since(last).Seconds(), 1e-6)))),
			mostEpochs,
		)
	}
	mark(true)
	opened := time.Now()
	m.sink(markOpen, nil, nil)
	left, o.OpenUnixNS = o.Epochs, opened.UnixNano()
	wait, err := m.take(ctx, 0, func(b *taken) (bool, error) {
		length := time.Since(opened)
		o.Seconds = length.Seconds()
		if b == nil {
			left--
			return whole && left == 0, nil
		}
		if o.Samples += int64(len(b.Samples)); !whole {
			o.ArrivalsUS, o.ArrivalRows = append(o.ArrivalsUS, length.Microseconds()),
				append(o.ArrivalRows, len(b.Samples))
		}
		return !whole && o.Seconds >= w.Duration, nil
	})
	o.WaitS = wait.Seconds()
	m.sink(markClose, nil, nil)
	mark(false)
	return err
}

// wait is a consumer that takes step for each batch: the share of its time that goes on waiting, in
// percent. The first step comes before the first call, so that the queues stand as a training run
// would find them.
func (m *consumer) wait(ctx context.Context, step time.Duration, batches int) (float64, error) {
	begin := time.Now()
	waited, err := m.take(ctx, step, func(b *taken) (bool, error) {
		if b != nil {
			batches--
		}
		return batches == 0, nil
	})
	return 100 * waited.Seconds() / max(time.Since(begin).Seconds(), 1e-9), err
}

// waitBatches is how many batches the waiting consumer takes: half a window's time, at most 15 s,
// at least three.
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
