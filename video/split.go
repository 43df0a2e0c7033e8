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

// Split decodes on a device or on the host. Frames are delivered from the device only if they are
// bit-identical to the host's, so the choice may depend on the load.
//
// The first group of each stream is decoded by both and compared. A stream is a sample entry; for
// VP9, whose packets carry the colors, it is a file. If planes or their description differ, or the
// device refuses, the stream is decoded on the host, and Stats gives the reason. A group that fails
// on the device is decoded again on the host. Exceptions are errors that are not about decoding:
// errors of a store, and a lost device (ErrTemporary), whose memory also holds the destinations of
// the frames.
//
// Safe for concurrent use. The caller must call Close.
type Split struct {
	host, device *Pool
	backend      DeviceBackend
	slots        chan struct{}
	wait         bool
	balance      helpBalance // used if wait is false

	mu      sync.Mutex
	streams map[string]*streamState

	fallbacks, compared atomic.Int64
}

// streamState is the state of one stream.
type streamState struct {
	path    string // path of one of its files
	codec   Codec
	proving sync.Mutex // held while the stream is compared

	// Guarded by Split.mu.
	state         proofState
	reason        string
	failuresInRow int // failed groups in a row
}

// proofState states whether the device may decode a stream.
type proofState uint8

const (
	unproven proofState = iota // not compared yet
	proven                     // the device's frames are identical to the host's
	hostOnly
)

const (
	// sessions is the number of concurrent groups per engine. While one is parsed, or its frames
	// are copied, others are decoded.
	sessions = 3
	// maxFailures is the number of failed groups in a row after which a stream is decoded on the
	// host.
	maxFailures = 3
	// provenFrames limits the frames of a group that are compared.
	provenFrames = 8
)

// NewSplit returns a Split over a device and a pool of the host. budget limits the device's idle
// decoders. If wait is set, groups wait for the device. Otherwise a group is decoded on the host
// while the device is busy, if that is faster (see helpBalance).
func NewSplit(host *Pool, b DeviceBackend, budget int64, wait bool) *Split {
	return &Split{
		host:    host,
		device:  NewPoolOf(b, budget),
		backend: b,
		slots:   slotsOf(b),
		wait:    wait,
		streams: map[string]*streamState{},
	}
}

// deviceSlots holds one set of slots per device. All users of the process share it.
var deviceSlots sync.Map

// slotsOf returns the slots of a device, and creates them at the first call.
func slotsOf(b DeviceBackend) chan struct{} {
	n := 1
	for _, c := range []Codec{H264, HEVC, VP9, AV1} {
		n = max(n, b.Engines(c))
	}
	c, _ := deviceSlots.LoadOrStore(b, make(chan struct{}, n*sessions))
	return c.(chan struct{})
}

// Slots returns the number of groups that the device decodes at once. A caller needs that many
// goroutines, in addition to those that decode on the host, to keep the device busy.
func (s *Split) Slots() int { return cap(s.slots) }

// Decode is like Pool.Decode, on the device or the host. core acquires a core of the host before
// the host decodes, and returns the function that releases it. A frame may be delivered twice if
// the device fails after it.
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
	// Each stream is compared separately, so the groups are split where the stream changes.
	isOther := func(g Group) bool { return entryOf(f, g) != entryOf(f, groups[0]) }
	if n := slices.IndexFunc(groups, isOther); n > 0 {
		if err := s.Decode(ctx, f, b, groups[:n], core, deliver); err != nil {
			return err
		}
		return s.Decode(ctx, f, b, groups[n:], core, deliver)
	}
	x := s.streamOf(f, groups[0])
	switch s.stateOf(x) {
	case proven:
		if !s.acquireSlot(ctx) {
			break // to the host
		}
		err := func() error {
			defer func() { <-s.slots }() // also if deliver panics
			return s.device.Decode(ctx, f, b, groups, deliver)
		}()
		s.updateBalance()
		if s.recordOutcome(ctx, x, err) {
			return err
		}
	case unproven:
		// While one caller compares the stream, the others decode on the host.
		if x.proving.TryLock() {
			err := func() error {
				defer x.proving.Unlock()
				return s.proveStream(ctx, x, f, b, groups[:1], core, deliver)
			}()
			if err != nil || len(groups) == 1 {
				return err
			}
			return s.Decode(ctx, f, b, groups[1:], core, deliver)
		}
	}
	defer core()()
	defer s.updateBalance()
	return s.host.Decode(ctx, f, b, groups, deliver)
}

// updateBalance passes the number of delivered frames to the balance.
func (s *Split) updateBalance() {
	if !s.wait {
		s.balance.advance(time.Now(), s.device.Stats().Delivered+s.host.Stats().Delivered)
	}
}

