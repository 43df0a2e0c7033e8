package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Coalesce covers every range, keeps the order, joins only over small gaps, and respects its limit.
func TestCoalesce(t *testing.T) {
	for _, c := range []struct{ in, want []Range }{
		{nil, nil},
		{[]Range{{5, 0}}, nil},
		{[]Range{{0, 10}, {10, 10}}, []Range{{0, 20}}},
		{[]Range{{30, 10}, {0, 10}}, []Range{{0, 40}}}, // gap 20
		{[]Range{{0, 10}, {31, 10}}, []Range{{0, 10}, {31, 10}}},
		{[]Range{{0, 60}, {60, 50}}, []Range{{0, 60}, {60, 50}}}, // 110 > 100
		{[]Range{{0, 500}, {400, 50}, {520, 10}}, []Range{{0, 500}, {520, 10}}},
		{[]Range{{0, 90}, {50, 60}}, []Range{{0, 90}, {50, 60}}},
		{[]Range{{7, 3}, {7, 9}, {7, 3}}, []Range{{7, 9}}},
	} {
		if got := Coalesce(slices.Clone(c.in), 20, 100); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		in := make([]Range, rng.IntN(20))
		for i := range in {
			in[i] = Range{rng.Int64N(300), rng.Int64N(30)}
		}
		got := Coalesce(slices.Clone(in), 5, 60)
		for _, r := range in {
			if r.Len > 0 &&
				!slices.ContainsFunc(
					got,
					func(g Range) bool { return g.Off <= r.Off && r.endOffset() <= g.endOffset() },
				) {
				t.Fatalf("%v: %v is in none of %v", in, r, got)
			}
		}
		for i, g := range got {
			if g.Len > 60 || i > 0 && g.Off <= got[i-1].Off {
				t.Fatalf("%v: %v", in, got)
			}
		}
	}
}

// patchy is a Ranged with unreadable bytes.
type patchy struct {
	robocache.Ranged
	bad   []Range
	reads atomic.Int64
}

func (c *patchy) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.reads.Add(1)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, r := range c.bad {
		if off < r.endOffset() && r.Off < off+int64(len(p)) {
			return &robocache.Error{Class: robocache.ErrTemporary, Msg: "bad bytes"}
		}
	}
	return c.Ranged.ReadAt(ctx, p, off)
}

// outcome returns the frames of a group and its error as text.
func outcome(decode func(deliver func(int, Frame) error) error) string {
	var got []int
	err := decode(func(k int, _ Frame) error { got = append(got, k); return nil })
	return fmt.Sprint(got, " ", err)
}

