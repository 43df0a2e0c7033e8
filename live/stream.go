package live

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// sample is one row of a stream. Its memory is reused.
type sample struct {
	stamp, arrival int64
	isMissing      bool   // the row holds no value
	data           []byte // numbers, an encoded image, pixels or planes
	count          int    // entries of a ragged row
	text           string
	still          robocache.FrameRef // a still image, whose bytes are data
	pixels         robocache.Raw      // of still
	planes         video.PlaneInfo    // layout of data, if data holds decoded planes
	hasPlanes      bool
}

// bytes returns the memory that a sample occupies.
func (s *sample) bytes() int64 { return int64(cap(s.data)+len(s.text)) + sampleOverhead }

const sampleOverhead = 256

// streamBuffer holds the newest samples of one stream. Publishers append to the inbox; the observer
// moves samples from there to their places by timestamp.
type streamBuffer struct {
	contract.Stream
	horizon int64         // ns before a tick whose samples an observation may use
	budget  int64         // bytes of samples
	onNaN   options.OnNaN // what numbers that are not finite lead to

	mu        sync.Mutex
	inbox     []*sample
	unused    []*sample // memory for samples
	used      int64     // bytes of all samples
	waiting   int64     // bytes of the samples in the inbox
	counters  StreamStats
	hasSample bool
	newest    int64 // largest timestamp so far
	behind    int   // consecutive samples far behind newest

	// Owned by the observer.
	samples  []*sample // by timestamp
	stamps   []int64   // of samples
	arrivals []int64   // of samples
	arrived  []*sample // taken from the inbox
	// newest when they were taken
	newestTaken int64
}

// Limits of what a stream accepts.
const (
	// maxClockDifference is the largest difference between a timestamp and its arrival. Beyond it the
	// clocks are not synchronized, and a reader of recordings rejects the timestamps too.
	maxClockDifference = int64(time.Minute)
	// maxReorder is how far behind the newest timestamp a sample may be and still be late. After
	// stepSamples such samples in a row, the clock has been set back.
	maxReorder  = int64(time.Second)
	stepSamples = 3
)

// acquire returns memory for a sample. Caller must hold b.mu.
func (b *streamBuffer) acquire() *sample {
	n := len(b.unused)
	if n == 0 {
		return &sample{}
	}
	s := b.unused[n-1]
	b.unused = b.unused[:n-1]
	*s = sample{data: s.data[:0]}
	return s
}

// push appends a sample that fill completes. It returns an error if the sample does not fit.
func (b *streamBuffer) push(stamp, arrival int64, fill func(s *sample) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counters.Received++
	if arrival <= -maxTick || arrival >= maxTick {
		b.counters.Rejected++
		return robocache.Malformed("live", robocache.Where{"stream": b.Key},
			"an arrival out of range").Expected("within ±2^61 ns", strconv.FormatInt(arrival, 10))
	}
	if d := stamp - arrival; d > maxClockDifference || d < -maxClockDifference {
		b.counters.Rejected++
		return robocache.Malformed("live", robocache.Where{"stream": b.Key},
			"the timestamp is far from its arrival").
			Expected("at most 60 s", time.Duration(d).String()).
			WithHint("Synchronize the clocks of the robot and this machine, or push with both times.")
	}
	s := b.acquire()
	s.stamp, s.arrival = stamp, arrival
	if err := fill(s); err != nil {
		b.counters.Rejected++
		b.unused = append(b.unused, s)
		return robocache.At(err, robocache.Where{"stream": b.Key})
	}
	b.countOrder(s)
	b.used += s.bytes()
	b.waiting += s.bytes()
	b.inbox = append(b.inbox, s)
	drop := 0
	for ; b.waiting > b.budget/2 && drop < len(b.inbox)-1; drop++ {
		b.counters.Dropped++
		b.waiting -= b.inbox[drop].bytes()
		b.releaseLocked(b.inbox[drop])
	}
	b.inbox = slices.Delete(b.inbox, 0, drop)
	return nil
}

// countOrder counts a sample that is not the newest, and notices a clock that was set back. Caller
// must hold b.mu.
func (b *streamBuffer) countOrder(s *sample) {
	c := &b.counters
	c.noteTimes(s)
	switch {
	case !b.hasSample || s.stamp > b.newest:
		b.hasSample, b.newest, b.behind = true, s.stamp, 0
		return
	case s.stamp == b.newest:
		c.Repeated++
		return
	}
	c.Late++
	if s.stamp > b.newest-maxReorder {
		b.behind = 0
		return
	}
	if b.behind++; b.behind == stepSamples {
		c.ClockSteps++
		b.newest, b.behind = s.stamp, 0
	}
}

