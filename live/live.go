package live

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Now stands for the present as a tick or an arrival.
const Now int64 = math.MinInt64

// Config configures a Live.
type Config struct {
	// MemoryBudget is the maximum size in bytes of the samples of all streams. The default is 1 GiB.
	MemoryBudget int64
}

// Live makes observations of a running robot. It is safe for concurrent use.
type Live struct {
	Contract *contract.Contract

	streams  []*streamBuffer // in the order of Contract.Streams
	byKey    map[string]*streamBuffer
	messages *messageDecoder // nil: no stream comes from messages
	arrived  chan struct{}   // has an element after a push
	clock    tickClock
	sources  sources
	// recording is held for reading while the samples of a message are added to a recording, so that
	// an observation sees all of them or none.
	recording sync.RWMutex

	mu       sync.Mutex // held by Observe
	dataset  *dataset
	observer *loader.Observer
	first    int64 // tick of the first observation; Now: none yet
	last     int64 // tick of the newest observation; Now: none yet
	isClosed atomic.Bool
	recorder atomic.Pointer[recorder] // nil: nothing is recorded
	task     atomic.Pointer[string]
	budget   int64
}

// Observation is what a policy sees at a tick.
type Observation struct {
	*loader.Batch       // one sample: the keys of the contract, and `<key>_is_pad`
	Tick          int64 // ns
	// Ages holds the age in ns of the newest sample of each stream that had arrived at the tick, in
	// the order of Contract.Streams; -1: there is none.
	Ages []int64
}

// Open returns a Live without samples. The caller must call Close.
func Open(ctx context.Context, c *contract.Contract, cfg Config) (*Live, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Live{
		Contract: c,
		byKey:    map[string]*streamBuffer{},
		arrived:  make(chan struct{}, 1),
		first:    Now,
		last:     Now,
	}
	budget := cfg.MemoryBudget
	if budget <= 0 {
		budget = 1 << 30
	}
	l.budget = budget
	for i := range c.Streams {
		s := &streamBuffer{
			Stream:  c.Streams[i],
			horizon: horizonOf(&c.Options, &c.Streams[i].Feature),
			budget:  max(budget/int64(len(c.Streams)), 1<<20),
			onNaN:   c.Options.OnNaN,
		}
		l.streams = append(l.streams, s)
		l.byKey[s.Key] = s
	}
	l.dataset = newDataset(l.streams)
	cfgOfLoader := c.Options
	cfgOfLoader.OnNaN = options.NaNAllow // Push checks the numbers
	cfgOfLoader.Threads = 1
	var err error
	if l.observer, err = loader.NewObserver(ctx, l.dataset, cfgOfLoader); err != nil {
		return nil, robocache.At(err, robocache.Where{"contract": "options"})
	}
	l.dataset.isReady = true
	if l.messages, err = newMessageDecoder(l); err != nil {
		l.observer.Close()
		return nil, err
	}
	return l, nil
}

// horizonOf returns how long before a tick the samples of a stream may be used, in ns.
func horizonOf(c *options.Config, f *robocache.Feature) int64 {
	a := c.Align
	var reach float64 // seconds before the tick of the first step of the window
	keys := []string{f.Key}
	for _, x := range c.DrawnKeys() {
		if slices.Contains(x.Streams, f.Key) {
			keys = append(keys, x.Key)
		}
	}
	for _, key := range keys {
		for _, d := range c.Deltas.Of(key) {
			reach = max(reach, -d)
		}
		for _, n := range c.Indices.Of(key) {
			reach = max(reach, -float64(n)/a.HZ.Float())
		}
	}
	if w := c.Native.Of(f.Key); w != nil {
		if times, err := w.Nanos(); err == nil && len(times) > 0 {
			reach = max(reach, -float64(slices.Min(times))/1e9)
		}
		if w.Span != nil {
			reach = max(reach, -w.Span[0])
		}
	}
	for _, v := range c.Vectors {
		for _, part := range v.Parts {
			rows := []int{}
			if part.Key == f.Key {
				rows = append(rows, v.Offsets()...)
			}
			if part.ReferenceKey() == f.Key {
				rows = append(rows, part.ReferenceRow)
			}
			for _, n := range rows {
				reach = max(reach, -float64(n)/a.HZ.Float())
			}
		}
	}
	shift := int64(a.Latency[f.Key].Fixed) + int64(a.Offset[f.Key])
	horizon := int64(reach*1e9) + int64(a.Delay.For(f.Key)) + int64(a.Window) + a.HZ.Nanos(2)
	return horizon + max(shift, -shift) + int64(max(a.MaxGap.For(f.Key), a.MaxAge.For(f.Key)))
}

// Observe returns the observation at a tick in ns, on the clock of the arrivals. The tick may be Now.
// If a stream has no sample yet, Observe waits for one until timeout has passed. into is an earlier
// observation whose memory is used again, or nil. The caller must call Release.
func (l *Live) Observe(
	ctx context.Context, tick int64, timeout time.Duration, into *Observation,
) (*Observation, error) {
	if err := l.awaitStreams(ctx, timeout); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed.Load() {
		return nil, errClosed()
	}
	if tick == Now {
		tick = l.tickNow()
	}
	if tick < l.last || tick <= -maxTick || tick >= maxTick {
		return nil, robocache.Misuse("live", robocache.Where{"tick": tick},
			"a tick before the last one, or out of range").
			WithHint("Call reset() before another episode.")
	}
	first := l.first
	if first == Now {
		first = tick
	}
	if err := l.takeSamples(tick); err != nil {
		return nil, err
	}
	o := into
	if o == nil {
		b, err := l.observer.Allocate()
		if err != nil {
			return nil, err
		}
		o = &Observation{Batch: b, Ages: make([]int64, len(l.streams))}
	}
	o.Tick, l.dataset.ticks[0] = tick, tick
	err := l.observer.Observe(tick, first, o.Batch)
	for err != nil && l.dropDamaged(err) {
		err = l.observer.Observe(tick, first, o.Batch)
	}
	if err != nil {
		if into == nil {
			o.Release()
		}
		return nil, robocache.At(err, robocache.Where{"tick": tick})
	}
	l.first, l.last = first, tick
	for i, s := range l.streams {
		o.Ages[i] = -1
		if newest := s.newestAt(tick); newest != nil {
			o.Ages[i] = tick - newest.stamp
		}
	}
	return o, l.recorder.Load().addDigest(o)
}