// longFile returns a scripted file of n frames with a sync sample every gop frames. With lag, the
// decode order differs from the presentation order.
func longFile(t *testing.T, b *scripted, n, gop, lag int) *File {
	t.Helper()
	withScripted(t, b)
	fk := &fake{perChunk: 4}
	for d := range n {
		s := fakeSample{size: uint32(50 + d*7%90), delta: 512, sync: d%gop == 0}
		if lag > 0 { // a GOP of I P b P b …: each P is presented after the b that follows it
			switch i := d % gop; {
			case i == 0:
				s.shift = 512
			case i%2 == 1 && i+1 < gop:
				s.shift = 1024
			case i%2 == 0:
				s.shift = 0
			default:
				s.shift = 512
			}
		}
		fk.samples = append(fk.samples, s)
	}
	data := fk.bytes()
	lib := NewLibrary(
		func(context.Context, string) (robocache.Ranged, error) { return &memory{data: data}, nil },
		0,
	)
	f, err := lib.Acquire(t.Context(), "long.mp4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Release(); lib.Close() })
	return f
}

// Parts of a failed read that share bytes are read concurrently. They must not write to the same
// memory.
func TestPartsOwnTheirMemory(t *testing.T) {
	b := &Fetched{ranges: []Range{{10, 30}, {0, 20}, {20, 40}, {60, 10}, {10, 30}}}
	parts := b.splitPiece(fetchedPiece{data: make([]byte, 70)})
	if len(parts) != 4 {
		t.Fatalf("%d parts of 4 reads", len(parts))
	}
	for i := range parts {
		for k := range parts[i].data {
			parts[i].data[k] = byte(i + 1)
		}
	}
	for i, p := range parts {
		for k, v := range p.data {
			if v != byte(i+1) {
				t.Fatalf(
					"byte %d of the part at %d was written by the part at %d",
					k,
					p.off,
					parts[v-1].off,
				)
			}
		}
	}
}

// A group has the same frames and the same error with Fetch and with Decode alone, whatever was
// fetched together, whatever fails, and wherever decoders continue. The test uses random files,
// faults, plans and orders, on pools that are reused.
func TestFetchedEqualsDecode(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 60
	}
	failed, shared, resumed := 0, 0, int64(0)
	for seed := range runs {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		lag := rng.IntN(2)
		b := &scripted{delay: rng.IntN(3) * lag}
		n, gop := 40+rng.IntN(60), 1+rng.IntN(12)
		badPacket, lost := int64(-1), int64(-1)
		if rng.IntN(3) == 0 {
			badPacket = rng.Int64N(int64(n))
		}
		if rng.IntN(3) == 0 {
			lost = rng.Int64N(int64(n))
		}
		b.fail = func(key int64) error {
			if key == badPacket {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		b.lose = func(key int64) bool { return key == lost }
		f := longFile(t, b, n, gop, lag)
		b.show = func(key int64) int64 { return f.Index.Sample(int(key)).PTS }
		if rng.IntN(2) == 0 {
			s := f.Index.Sample(rng.IntN(n))
			f.Ranged = &patchy{Ranged: f.Ranged, bad: []Range{{s.Offset + int64(s.Size)/2, 1}}}
		}
		plain, ahead := NewPool(0), NewPool(0)
		for range 6 {
			set := make([]int, 1+rng.IntN(8))
			from := rng.IntN(n)
			for i := range set {
				if rng.IntN(2) == 0 {
					set[i] = min(from+i, n-1)
				} else {
					set[i] = rng.IntN(n)
				}
			}
			groups := Plan(f.Index, set)
			fetched, err := Fetch(t.Context(), f, groups)
			if err != nil {
				t.Fatal(err)
			}
			if len(fetched.pieces) < len(groups) {
				shared++
			}
			for _, i := range rng.Perm(len(groups)) {
				if rng.IntN(2) == 0 {
					i = len(groups) - 1
				}
				g := groups[i]
				want := outcome(
					func(d func(int, Frame) error) error {
						return plain.Decode(t.Context(), f, nil, []Group{g}, d)
					},
				)
				got := outcome(
					func(d func(int, Frame) error) error {
						return ahead.Decode(t.Context(), f, fetched, []Group{g}, d)
					},
				)
				if got != want {
					t.Fatalf("seed %d: group %+v: %s, Decode gives %s", seed, g, got, want)
				}
				if !strings.HasSuffix(want, "<nil>") {
					failed++
				}
			}
			fetched.Release()
		}
		resumed += ahead.Stats().Continued
		if s := ahead.Stats(); s.BytesNeeded == 0 || s.Reads == 0 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
	}
	if failed < runs/10 || shared < runs/10 || resumed < int64(runs)/10 {
		t.Errorf(
			"%d groups failed, %d fetches shared reads, %d groups continued: "+
				"too few for this test",
			failed,
			shared,
			resumed,
		)
	}
}

// Decoding after a Fetch reads nothing but failed packets, also if later packets push frames out.
func TestFetchedReadsNothingMore(t *testing.T) {
	b := &scripted{delay: 1}
	f := longFile(t, b, 60, 6, 1)
	b.show = func(key int64) int64 { return f.Index.Sample(int(key)).PTS }
	c := &patchy{Ranged: f.Ranged}
	f.Ranged = c
	p := NewPool(0)
	for k := 0; k < 59; k += 2 {
		groups := Plan(f.Index, []int{k, k + 1})
		fetched, err := Fetch(t.Context(), f, groups)
		if err != nil {
			t.Fatal(err)
		}
		before := c.reads.Load()
		for _, g := range groups {
			if err := p.Decode(
				t.Context(),
				f,
				fetched,
				[]Group{g},
				func(int, Frame) error { return nil },
			); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.reads.Load() - before; n != 0 {
			t.Fatalf("frame %d: %d reads while decoding", k, n)
		}
		fetched.Release()
	}
	if s := p.Stats(); s.Reads != 30 || s.BytesRead < s.BytesNeeded/2 || s.Continued == 0 {
		t.Errorf("%+v", s)
	}
}

// A failed read of several groups is repeated for each group. Undamaged groups succeed, the others
// have their own errors.
func TestFetchIsolates(t *testing.T) {
	b := &scripted{}
	f := longFile(t, b, 30, 3, 0)
	s := f.Index.Sample(10)
	f.Ranged = &patchy{Ranged: f.Ranged, bad: []Range{{s.Offset, 1}}}
	groups := Plan(f.Index, []int{1, 10, 20, 25})
	fetched, err := Fetch(t.Context(), f, groups)
	if err != nil {
		t.Fatal(err)
	}
	defer fetched.Release()
	p := NewPool(0)
	for _, g := range groups {
		err := p.Decode(t.Context(), f, fetched, []Group{g}, func(int, Frame) error { return nil })
		if bad := g.Ordinals[0] == 10; bad != (err != nil) || bad &&
			(!errors.Is(err, robocache.ErrTemporary) ||
				!strings.Contains(err.Error(), "long.mp4") ||
				!strings.Contains(err.Error(), "frame 10")) {
			t.Errorf("group %+v: %v", g, err)
		}
	}
}

// Packets of another file, and released packets, are reported as misuse. The caller's own
// cancellation is returned unchanged, and nothing is kept.
func TestFetchMisuse(t *testing.T) {
	b := &scripted{}
	f, other := longFile(t, b, 12, 3, 0), longFile(t, b, 12, 3, 0)
	g := Plan(f.Index, []int{4})
	p := NewPool(0)
	none := func(int, Frame) error { return nil }
	fetched, err := Fetch(t.Context(), f, g)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Decode(t.Context(), other, fetched, []Group{g[0]}, none); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	fetched.Release()
	fetched.Release()
	if err := p.Decode(t.Context(), f, fetched, []Group{g[0]}, none); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := p.Decode(t.Context(), f, nil, []Group{g[0]}, none); err != nil {
		t.Error("without any:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(ctx, f, g); err != context.Canceled {
		t.Error(err)
	}
	// Invalid groups are ignored by Fetch, because Decode reports them.
	wild := []Group{
		{Start: -1, End: 3, Ordinals: []int{1}},
		{Start: 5, End: 99, Ordinals: []int{5}},
		{Start: 3, End: 2, Ordinals: []int{2}},
		{},
	}
	if fetched, err = Fetch(t.Context(), f, wild); err != nil || fetched.Bytes() != 0 {
		t.Error(fetched, err)
	}
	for _, w := range wild {
		want := outcome(
			func(d func(int, Frame) error) error {
				return p.Decode(t.Context(), f, nil, []Group{w}, d)
			},
		)
		if got := outcome(
			func(d func(int, Frame) error) error {
				return p.Decode(t.Context(), f, fetched, []Group{w}, d)
			},
		); got != want {
			t.Errorf("%+v: %s, want %s", w, got, want)
		}
	}
}

// Sizes that only a table claims are not allocated. Packets beyond the limit of one Fetch are read
// when they are decoded.
func TestFetchBounds(t *testing.T) {
	withScripted(t, &scripted{})
	h := &huge{memory{data: (&fake{samples: constant(3, 4), fixed: maxPacket + 1}).header()}}
	ix, err := ReadIndex(t.Context(), h, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f := &File{Path: "huge.mp4", Index: ix, Ranged: h}
	groups := Plan(ix, []int{0, 1, 2})
	before := allocated()
	fetched, err := Fetch(t.Context(), f, groups)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewPool(0).Decode(t.Context(), f, fetched, []Group{groups[0]}, nil); !errors.Is(err,
		robocache.ErrResourceLimit) {
		t.Error(err)
	}
	if grown := allocated() - before; grown > 1<<20 || fetched.Bytes() != 0 {
		t.Errorf("%d bytes allocated, %d held", grown, fetched.Bytes())
	}
	h = &huge{memory{data: (&fake{samples: constant(9, 1), fixed: 20 << 20}).header()}}
	if ix, err = ReadIndex(t.Context(), h, Limits{}); err != nil {
		t.Fatal(err)
	}
	f = &File{Path: "large.mp4", Index: ix, Ranged: zeros{h}}
	groups = Plan(ix, []int{0, 1, 2, 3, 4, 5, 6, 7, 8})
	if fetched, err = Fetch(t.Context(), f, groups); err != nil || fetched.Bytes() > 64<<20 ||
		fetched.Bytes() < 60<<20 {
		t.Error(fetched.Bytes(), err)
	}
	if n := FetchBytes(f, groups[0]); n != 20<<20 {
		t.Errorf("FetchBytes gives %d", n)
	}
	p := NewPool(0)
	for _, g := range groups {
		if err := p.Decode(
			t.Context(),
			f,
			fetched,
			[]Group{g},
			func(int, Frame) error { return nil },
		); err != nil {
			t.Error(err)
		}
	}
	fetched.Release()
}

// zeros is a file of zeros.
type zeros struct{ robocache.Ranged }

func (zeros) ReadAt(context.Context, []byte, int64) error { return nil }

// Goroutines decode concurrently from one Fetched, and a Fetch allocates little.
func TestFetchedTogether(t *testing.T) {
	b := &scriptedMany{}
	before := backend
	RegisterBackend(b)
	t.Cleanup(func() { RegisterBackend(before) })
	f := longFile(t, &scripted{}, 300, 2, 0)
	RegisterBackend(b)
	all := make([]int, 300)
	for i := range all {
		all[i] = i
	}
	groups := Plan(f.Index, all)
	p := NewPool(0)
	var seen [300]atomic.Int64
	for range 20 {
		fetched, err := Fetch(t.Context(), f, groups)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < len(groups); i += 4 {
					if err := p.Decode(
						t.Context(),
						f,
						fetched,
						[]Group{groups[i]},
						func(k int, _ Frame) error { seen[k].Add(1); return nil },
					); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		fetched.Release()
	}
	for k := range seen {
		if seen[k].Load() != 20 {
			t.Fatalf("frame %d came %d times", k, seen[k].Load())
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		fetched, err := Fetch(t.Context(), f, groups[:50])
		if err != nil {
			t.Fatal(err)
		}
		fetched.Release()
	}); n > 12 {
		t.Errorf("%v allocations a Fetch of 50 groups", n)
	}
}

// scriptedMany creates independent decoders, for several goroutines.
type scriptedMany struct{}

func (scriptedMany) Name() string         { return "scripted" }
func (scriptedMany) Version() string      { return "1" }
func (scriptedMany) Supports(Codec) error { return nil }
func (scriptedMany) NewDecoder(*SampleEntry) (Decoder, error) {
	return &scriptedDecoder{b: &scripted{show: func(key int64) int64 { return key }}}, nil
}

// Wrap decorates files that are opened later, and receives their paths. Remote reflects the file.
func TestWrapAndRemote(t *testing.T) {
	s := &shelf{data: (&fake{samples: constant(20, 5)}).bytes()}
	l := NewLibrary(s.Open, 0)
	defer l.Close()
	plain, err := l.Acquire(t.Context(), "a.mp4")
	if err != nil || plain.Remote() {
		t.Fatal(err)
	}
	var asked []string
	l.Wrap(func(path string, r robocache.Ranged) robocache.Ranged {
		asked = append(asked, path)
		return far{r}
	})
	held, err := l.Acquire(t.Context(), "a.mp4")
	if err != nil || held != plain {
		t.Fatal(err)
	}
	wrapped, err := l.Acquire(t.Context(), "b.mp4")
	if err != nil || !wrapped.Remote() || !slices.Equal(asked, []string{"b.mp4"}) {
		t.Error(err, asked)
	}
	for _, f := range []*File{plain, held, wrapped} {
		f.Release()
	}
	reads := l.Stats().Reads
	again, err := l.Acquire(t.Context(), "a.mp4")
	if err != nil || !again.Remote() || l.Stats().Reads != reads {
		t.Errorf("an idle file is not opened anew, or its index is read again: %v", err)
	}
	again.Release()
	if err := l.Close(); err != nil || s.open.Load() != 0 {
		t.Errorf("%v, %d open", err, s.open.Load())
	}
}

type far struct{ robocache.Ranged }

func (far) Remote() bool { return true }
