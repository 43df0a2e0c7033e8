package video

import (
	"sync"
	"time"
)

// Durations of the states of a balance. The hold time doubles from firstHold to lastHold as long as
// the decision stays the same.
const (
	settleTime = 1500 * time.Millisecond // decoders are created during this time
	drainTime  = 100 * time.Millisecond  // lets the work of the previous mode finish
	watchTime  = 300 * time.Millisecond
	firstHold  = 2 * time.Second
	lastHold   = 30 * time.Second
)

// worthHelp is the speedup that justifies the host's help. The help occupies cores that the
// training process may need.
const worthHelp = 1.05

// helpBalance decides whether the host decodes groups that a busy device has not started. It
// measures the frame rate with and without the host's help, and keeps the faster mode. Without a
// clear gain (for example because the consumer is the bottleneck) the device decodes alone. The
// frames are the same in both modes. Safe for concurrent use.
type helpBalance struct {
	mu           sync.Mutex
	state        uint8 // one of the states below
	stateEnd     time.Time
	framesBefore int64 // frames delivered before this state began
	stateStart   time.Time
	helpedRate   float64       // frames per second with the host's help
	helps        bool          // the last decision: the host's help is worth it
	hold         time.Duration // time for which the last decision is kept
}

// States, in order. After holding, the measurement starts again with the host's help.
const (
	beginning uint8 = iota
	passingToHelp
	watchingHelp
	passingToAlone
	watchingAlone
	holding
)

// hostHelps reports whether the host should decode groups now. It does so until its help has been
// measured, and later if the help was worth it.
func (b *helpBalance) hostHelps() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	measuresHelp := b.state <= watchingHelp
	return measuresHelp || b.state == holding && b.helps
}

// advance moves to the next state if the time of the current one is over. frames is the total
// number of delivered frames.
func (b *helpBalance) advance(now time.Time, frames int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stateEnd.IsZero() {
		b.stateEnd, b.hold = now.Add(settleTime), firstHold
	}
	if now.Before(b.stateEnd) {
		return
	}
	rate := float64(frames-b.framesBefore) / now.Sub(b.stateStart).Seconds()
	// The next state, and the time for which it lasts. The cases are the states that end now.
	next, duration := b.state+1, watchTime
	switch b.state {
	case beginning:
		duration = drainTime
	case watchingHelp:
		duration = drainTime
		b.helpedRate = rate
	case watchingAlone: // rate is that of the device alone
		helps := b.helpedRate > worthHelp*rate
		if helps == b.helps {
			b.hold = min(2*b.hold, lastHold)
		} else {
			b.hold = firstHold
		}
		b.helps = helps
		duration = b.hold
	case holding:
		next, duration = passingToHelp, drainTime
	}
	b.state = next
	b.stateStart, b.stateEnd = now, now.Add(duration)
	b.framesBefore = frames
}
