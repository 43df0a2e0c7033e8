package video

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Split decodes on a device what comes out there as on the host, and on the host what does not, or
// finds the device busy. The frames are the same wherever they are decoded, so that what is decoded
// where may go by the clock.
//
// The first group of each stream (a sample entry; of VP9, whose packets say the colours, a file) is
// decoded by both. Where planes, or what they mean, differ in a bit, or the device refuses, the
// stream stays on the host, and Stats says why. A group that fails on the device is decoded again
// on the host, unless what failed is no decoding: a store, or a device that is lost (ErrTemporary),
// which has the frames' places too.
type Split struct {
	host, device *Pool
	backend      DeviceBackend
	slots        chan struct{}
	wait         bool
	balance      balance // where it does not wait

	mu      sync.Mutex
	streams map[string]*stream

	fell, compared atomic.Int64
}

// stream is what is known of one.
type stream struct {
	path    string // of a file of it
	codec   Codec
	proving sync.Mutex

	// guarded by Split.mu
	state  proof
	reason string
	failed int // groups in a row
}

type proof uint8

const (
	unproven proof = iota
	same           // the device gives what the host does
	other
)

const (
	// sessions is how many groups an engine has at once: while one is parsed, or its frames are
	// copied, others are decoded.
	sessions = 3
	// failures in a row take a stream off the device.
	failures = 3
	// provenFrames bounds what of a group is compared.
	provenFrames = 8
)

// NewSplit puts a device beside a pool of the host. budget bounds its idle decoders. wait: a group
// waits for the device; else it is decoded on the host meanwhile, where that is faster (balance).
func NewSplit(host *Pool, b DeviceBackend, budget int64, wait bool) *Split {
	return &Split{
		host:    host,
		device:  NewPoolOf(b, budget),
		backend: b,
		slots:   slotsOf(b),
		wait:    wait,
		streams: map[string]*stream{},
	}
}

// slots are of a device, whoever uses it: one set for the process.
var slots sync.Map

func slotsOf(b DeviceBackend) chan struct{} {
	n := 1
	for _, c := range []Codec{H264, HEVC, VP9, AV1} {
		n = max(n, b.Engines(c))
	}
	c, _ := slots.LoadOrStore(b, make(chan struct{}, n*sessions))
	return c.(chan struct{})
}

// Slots is how many groups the device decodes at once: callers beyond the host's own that keep it
// busy.
func (s *Split) Slots() int { return cap(s.slots) }

// Decode is Pool.Decode on the device or the host. core takes a core of the host before it decodes,
// and gives what hands it back. A frame may be delivered twice, where the device failed behind it.
func (s *Split) Decode(
	ctx context.Context,
	f *File,
	b *Fetched,
	groups []Group,
	core func() func(),
	deliver func(number int, pic Frame) error,
) error {
	if len(groups) == 0 {
		return nil
	}
	// each stream has its own proof
	if n := slices.IndexFunc(
		groups,
		func(g Group) bool { return entryOf(f, g) != entryOf(f, groups[0]) },
	); n > 0 {
		if err := s.Decode(ctx, f, b, groups[:n], core, deliver); err != nil {
			return err
		}
		return s.Decode(ctx, f, b, groups[n:], core, deliver)
	}
	x := s.stream(f, groups[0])
	switch s.stateOf(x) {
	case same:
		if !s.take(ctx) {
			break
		}
		err := func() error {
			defer func() { <-s.slots }() // where deliver panics too
			return s.device.Decode(ctx, f, b, groups, deliver)
		}()
		s.tick()
		if s.noted(ctx, x, err) {
			return err
		}
	case unproven:
		if x.proving.TryLock() {
			err := func() error {
				defer x.proving.Unlock()
				return s.prove(ctx, x, f, b, groups[:1], core, deliver)
			}()
			if err != nil || len(groups) == 1 {
				return err
			}
			return s.Decode(ctx, f, b, groups[1:], core, deliver)
		}
	}
	defer core()()
	defer s.tick()
	return s.host.Decode(ctx, f, b, groups, deliver)
}

// tick tells the balance what was delivered.
func (s *Split) tick() {
	if !s.wait {
		s.balance.tick(time.Now(), s.device.Stats().Delivered+s.host.Stats().Delivered)
	}
}

// take takes a slot of the device, if it should be waited for, or one is free.
func (s *Split) take(ctx context.Context) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	if !s.wait && s.balance.helping() {
		return false
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// noted keeps how a group went on the device, and says whether that is its end.
func (s *Split) noted(ctx context.Context, x *stream, err error) bool {
	if ctx.Err() != nil && err != nil || errors.Is(err, robocache.ErrTemporary) ||
		errors.Is(err, robocache.ErrInternal) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		x.failed = 0
		return true
	}
	s.fell.Add(1)
	if x.failed++; x.failed >= failures || errors.Is(err, robocache.ErrUnsupported) {
		x.state, x.reason = other, err.Error()
	}
	return false
}

func (s *Split) stateOf(x *stream) proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.state
}