// releaseLocked makes the memory of a sample available. Caller must hold b.mu.
func (b *streamBuffer) releaseLocked(s *sample) {
	b.used -= s.bytes()
	if len(b.unused) < 64 {
		b.unused = append(b.unused, s)
	}
}

// takeInbox takes the samples that arrived since the last call. Only the observer calls it. Caller
// must hold b.mu.
func (b *streamBuffer) takeInbox() {
	b.arrived, b.inbox = b.inbox, b.arrived[:0]
	b.waiting = 0
	b.newestTaken = b.newest
}

// placeSamples moves the taken samples to their places, and forgets those that no observation at or
// after now can use. Only the observer calls it.
func (b *streamBuffer) placeSamples(now int64) {
	b.mu.Lock()
	newest, forget := b.newestTaken, b.expired(now)
	for _, s := range b.samples[:forget] {
		b.releaseLocked(s)
	}
	b.mu.Unlock()
	b.samples = slices.Delete(b.samples, 0, forget)
	b.stamps = slices.Delete(b.stamps, 0, forget)
	b.arrivals = slices.Delete(b.arrivals, 0, forget)
	for _, s := range b.arrived {
		k := len(b.samples)
		for k > 0 && b.stamps[k-1] > s.stamp {
			k--
		}
		b.samples = slices.Insert(b.samples, k, s)
		b.stamps = slices.Insert(b.stamps, k, s.stamp)
		b.arrivals = slices.Insert(b.arrivals, k, s.arrival)
	}
	// After a step back of the clock, timestamps beyond the newest one are of the old clock.
	for n := len(b.stamps); n > 0 && b.stamps[n-1] > newest; n-- {
		b.mu.Lock()
		b.releaseLocked(b.samples[n-1])
		b.mu.Unlock()
		b.samples, b.stamps, b.arrivals = b.samples[:n-1], b.stamps[:n-1], b.arrivals[:n-1]
	}
}

// keptBehind is the number of samples behind the horizon that are kept: interpolation and
// extrapolation need two distinct timestamps there (align.A8).
const keptBehind = 8

// expired returns how many of the oldest samples no observation at or after now needs, or exceed the
// budget. Caller must hold b.mu.
func (b *streamBuffer) expired(now int64) int {
	// A step of a window uses what had arrived at its own tick, so late samples stay longer.
	k, oldest := 0, now-b.horizon
	for k < len(b.stamps) && b.stamps[k] < oldest && b.arrivals[k] <= oldest {
		k++
	}
	k = max(k-keptBehind, 0)
	used := b.used - b.waiting
	for _, s := range b.samples[:k] {
		used -= s.bytes()
	}
	for ; used > b.budget/2 && k < len(b.samples)-1; k++ {
		used -= b.samples[k].bytes()
		b.counters.Dropped++
	}
	return k
}

// newestAt returns the newest sample that had arrived at now, or nil.
func (b *streamBuffer) newestAt(now int64) *sample {
	for k := len(b.samples) - 1; k >= 0; k-- {
		if b.arrivals[k] <= now {
			return b.samples[k]
		}
	}
	return nil
}

// dropSample forgets a sample that cannot be decoded. Only the observer calls it.
func (b *streamBuffer) dropSample(k int) {
	b.mu.Lock()
	b.counters.Rejected++
	b.releaseLocked(b.samples[k])
	b.mu.Unlock()
	b.samples = slices.Delete(b.samples, k, k+1)
	b.stamps, b.arrivals = slices.Delete(b.stamps, k, k+1), slices.Delete(b.arrivals, k, k+1)
}

// resetLocked forgets all samples. Only the observer calls it. Caller must hold b.mu.
func (b *streamBuffer) resetLocked() {
	for _, s := range b.inbox {
		b.releaseLocked(s)
	}
	b.inbox, b.waiting, b.hasSample = b.inbox[:0], 0, false
	for _, s := range b.samples {
		b.releaseLocked(s)
	}
	b.samples, b.stamps, b.arrivals = b.samples[:0], b.stamps[:0], b.arrivals[:0]
	b.newest, b.behind, b.counters.Delays = 0, 0, delayStats{}
}
