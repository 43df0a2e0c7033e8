package pipeline

import (
	"sync"

	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// epochPlan is where a run's planner stands in an epoch.
type epochPlan struct {
	order.Progress
	sampler *order.Sampler
	at      order.Cursor
	first   *order.Step // that was made already; nil: none
	ahead   *nextEpoch  // nil: it was not looked at
}

// nextEpoch is the epoch behind, and what its pool begins with.
type nextEpoch struct {
	*epochPlan
	made    chan struct{} // closed when the rest is there
	total   float64       // samples of the rank in first's admissions
	entered int           // of these admissions, before the epoch begins
	samples float64       // of those
}

func planEpoch(p order.Progress) *epochPlan {
	e := &epochPlan{Progress: p}
	e.sampler, e.at = p.Sampler()
	return e
}

// step gives what is in the epoch's next batch; false at its end.
func (e *epochPlan) step(s *order.Step) bool {
	if e.first != nil {
		*s, e.first = *e.first, nil
	} else if !e.sampler.Next(e.at, s) {
		return false
	}
	e.at = s.After
	return true
}

// following is the next epoch. What entered it already does not enter again.
func (e *epochPlan) following() *epochPlan {
	if n := e.ahead; n != nil {
		<-n.made
		if n.first != nil {
			n.first.Admitted = n.first.Admitted[n.entered:]
		}
		return n.epochPlan
	}
	p := e.Progress
	p.GoTo(e.Epoch + 1)
	return planEpoch(p)
}

// look makes the next epoch's order and first step, which may take a while.
func (e *epochPlan) look(wg *sync.WaitGroup) {
	n := &nextEpoch{made: make(chan struct{}), epochPlan: e.following()}
	e.ahead = n
	wg.Go(func() {
		defer close(n.made)
		first := &order.Step{}
		if !n.sampler.Next(n.at, first) {
			return
		}
		n.first = first
		for i := range first.Admitted {
			n.total += first.Admitted[i].Own()
		}
	})
}

// refill lets the episodes that a pool's next epoch begins with enter as this one drains: its first batches find their frames, and the decoders' load is even.
func (r *EpochRun) refill(w *worker, e *epochPlan, seq int64) {
	if !r.IsEndless || r.a.Config.Shuffle != order.Pool || !r.a.HasVideo() {
		return
	}
	left := e.sampler.Left(e.at)
	if e.ahead == nil {
		if room := e.Order.Room(); room > 0 && left > room {
			return // nothing leaves for good before: the next order would only be held
		}
		e.look(&r.wg)
	}
	n := e.ahead
	select {
	case <-n.made:
	default:
		return
	}
	for n.first != nil && n.entered < len(n.first.Admitted) {
		a := &n.first.Admitted[n.entered]
		if n.samples+a.Own() > n.total-float64(left) {
			return
		}
		w.admit(a, n.Epoch, seq, false)
		n.samples, a.Samples = n.samples+a.Own(), nil
		n.entered++
	}
}
