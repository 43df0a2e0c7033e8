package diff

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// The choices of Options.Frames.
const (
	FramesPackets = "packets" // compares coded bytes
	FramesPixels  = "pixels"  // decodes frames whose coded bytes differ
	FramesNone    = "none"
)

// Options are the choices of Compare.
type Options struct {
	// Frames selects how cameras are compared. "" is packets.
	Frames string
	// Threads is the number of episodes that are read at once; 0: one per processor.
	Threads int
	// Progress receives counts of episodes that were read. Calls are made one at a time.
	Progress func(done, total int64)
}

// comparison holds the state of one Compare.
type comparison struct {
	a, b        *side
	opt         Options
	shared      []sharedStream
	cameras     []sharedCamera
	signaturesA []signature
	signaturesB []signature
	report      *Report

	mu          sync.Mutex
	done, total int64
}

// sharedStream is a stream of both datasets, possibly under two keys.
type sharedStream struct {
	a, b     *stream
	inA, inB int // numbers in side.streams
}

// sharedCamera is a camera of both datasets, possibly under two keys.
type sharedCamera struct{ a, b *robocache.Feature }

// Compare reports how dataset b differs from dataset a. An episode that cannot be read is an error.
func Compare(ctx context.Context, a, b robocache.Dataset, opt Options) (*Report, error) {
	opt.Frames = cmp.Or(opt.Frames, FramesPackets)
	if !slices.Contains([]string{FramesPackets, FramesPixels, FramesNone}, opt.Frames) {
		return nil, robocache.Misuse("diff", nil, "%s", robocache.Option("frames")).
			Expected("packets, pixels or none", opt.Frames)
	}
	if opt.Threads <= 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	c := &comparison{a: newSide(ctx, a), b: newSide(ctx, b), opt: opt, report: &Report{
		A: describeSide(a.Info()), B: describeSide(b.Info()), Frames: opt.Frames,
		Metadata: []Property{}, Features: []Feature{}, Statistics: []Statistic{},
		Added: []Episode{}, Removed: []Episode{}, Moved: []Move{}, Changed: []Change{},
		Notes: []string{},
	}}
	numA, numB := a.Info().Episodes, b.Info().Episodes
	c.expect(numA + numB + min(numA, numB))
	var err error
	if c.signaturesA, err = c.signAll(ctx, c.a); err != nil {
		return nil, err
	}
	if c.signaturesB, err = c.signAll(ctx, c.b); err != nil {
		return nil, err
	}
	c.findShared()
	m := &matching{restA: allPositions(numA), restB: allPositions(numB)}
	m.matchEqual(c)
	if err := m.matchNear(ctx, c); err != nil {
		return nil, err
	}
	m.matchNumbers(c.a, c.b)
	slices.SortFunc(m.pairs, func(x, y pair) int { return cmp.Compare(x.a, y.a) })
	if err := c.findCameras(ctx, m.pairs); err != nil {
		return nil, err
	}
	if err := c.comparePairs(ctx, m.pairs); err != nil {
		return nil, err
	}
	if err := c.listUnmatched(ctx, m); err != nil {
		return nil, err
	}
	if err := c.compareInfo(ctx); err != nil {
		return nil, err
	}
	r := c.report
	r.Different = len(r.Metadata)+len(r.Features)+len(r.Statistics)+len(r.Added)+
		len(r.Removed)+len(r.Moved)+len(r.Changed) > 0
	return r, nil
}

// expect adds n episodes to the total of the progress.
func (c *comparison) expect(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(n)
}

// advance reports that one more episode was read.
func (c *comparison) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	if c.opt.Progress != nil {
		c.opt.Progress(c.done, c.total)
	}
}

// signAll returns the signatures of all episodes of a dataset.
func (c *comparison) signAll(ctx context.Context, s *side) ([]signature, error) {
	out := make([]signature, s.ds.Info().Episodes)
	return out, c.eachOf(ctx, len(out), func(ctx context.Context, i int) (err error) {
		out[i], err = s.sign(ctx, i)
		return err
	})
}

// isText reports whether the rows of a stream are text.
func (x *stream) isText() bool {
	return x.Kind == robocache.KindText || x.Kind == robocache.KindEvent
}

