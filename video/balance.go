package video

import (
	"sync"
	"time"
)

// How long a balance watches each way, and how long its answer stands: longer each time, as it says
// the same.
const (
	settling  = 1500 * time.Millisecond // decoders are made meanwhile
	passing   = 100 * time.Millisecond  // what the way before had begun ends
	watching  = 300 * time.Millisecond
	firstHold = 2 * time.Second
	lastHold  = 30 * time.Second
)

// worthHelp is how many times more has to be delivered with the host's help: it costs cores that
// the training may want.
const worthHelp = 1.05

// balance says whether the host's cores decode what a busy device has not begun. It watches both
// ways in turn and takes the faster; where neither is, for whoever takes the frames is slower, the
// device alone. Frames are the same either way.
type balance struct {
	mu     sync.Mutex
	state  uint8 // of states
	until  time.Time
	from   int64 // frames at the beginning of a watch
	since  time.Time
	helped float64 // frames a second
	helps  bool
	hold   time.Duration
}

// States, in their order; after holding the watch with help comes again.
const (
	beginning uint8 = iota
	passingToHelp
	watchingHelp
	passingToAlone
	watchingAlone
	holding
)

// helping says whether the host helps.
func (b *balance) helping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state <= watchingHelp || b.state == holding && b.helps
}

// tick is told the time, and how many frames were delivered in all.
func (b *balance) tick(now time.Time, frames int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		b.until, b.hold = now.Add(settling), firstHold
	}
	if now.Before(b.until) {
		return
	}
	rate := float64(frames-b.from) / now.Sub(b.since).Seconds()
	next, d := b.state+1, watching
	switch b.state {
	case beginning, watchingHelp:
		if d = passing; b.state == watchingHelp {
			b.helped = rate
		}
	case watchingAlone:
		helps := b.helped > worthHelp*rate
		if b.hold = min(2*b.hold, lastHold); helps != b.helps {
			b.hold = firstHold
		}
		b.helps, d = helps, b.hold
	case holding:
		next, d = passingToHelp, passing
	}
	b.state, b.until, b.from, b.since = next, now.Add(d), frames, now
}
