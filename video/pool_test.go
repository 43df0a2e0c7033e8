package video

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// scripted is a backend whose frames are the keys of their packets. Frames are delivered in the
// order of show, delay packets late.
type scripted struct {
	delay  int
	hold   int // number of frames that a decoder holds
	show   func(key int64) int64
	fail   func(key int64) error // called by Send
	lose   func(key int64) bool  // reports whether a packet yields no frame
	mu     sync.Mutex
	opened []*scriptedDecoder
}

type scriptedDecoder struct {
	b                *scripted
	inside           []int64
	draining, closed bool
	sent             []int64
	flushes, drains  int
}

func (b *scripted) Name() string         { return "scripted" }
func (b *scripted) Version() string      { return "1" }
func (b *scripted) Supports(Codec) error { return nil }
func (b *scripted) NewDecoder(*SampleEntry) (Decoder, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &scriptedDecoder{b: b}
	b.opened = append(b.opened, d)
	if b.hold > 0 {
		return &holder{scriptedDecoder: d}, nil
	}
	return d, nil
}

// holder delivers frames when it has as many as its backend says, or after DeliverPending.
type holder struct {
	*scriptedDecoder
	giving bool
}

func (h *holder) DeliverPending() { h.giving = true }
func (h *holder) Flush()          { h.giving = false; h.scriptedDecoder.Flush() }
func (h *holder) Receive() (Frame, int64, bool, error) {
	if h.giving = len(h.inside) > 0 && (h.giving || len(h.inside) >= h.b.hold); !h.giving {
		return nil, 0, false, nil
	}
	f, key, ok, err := h.scriptedDecoder.Receive()
	h.giving = len(h.inside) > 0
	return f, key, ok, err
}

func (d *scriptedDecoder) Send(_ []byte, key int64) error {
	if d.draining {
		return errors.New("a packet after the drain")
	}
	d.sent = append(d.sent, key)
	if d.b.fail != nil {
		if err := d.b.fail(key); err != nil {
			return err
		}
	}
	if d.b.lose == nil || !d.b.lose(key) {
		d.inside = append(d.inside, key)
		slices.SortFunc(d.inside, func(a, b int64) int { return int(d.b.show(a) - d.b.show(b)) })
	}
	return nil
}

func (d *scriptedDecoder) Receive() (Frame, int64, bool, error) {
	if len(d.inside) == 0 || !d.draining && len(d.inside) <= d.b.delay {
		return nil, 0, false, nil
	}
	key := d.inside[0]
	d.inside = d.inside[1:]
	return nil, key, true, nil
}

func (d *scriptedDecoder) Drain() error       { d.draining = true; d.drains++; return nil }
func (d *scriptedDecoder) Flush()             { d.inside, d.draining = nil, false; d.flushes++ }
func (d *scriptedDecoder) MemoryBytes() int64 { return 1000 }
func (d *scriptedDecoder) Close()             { d.closed = true }

// withScripted registers a backend for one test. Its file has six frames without reordering, with a
// sync sample every third frame.
func withScripted(t *testing.T, b *scripted) *File {
	t.Helper()
	before := backend
	RegisterBackend(b)
	t.Cleanup(func() { RegisterBackend(before) })
	data, err := os.ReadFile(filepath.Join("ffmpeg", "testdata", "odd", "odd_99x57.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	lib := NewLibrary(
		func(context.Context, string) (robocache.Ranged, error) { return &memory{data: data}, nil },
		0,
	)
	f, err := lib.Acquire(context.Background(), "a.mp4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Release(); lib.Close() })
	if f.Index.NumFrames() != 6 || f.Index.Governing(5) != 3 {
		t.Fatalf("%d frames, frame 5 governed by %d", f.Index.NumFrames(), f.Index.Governing(5))
	}
	if b.show == nil {
		b.show = func(key int64) int64 { return key }
	}
	return f
}

func delivered(t *testing.T, p *Pool, f *File, set ...int) ([]int, error) {
	t.Helper()
	var got []int
	err := p.Decode(
		context.Background(),
		f,
		nil,
		Plan(f.Index, set),
		func(k int, _ Frame) error { got = append(got, k); return nil },
	)
	return got, err
}

func TestNoBackend(t *testing.T) {
	before := backend
	RegisterBackend(nil)
	defer RegisterBackend(before)
	if _, err := ActiveBackend(); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "cgo") {
		t.Errorf("%v", err)
	}
}

// Adjacent groups are one run of packets: no drain, no flush, each packet once.
func TestGroupsThatTouch(t *testing.T) {
	b := &scripted{}
	f := withScripted(t, b)
	p := NewPool(0)
	got, err := delivered(t, p, f, 0, 1, 2, 3, 4, 5)
	if err != nil || !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
		t.Fatalf("%v, %v", got, err)
	}
	d := b.opened[0]
	if !slices.Equal(d.sent, []int64{0, 1, 2, 3, 4, 5}) || d.flushes+d.drains != 0 {
		t.Errorf("sent %v, %d flushes, %d drains", d.sent, d.flushes, d.drains)
	}
	if s := p.Stats(); s.Packets != 6 || s.Delivered != 6 || s.Reads != 1 {
		t.Errorf("%+v", s)
	}
}

