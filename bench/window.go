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

// deliveredBatch is one batch as the window sees it. Its slices are valid until Release.
type deliveredBatch struct {
	Samples  []int64
	Episodes []int32
	Release  func()
}

// batchSource delivers the batches of successive epochs.
type batchSource interface {
	// Next returns the next batch. It returns io.EOF at the end of each epoch; the call after that
	// starts the next epoch.
	Next(ctx context.Context) (deliveredBatch, error)
}

const maxEpochs = 5000

// consumer takes batches from a source and reports them to a sink. All measurements of this program
// use this loop. The class Stream in runners/robocache_bench/common.py is its Python counterpart.
type consumer struct {
	source         batchSource
	sink           orderSink
	batchesInEpoch int // batches received in the current epoch
}

// consumeUntil takes batches until done returns true, and sleeps for step before each batch. It
// calls done(nil) at the end of an epoch. It returns the time spent inside Next.
func (m *consumer) consumeUntil(
	ctx context.Context,
	step time.Duration,
	done func(b *deliveredBatch) (bool, error),
) (wait time.Duration, err error) {
	for work := true; ; {
		if work && step > 0 {
			time.Sleep(step)
		}
		asked := time.Now()
		b, err := m.source.Next(ctx)
		wait += time.Since(asked)
		switch work = err == nil; {
		case work:
			m.batchesInEpoch++
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
		case m.batchesInEpoch == 0:
			return wait, robocache.Malformed("load", nil, "an epoch without a batch")
		default:
			m.batchesInEpoch = 0
			m.sink(markEpoch, nil, nil)
			if enough, failed := done(nil); enough || failed != nil {
				return wait, failed
			}
		}
	}
}

// measureWindow takes batches without pauses and writes the figures into o. If Duration is 0, the
// window is a number of whole epochs after Warm warm-up epochs; epochs are added until they fill
// Seconds. Otherwise the window opens when batch number Warmup (from 0) arrives. It closes at the
// first arrival at least Duration later. measureWindow calls mark when the window opens and when it
// closes.
func (m *consumer) measureWindow(
	ctx context.Context,
	w *Workload,
	o *Outcome,
	mark func(open bool),
) (err error) {
	begin := time.Now()
	last, whole := begin, w.Duration == 0
	left := w.Warmup + 1 // batches, or epochs, that remain
	if whole {
		left = max(w.Warm, 1)
	}
	if _, err = m.consumeUntil(ctx, 0, func(b *deliveredBatch) (bool, error) {
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
			maxEpochs,
		)
	}
	mark(true)
	opened := time.Now()
	m.sink(markOpen, nil, nil)
	left, o.OpenUnixNS = o.Epochs, opened.UnixNano()
	wait, err := m.consumeUntil(ctx, 0, func(b *deliveredBatch) (bool, error) {
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

// measureWait consumes batches with a pause of step before each one. It returns the percentage of
// the time spent waiting for batches. The first pause comes before the first call, so that the
// queues are as full as in a training run.
func (m *consumer) measureWait(
	ctx context.Context,
	step time.Duration,
	batches int,
) (float64, error) {
	begin := time.Now()
	waited, err := m.consumeUntil(ctx, step, func(b *deliveredBatch) (bool, error) {
		if b != nil {
			batches--
		}
		return batches == 0, nil
	})
	return 100 * waited.Seconds() / max(time.Since(begin).Seconds(), 1e-9), err
}

// waitBatchCount returns the number of batches for measureWait: enough to fill half of the window,
// but at most 15 s, and at least three batches.
func waitBatchCount(window time.Duration, seen int, step time.Duration) int {
	if step <= 0 {
		return 3
	}
	return max(3, min(seen, int(min(window/2, 15*time.Second)/step)))
}

// arrivalGaps returns, for each batch, the time since the previous arrival divided by the number of
// samples. The gaps are in milliseconds, in ascending order.
func arrivalGaps(arrivals []int64, rows []int) []float64 {
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

// nearestQuantile returns sorted[round(p(n−1))], or 0 if there are no values.
func nearestQuantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1)+0.5)]
}