// findShared finds the streams of both datasets, by key or else by equal values, and computes the
// content of each episode from them. Numbers identify an episode: texts are used only if there are
// none.
func (c *comparison) findShared() {
	usedB := map[int]bool{}
	var onlyA []int
	for i, x := range c.a.streams {
		j := slices.IndexFunc(c.b.streams, func(y *stream) bool { return y.Key == x.Key })
		if j < 0 || c.b.streams[j].isText() != x.isText() {
			onlyA = append(onlyA, i)
			continue
		}
		usedB[j] = true
		c.shared = append(c.shared, sharedStream{x, c.b.streams[j], i, j})
	}
	for _, i := range onlyA {
		for j := range c.b.streams {
			if !usedB[j] && c.holdSameValues(i, j) {
				usedB[j] = true
				c.shared = append(c.shared, sharedStream{c.a.streams[i], c.b.streams[j], i, j})
				break
			}
		}
	}
	isNumeric := func(x sharedStream) bool { return !x.a.isText() }
	content := slices.Clone(c.shared)
	if slices.ContainsFunc(c.shared, isNumeric) {
		content = slices.DeleteFunc(content, func(x sharedStream) bool { return x.a.isText() })
	}
	fill := func(all []signature, number func(x sharedStream) int) {
		for e := range all {
			all[e].content, _ = digestOf(func(add func([]byte)) error {
				for _, x := range content {
					add(all[e].streams[number(x)][:])
				}
				return nil
			})
		}
	}
	fill(c.signaturesA, func(x sharedStream) int { return x.inA })
	fill(c.signaturesB, func(x sharedStream) int { return x.inB })
}

// holdSameValues reports whether stream i of A is stream j of B under another key: at least half of
// the episodes of the smaller dataset have equal values.
func (c *comparison) holdSameValues(i, j int) bool {
	x, y := c.a.streams[i], c.b.streams[j]
	if x.isText() != y.isText() || c.a.stream(y.Key) != nil || c.b.stream(x.Key) != nil {
		return false
	}
	valuesA := map[digest]bool{}
	for _, sig := range c.signaturesA {
		valuesA[sig.streams[i]] = true
	}
	delete(valuesA, digest{})
	equal := 0
	for _, sig := range c.signaturesB {
		if valuesA[sig.streams[j]] {
			equal++
		}
	}
	return equal > 0 && 2*equal >= min(len(c.signaturesA), len(c.signaturesB))
}

// comparePairs compares the matched episodes.
func (c *comparison) comparePairs(ctx context.Context, pairs []pair) error {
	changes := make([]*Change, len(pairs))
	err := c.eachOf(ctx, len(pairs), func(ctx context.Context, i int) (err error) {
		changes[i], err = c.comparePair(ctx, pairs[i])
		return err
	})
	if err != nil {
		return err
	}
	r := c.report
	for i, p := range pairs {
		a, b := c.a.ds.Info().EpisodeIndex(p.a), c.b.ds.Info().EpisodeIndex(p.b)
		if changes[i] != nil {
			r.Changed = append(r.Changed, *changes[i])
			r.Counts.Changed++
		}
		switch last := len(r.Moved) - 1; {
		case a == b:
			if changes[i] == nil {
				r.Counts.Equal++
			}
			continue
		case last >= 0 && r.Moved[last].follows(a, b):
			r.Moved[last].Count++
		default:
			r.Moved = append(r.Moved, Move{a, b, 1})
		}
		r.Counts.Moved++
	}
	return nil
}

// follows reports whether a matched episode continues the run.
func (m *Move) follows(a, b int64) bool {
	n := int64(m.Count)
	return m.A+n == a && m.B+n == b
}

// listUnmatched lists the added and the removed episodes.
func (c *comparison) listUnmatched(ctx context.Context, m *matching) error {
	describe := func(s *side, episodes []int) ([]Episode, error) {
		out := make([]Episode, 0, len(episodes))
		for _, e := range episodes {
			ep, err := s.ds.Episode(ctx, e)
			if err != nil {
				return nil, s.located(err, e, "")
			}
			tasks := append([]string{}, ep.Tasks...)
			out = append(out, Episode{s.ds.Info().EpisodeIndex(e), s.ds.Len(e), tasks})
		}
		return out, nil
	}
	var err error
	if c.report.Removed, err = describe(c.a, m.restA); err != nil {
		return err
	}
	if c.report.Added, err = describe(c.b, m.restB); err != nil {
		return err
	}
	c.report.Counts.Removed, c.report.Counts.Added = len(m.restA), len(m.restB)
	return nil
}