// acquireSlot acquires a slot of the device, and waits for it if necessary. It returns false if the
// host should decode the group, or if ctx is canceled.
func (s *Split) acquireSlot(ctx context.Context) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	if !s.wait && s.balance.hostHelps() {
		return false
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// recordOutcome records the result of a group on the device. It reports whether the result is
// final; otherwise the host decodes the group.
func (s *Split) recordOutcome(ctx context.Context, x *streamState, err error) bool {
	// These errors are not about decoding, so the host would not do better.
	isCanceled := ctx.Err() != nil && err != nil
	if isCanceled || errors.Is(err, robocache.ErrTemporary) ||
		errors.Is(err, robocache.ErrInternal) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		x.failuresInRow = 0
		return true
	}
	s.fallbacks.Add(1)
	if x.failuresInRow++; x.failuresInRow >= maxFailures ||
		errors.Is(err, robocache.ErrUnsupported) {
		x.state, x.reason = hostOnly, err.Error()
	}
	return false
}

// stateOf returns the state of a stream.
func (s *Split) stateOf(x *streamState) proofState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.state
}

// setState sets the state of a stream. reason states why it is hostOnly.
func (s *Split) setState(x *streamState, state proofState, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.state, x.reason = state, reason
}

// streamOf returns the state of a group's stream.
func (s *Split) streamOf(f *File, g Group) *streamState {
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
		x = &streamState{path: f.Path, codec: entry.Codec}
		if err := s.backend.Supports(entry.Codec); err != nil {
			x.state, x.reason = hostOnly, err.Error()
		}
		s.streams[key] = x
	}
	return x
}

// entryOf returns the number of a group's sample entry, or -1 if the group is outside the file.
func entryOf(f *File, g Group) int {
	if g.Start < 0 || g.Start >= f.Index.NumSamples() {
		return -1
	}
	return f.Index.entryOf(g.Start)
}

// proveStream decodes a group on the host and delivers its frames. It then decodes the group on the
// device and compares up to provenFrames frames. The stream becomes proven if they are identical,
// and hostOnly if they differ or the device cannot decode it. core acquires a core of the host, as
// in Decode.
func (s *Split) proveStream(
	ctx context.Context,
	x *streamState,
	f *File,
	b *Fetched,
	group []Group,
	core func() func(),
	deliver func(number int, pic Frame) error,
) error {
	if s.stateOf(x) != unproven { // another caller was first
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
		return err // nothing to compare; the next group may have frames
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
				return mismatchError(
					number,
					fmt.Sprintf("%+v", want.info),
					fmt.Sprintf("%+v", got.info),
				)
			case !bytes.Equal(got.planes, want.planes):
				return mismatchError(number, "the planes of the CPU decoder", "other planes")
			}
			return nil
		})
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed, robocache.ErrTemporary): // not an error of the stream
		return failed
	case failed != nil:
		s.setState(x, hostOnly, failed.Error())
	case len(seen) > 0:
		s.setState(x, hostOnly, "the device returned fewer frames than the CPU decoder")
	default:
		s.setState(x, proven, "")
	}
	return nil
}

// mismatchError returns the error for a frame of the device that is not identical to the host's.
func mismatchError(number int, want, got string) error {
	return robocache.Unsupported(opDecode, robocache.Where{"frame": number},
		"the device's frames of this stream differ from the CPU's").
		Expected(want, got)
}

// SplitStats reports where frames were decoded, and why some streams are not decoded on the device.
type SplitStats struct {
	Device string `json:"device"`     // name of the device
	GPU    int64  `json:"gpu_frames"` // frames delivered by the device
	CPU    int64  `json:"cpu_frames"` // frames delivered by the host
	// groups that failed on the device and were decoded on the CPU
	Failed int64         `json:"gpu_failed"`
	OnCPU  []StreamOnCPU `json:"on_cpu,omitempty"` // streams that are decoded on the CPU only
}

// StreamOnCPU is a stream that the device does not decode.
type StreamOnCPU struct {
	File   string `json:"file"` // one of the stream's files
	Codec  Codec  `json:"codec"`
	Reason string `json:"reason"`
}

// Stats returns where frames were decoded.
func (s *Split) Stats() SplitStats {
	r := SplitStats{
		Device: s.backend.Version(),
		GPU:    s.device.Stats().Delivered - s.compared.Load(),
		CPU:    s.host.Stats().Delivered,
		Failed: s.fallbacks.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.streams {
		if x.state == hostOnly {
			r.OnCPU = append(r.OnCPU, StreamOnCPU{x.path, x.codec, x.reason})
		}
	}
	slices.SortFunc(r.OnCPU, func(a, b StreamOnCPU) int { return cmp.Compare(a.File, b.File) })
	return r
}

// Device returns the work of the device's decoders.
func (s *Split) Device() PoolStats { return s.device.Stats() }

// Close closes the device's decoders.
func (s *Split) Close() error { return s.device.Close() }