// A decoder that holds frames is notified after the last packet of a group. No further packet is
// sent, nothing is drained, and a caller that reads in order can continue.
func TestHolder(t *testing.T) {
	for _, hold := range []int{1, 2, 4, 99} {
		b := &scripted{hold: hold}
		f := withScripted(t, b)
		p := NewPool(0)
		for _, c := range []struct{ want, sent []int }{
			{[]int{4}, []int{3, 4}},
			{[]int{0}, []int{0}},
			{[]int{1}, []int{1}},
			{[]int{2, 3}, []int{2, 3}},
			{[]int{0, 2, 4, 5}, []int{0, 1, 2, 3, 4, 5}},
			{[]int{3}, []int{3}},
		} {
			before := 0
			if len(b.opened) > 0 {
				before = len(b.opened[0].sent)
			}
			got, err := delivered(t, p, f, c.want...)
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("%d held: %v, %v", hold, got, err)
			}
			var sent []int
			for _, k := range b.opened[0].sent[before:] {
				sent = append(sent, int(k))
			}
			if !slices.Equal(sent, c.sent) || b.opened[0].drains != 0 || len(b.opened) != 1 {
				t.Errorf(
					"%d held, %v wanted: sent %v, %d drains, %d opened",
					hold,
					c.want,
					sent,
					b.opened[0].drains,
					len(b.opened),
				)
			}
		}
	}
}