// tickNow returns the present time on the clock of the arrivals. If that clock was set back, an
// episode begins. A smaller step back, as between two publishers, gives the last tick again. Caller
// must hold l.mu.
func (l *Live) tickNow() int64 {
	tick := l.clock.now()
	if tick >= l.last {
		return tick
	}
	if tick > l.last-maxReorder {
		return l.last
	}
	l.first, l.last = Now, Now
	return tick
}

// maxTick bounds ticks and timestamps, so that sums with a horizon do not overflow.
const maxTick = 1 << 61

func errClosed() error { return robocache.Misuse("live", nil, "the Live is closed") }

// dropDamaged removes the image that err names, which could not be decoded, and counts it as
// rejected. The image before it is then the newest one. It returns false if err names no image.
// Caller must hold l.mu.
func (l *Live) dropDamaged(err error) bool {
	var e *robocache.Error
	if !errors.As(err, &e) || !robocache.Bad(err) {
		return false
	}
	key, _ := e.Where["stream"].(string)
	row, ok := e.Where["row"].(int)
	s := l.byKey[key]
	isImage := s != nil && (s.Kind == robocache.KindImage || s.Kind == robocache.KindVideo)
	if !ok || !isImage || row < 0 || row >= len(s.samples) {
		return false
	}
	s.dropSample(row)
	l.sources.note(err)
	return true
}

// takeSamples makes the samples that were pushed so far available to the observation at a tick.
// Publishers wait while it takes them, so that a recording has the tick in its place among the
// samples. Caller must hold l.mu.
func (l *Live) takeSamples(tick int64) error {
	if l.recorder.Load() != nil {
		l.recording.Lock()
		defer l.recording.Unlock()
	}
	for _, s := range l.streams {
		s.mu.Lock()
	}
	for _, s := range l.streams {
		s.takeInbox()
	}
	if text := l.task.Load(); text != nil {
		l.dataset.task = *text
	}
	err := l.recorder.Load().addTick(tick, l.dataset.task)
	for _, s := range l.streams {
		s.mu.Unlock()
	}
	for _, s := range l.streams {
		s.placeSamples(tick)
	}
	return err
}

// awaitStreams blocks until each stream has received a sample, or until timeout has passed.
func (l *Live) awaitStreams(ctx context.Context, timeout time.Duration) error {
	if timeout <= 0 || l.hasAllStreams() {
		return ctx.Err()
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for !l.hasAllStreams() {
		select {
		case <-l.arrived:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hasAllStreams reports whether each stream but the task has received a sample.
func (l *Live) hasAllStreams() bool {
	for _, s := range l.streams {
		s.mu.Lock()
		isEmpty := !s.hasSample
		s.mu.Unlock()
		if isEmpty && s.Key != "task" {
			return false
		}
	}
	return true
}

// Reset begins another episode: the next observation is the first one, and all samples are
// forgotten.
func (l *Live) Reset() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recorder.Load() != nil {
		l.recording.Lock()
		defer l.recording.Unlock()
	}
	l.first, l.last = Now, Now
	l.clock.reset()
	for _, s := range l.streams {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resetLocked()
	}
	if l.messages != nil {
		l.messages.forgetPackets()
	}
	return l.recorder.Load().addReset()
}

// SetTask sets the text of the key "task".
func (l *Live) SetTask(text string) { l.task.Store(&text) }

// Close ends the recording and releases all memory. Observations stay valid until their Release.
func (l *Live) Close() error {
	if l.isClosed.Swap(true) {
		return nil
	}
	l.mu.Lock()
	cancel := l.sources.cancel
	l.mu.Unlock()
	for _, stop := range cancel {
		stop()
	}
	l.sources.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observer.Close()
	if l.messages != nil {
		l.messages.forgetPackets()
	}
	return l.recorder.Load().finish()
}

// tickClock tells the time of the arrivals, which need not be that of this machine: a recording or a
// simulator has its own.
type tickClock struct {
	mu      sync.Mutex
	arrival int64     // newest arrival
	seen    time.Time // zero: nothing has arrived
	behind  int       // consecutive arrivals far behind the newest one
}

// note records an arrival.
func (c *tickClock) note(arrival int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen.IsZero() && arrival < c.arrival {
		if arrival > c.arrival-maxReorder {
			return
		}
		if c.behind++; c.behind < stepSamples {
			return
		}
	}
	c.arrival, c.seen, c.behind = arrival, time.Now(), 0
}

// reset forgets all arrivals.
func (c *tickClock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrival, c.seen, c.behind = 0, time.Time{}, 0
}

// now returns the newest arrival plus the time since then, or the time of this machine before the
// first arrival.
func (c *tickClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.IsZero() {
		return time.Now().UnixNano()
	}
	return c.arrival + int64(time.Since(c.seen))
}

// MaxAge returns the maximum age of a held sample of a stream in ns; 0: no limit.
func (l *Live) MaxAge(key string) int64 { return int64(l.Contract.Options.Align.MaxAge.For(key)) }