func (s *Split) settle(x *stream, state proof, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.state, x.reason = state, reason
}

// stream finds what is known of the stream of a group.
func (s *Split) stream(f *File, g Group) *stream {
	entry := SampleEntry{}
	if i := entryOf(f, g); i >= 0 {
		entry = f.Index.Entries()[i]
	}
	path := ""
	if entry.Codec == VP9 {
		path = f.Path
	}
	key := fmt.Sprintf("%v %s", entry, path)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.streams[key]
	if x == nil {
		x = &stream{path: f.Path, codec: entry.Codec}
		if err := s.backend.Supports(entry.Codec); err != nil {
			x.state, x.reason = other, err.Error()
		}
		s.streams[key] = x
	}
	return x
}

// entryOf is the number of a group's sample entry; -1 where the group lies outside of the file.
func entryOf(f *File, g Group) int {
	if g.Start < 0 || g.Start >= f.Index.NumSamples() {
		return -1
	}
	return f.Index.entryOf(g.Start)
}

// prove decodes a group on the host, for the caller, and then on the device, to compare.
func (s *Split) prove(
	ctx context.Context,
	x *stream,
	f *File,
	b *Fetched,
	group []Group,
	core func() func(),
	deliver func(number int, pic Frame) error,
) error {
	if s.stateOf(x) != unproven { // another was first
		return s.Decode(ctx, f, b, group, core, deliver)
	}
	type kept struct {
		info   PlaneInfo
		planes []byte
	}
	seen := map[int]kept{}
	keep := func(number int, pic Frame) (k kept, err error) {
		p, ok := pic.(PlanarFrame)
		if ok {
			k.info, ok = p.PlaneInfo()
		}
		if !ok {
			return k, robocache.Unsupported(
				opDecode,
				nil,
				"frames of pixel format %s cannot be compared",
				pic.PixelFormat(),
			)
		}
		k.planes = make([]byte, k.info.Bytes())
		return k, p.CopyPlanes(k.planes)
	}
	var failed error
	err := func() error {
		defer core()()
		return s.host.Decode(ctx, f, b, group, func(number int, pic Frame) error {
			if len(seen) < provenFrames && failed == nil {
				if seen[number], failed = keep(number, pic); failed != nil {
					delete(seen, number)
				}
			}
			return deliver(number, pic)
		})
	}()
	if err != nil || len(seen) == 0 && failed == nil {
		return err // nothing to compare with: the next group may have it
	}
	if failed == nil {
		failed = s.device.Decode(ctx, f, b, group, func(number int, pic Frame) error {
			s.compared.Add(1)
			want, ok := seen[number]
			if !ok {
				return nil
			}
			delete(seen, number)
			got, err := keep(number, pic)
			switch {
			case err != nil:
				return err
			case got.info != want.info:
				return differs(number, fmt.Sprintf("%+v", want.info), fmt.Sprintf("%+v", got.info))
			case !bytes.Equal(got.planes, want.planes):
				return differs(number, "the planes of the CPU's decoder", "others")
			}
			return nil
		})
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed, robocache.ErrTemporary): // says nothing of the stream
		return failed
	case failed != nil:
		s.settle(x, other, failed.Error())
	case len(seen) > 0:
		s.settle(x, other, "the device gave fewer frames than the CPU's decoder")
	default:
		s.settle(x, same, "")
	}
	return nil
}

func differs(number int, want, got string) error {
	return robocache.Unsupported(opDecode, robocache.Where{"frame": number}, "the device decodes this stream otherwise than the CPU").
		Expected(want, got)
}

// SplitStats says what was decoded where, and why not on the device.
type SplitStats struct {
	Device string `json:"device"`     // its name
	GPU    int64  `json:"gpu_frames"` // delivered
	CPU    int64  `json:"cpu_frames"` //
	// groups that the device failed at, decoded on the CPU
	Failed int64         `json:"gpu_failed"`
	OnCPU  []StreamOnCPU `json:"on_cpu,omitempty"` // streams that stay there
}

// StreamOnCPU is a stream that the device does not decode.
type StreamOnCPU struct {
	File   string `json:"file"` // one of the stream's
	Codec  Codec  `json:"codec"`
	Reason string `json:"reason"`
}

// Stats says what was decoded where.
func (s *Split) Stats() SplitStats {
	r := SplitStats{
		Device: s.backend.Version(),
		GPU:    s.device.Stats().Delivered - s.compared.Load(),
		CPU:    s.host.Stats().Delivered,
		Failed: s.fell.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.streams {
		if x.state == other {
			r.OnCPU = append(r.OnCPU, StreamOnCPU{x.path, x.codec, x.reason})
		}
	}
	slices.SortFunc(r.OnCPU, func(a, b StreamOnCPU) int { return cmp.Compare(a.File, b.File) })
	return r
}

// Device says what the device's decoders did.
func (s *Split) Device() PoolStats { return s.device.Stats() }

// Close closes the device's decoders.
func (s *Split) Close() error { return s.device.Close() }