// A jump causes one drain and one flush, and starts at the governing sync sample.
func TestJump(t *testing.T) {
	b := &scripted{delay: 2}
	f := withScripted(t, b)
	p := NewPool(0)
	for _, k := range []int{4, 1} {
		if got, err := delivered(t, p, f, k); err != nil || !slices.Equal(got, []int{k}) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	d := b.opened[0]
	if !slices.Equal(d.sent, []int64{3, 4, 0, 1}) || d.flushes != 1 || d.drains != 2 {
		t.Errorf("sent %v, %d flushes, %d drains", d.sent, d.flushes, d.drains)
	}
	// Frames that are in a drained decoder can still be received.
	if got, err := delivered(t, p, f, 0); err != nil || !slices.Equal(got, []int{0}) {
		t.Fatalf("%v, %v", got, err)
	}
}

// A frame that was already delivered is decoded again from the sync sample at once.
func TestSameFrameAgain(t *testing.T) {
	b := &scripted{delay: 1}
	f := withScripted(t, b)
	p := NewPool(0)
	for _, k := range []int{0, 1, 1} {
		if got, err := delivered(t, p, f, k); err != nil || !slices.Equal(got, []int{k}) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if d := b.opened[0]; !slices.Equal(d.sent, []int64{0, 0, 1, 2, 0, 1}) {
		t.Errorf("sent %v", d.sent)
	}
}

// A failed decoder is closed and not reused. The error names file, ordinal and codec.
func TestFailedDecoderIsClosed(t *testing.T) {
	bad := true
	b := &scripted{}
	b.fail = func(key int64) error {
		if bad && key == 4 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	f := withScripted(t, b)
	p := NewPool(0)
	_, err := delivered(t, p, f, 5)
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["file"] != "a.mp4" || e.Where["frame"] != 5 ||
		e.Where["codec"] != "mpeg4" {
		t.Fatalf("%v", err)
	}
	if !b.opened[0].closed || p.Stats().Idle != 0 {
		t.Error("a failed decoder is kept")
	}
	bad = false
	if got, err := delivered(t, p, f, 5); err != nil || !slices.Equal(got, []int{5}) ||
		len(b.opened) != 2 {
		t.Errorf("%v, %v, %d opened", got, err, len(b.opened))
	}
}

// A packet without a frame is an error, never a neighbor's frame.
func TestMissingFrame(t *testing.T) {
	b := &scripted{lose: func(key int64) bool { return key == 4 }}
	f := withScripted(t, b)
	p := NewPool(0)
	got, err := delivered(t, p, f, 3, 4, 5)
	if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "frame 4") ||
		!slices.Equal(got, []int{3, 5}) {
		t.Errorf("%v, %v", got, err)
	}
}

// The contents of a decoder are only assumed. If the assumption is wrong, the plan is run from its
// start.
func TestNotInside(t *testing.T) {
	b := &scripted{delay: 2}
	f := withScripted(t, b)
	p := NewPool(0)
	if _, err := delivered(t, p, f, 0); err != nil {
		t.Fatal(err)
	}
	b.opened[0].inside = nil // its frames are lost
	if got, err := delivered(t, p, f, 1, 2); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
}

// A packet after the group, which is sent only to push its frames out, may be damaged or
// unreadable. The group has the same result as alone (video.V11).
func TestDamagedNeighbour(t *testing.T) {
	b := &scripted{delay: 1, fail: func(key int64) error {
		if key == 2 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	f := withScripted(t, b)
	p := NewPool(0)
	for k := range 2 {
		if got, err := delivered(t, p, f, k); err != nil || !slices.Equal(got, []int{k}) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if len(b.opened) != 2 || !b.opened[0].closed ||
		!slices.Equal(b.opened[0].sent, []int64{0, 0, 1, 2}) ||
		!slices.Equal(b.opened[1].sent, []int64{0, 1}) {
		t.Errorf("%d opened, sent %v", len(b.opened), b.opened[0].sent)
	}
	if _, err := delivered(t, p, f, 2); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "frame 2") {
		t.Errorf("the damaged one itself: %v", err)
	}

	b = &scripted{delay: 1}
	f = withScripted(t, b)
	end := f.Index.Sample(2).Offset
	f.Ranged = cutAt{f.Ranged, end}
	p = NewPool(0)
	for k := range 2 {
		if got, err := delivered(t, p, f, k); err != nil || !slices.Equal(got, []int{k}) {
			t.Fatalf("before the cut: %v, %v", got, err)
		}
	}
	if _, err := delivered(t, p, f, 2); !errors.Is(err, robocache.ErrTemporary) ||
		len(b.opened) != 1 {
		t.Errorf("behind the cut: %v, %d opened", err, len(b.opened))
	}
}

// cutAt is a Ranged that cannot be read from end on.
type cutAt struct {
	robocache.Ranged
	end int64
}

func (c cutAt) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) > c.end {
		return &robocache.Error{
			Class: robocache.ErrTemporary,
			Msg:   "timed out",
			Err:   context.DeadlineExceeded,
		}
	}
	return c.Ranged.ReadAt(ctx, p, off)
}

// The time-out of a store gets a location. The caller's own cancellation is returned unchanged.
func TestTimeoutHasItsPlace(t *testing.T) {
	f := withScripted(t, &scripted{})
	f.Ranged = cutAt{f.Ranged, 0}
	_, err := delivered(t, NewPool(0), f, 4)
	if !errors.Is(err, robocache.ErrTemporary) || !strings.Contains(err.Error(), "a.mp4") ||
		!strings.Contains(err.Error(), "frame 4") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewPool(0).Decode(ctx, f, nil, []Group{Plan(f.Index, []int{4})[0]}, nil); err !=
		context.Canceled {
		t.Errorf("%v", err)
	}
}

// A decoder is closed if deliver panics.
func TestPanicClosesTheDecoder(t *testing.T) {
	b := &scripted{}
	f := withScripted(t, b)
	p := NewPool(0)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = p.Decode(
			t.Context(),
			f,
			nil,
			[]Group{Plan(f.Index, []int{0})[0]},
			func(int, Frame) error { panic("receiver") },
		)
	}()
	if !b.opened[0].closed || p.Stats().Idle != 0 {
		t.Error("the decoder is still open")
	}
}

// huge is a Ranged that has only the head of a file and claims the rest.
type huge struct{ memory }

func (h *huge) Size() int64 { return 1 << 40 }

// Sizes that only a table claims are not allocated.
func TestPacketLimit(t *testing.T) {
	withScripted(t, &scripted{})
	h := &huge{memory{data: (&fake{samples: constant(3, 4), fixed: maxPacket + 1}).header()}}
	ix, err := ReadIndex(t.Context(), h, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	before := allocated()
	_, err = delivered(t, NewPool(0), &File{Path: "huge.mp4", Index: ix, Ranged: h}, 1)
	if !errors.Is(err, robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "huge.mp4") {
		t.Errorf("%v", err)
	}
	if grown := allocated() - before; grown > 1<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
}

// The budget counts bytes. The least recently used decoders above it are closed.
func TestPoolBudget(t *testing.T) {
	b := &scripted{}
	f := withScripted(t, b)
	p := NewPool(100 << 10) // one decoder with its buffer of 64 KiB
	err := p.Decode(
		context.Background(),
		f,
		nil,
		[]Group{Plan(f.Index, []int{0})[0]},
		func(int, Frame) error {
			_, err := delivered(t, p, f, 3)
			return err
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Opened != 2 || s.Evicted != 1 || s.Idle != 1 || s.IdleBytes > 100<<10 {
		t.Errorf("%+v", s)
	}
	if b.opened[0].closed || !b.opened[1].closed {
		t.Error("the wrong one went")
	}
	if err := p.Close(); err != nil || !b.opened[0].closed {
		t.Error("Close leaves a decoder")
	}
}
