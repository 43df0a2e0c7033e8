package pipeline

import (
	"sync"

	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// epochPlan is the position of a run's planner in an epoch.
type epochPlan struct {
	order.Progress
	sampler   *order.Sampler
	cursor    order.Cursor
	firstStep *order.Step // computed in advance by prepareNextEpoch; nil: not computed, or taken
	next      *nextEpoch  // nil: not prepared
}

// nextEpoch is the epoch after an epochPlan, and the episodes that its pool begins with.
type nextEpoch struct {
	*epochPlan
	prepared         chan struct{} // closed when firstStep and firstStepSamples are set
	firstStepSamples float64       // samples of the rank in the admissions of firstStep
	enteredEpisodes  int           // admissions made before the epoch began
	enteredSamples   float64       // samples of the rank in them
}

// planEpoch returns a plan that continues at p.
func planEpoch(p order.Progress) *epochPlan {
	e := &epochPlan{Progress: p}
	e.sampler, e.cursor = p.Sampler()
	return e
}

// nextStep computes the epoch's next batch. It returns false at the end of the epoch.
func (e *epochPlan) nextStep(s *order.Step) bool {
	if e.firstStep != nil {
		*s, e.firstStep = *e.firstStep, nil
	} else if !e.sampler.Next(e.cursor, s) {
		return false
	}
	e.cursor = s.After
	return true
}

// followingPlan returns the plan of the next epoch, without the admissions that were already made.
// It blocks until prepareNextEpoch is done.
func (e *epochPlan) followingPlan() *epochPlan {
	if n := e.next; n != nil {
		<-n.prepared
		if n.firstStep != nil {
			n.firstStep.Admitted = n.firstStep.Admitted[n.enteredEpisodes:]
		}
		return n.epochPlan
	}
	p := e.Progress
	p.GoTo(e.Epoch + 1)
	return planEpoch(p)
}

// prepareNextEpoch computes the order and the first step of the next epoch in the background, which
// may take a while.
func (e *epochPlan) prepareNextEpoch(wg *sync.WaitGroup) {
	n := &nextEpoch{prepared: make(chan struct{}), epochPlan: e.followingPlan()}
	e.next = n
	wg.Go(func() {
		defer close(n.prepared)
		first := &order.Step{}
		if !n.sampler.Next(n.cursor, first) {
			return
		}
		n.firstStep = first
		for i := range first.Admitted {
			n.firstStepSamples += first.Admitted[i].Own()
		}
	})
}

// admitNextEpoch admits episodes that the next epoch's pool begins with while this epoch's pool
// drains. The first batches of the next epoch then find their frames, and the load of the decoders
// is even.
func (r *EpochRun) admitNextEpoch(w *worker, e *epochPlan, seq int64) {
	if !r.IsEndless || r.assembler.Config.Shuffle != order.Pool || !r.assembler.HasVideo() {
		return
	}
	left := e.sampler.Left(e.cursor)
	if e.next == nil {
		if capacity := e.Order.Capacity(); capacity > 0 && left > capacity {
			return // the pool is still full, so the next order would only use memory
		}
		e.prepareNextEpoch(&r.wg)
	}
	n := e.next
	select {
	case <-n.prepared:
	default:
		return
	}
	for n.firstStep != nil && n.enteredEpisodes < len(n.firstStep.Admitted) {
		a := &n.firstStep.Admitted[n.enteredEpisodes]
		own := a.Own()
		// The samples that are left of this epoch and those admitted for the next one must fit
		// together into the pool that the next epoch begins with.
		if float64(left)+n.enteredSamples+own > n.firstStepSamples {
			return
		}
		w.admitEpisode(a, n.Epoch, seq, false)
		a.Samples = nil
		n.enteredSamples += own
		n.enteredEpisodes++
	}
}
