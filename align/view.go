package align

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/kernel"
	"golang.org/x/sync/errgroup"
)

// ValidSuffix ends the key of the mask that View puts beside a stream: bool, one value a row.
const ValidSuffix = robocache.ValidSuffix

// ViewOptions are the choices of View that Config does not have.
type ViewOptions struct {
	// DropInvalid declares no masks: the caller leaves out all rows outside Complete.
	DropInvalid bool
	// Exact also reads the source to find masked rows, lost frames and quaternions without a
	// direction, which timestamps do not show. If Exact is false, each stream that may have such
	// rows gets a mask, and Complete ignores them.
	Exact bool
	// Rhythm takes the rhythm of each stream in each episode (robocache.LongestStep) for its
	// max_gap where Config says none, but for latched streams, texts and events: they hold until
	// the next.
	Rhythm bool
	// Ignore reports whether the caller writes nothing of a stream. Such a stream has no mask and
	// no findings, and Complete does not depend on it. nil ignores no stream.
	Ignore  func(f *robocache.Feature) bool
	Own     bool // Close closes the source too
	Threads int  // that read timestamps while the view is made; 0 = the number of CPUs
	// Episodes holds the positions of the episodes of a shard. All other episodes count as empty.
	// Masks holds further streams that have a mask.
	Episodes []int
	Masks    []string
}

// Viewed is a dataset on one grid.
type Viewed struct {
	src     robocache.Dataset
	cfg     Config
	opt     ViewOptions
	info    robocache.Info
	offered robocache.Capabilities
	kept    []robocache.Feature // the source's, in the order of the streams
	place   map[string]int      // key → its place in kept
	masks   map[string]int      // "<key>.valid" → the place of key
	lengths []int
	broken  []error // of the episodes that cannot be aligned
	gaps    []gaps  // of the streams
	// complete are the runs of rows at which every stream has a value, by episode.
	complete [][]RowRange

	layouts *lru.Cache[int, *layout]
}

// layout is what time decides about one episode: its rows, and where each stream's values come
// from.
type layout struct {
	a     *aligner
	times []int64
	plans []*kernel.Plan
	gaps  []gaps // of each stream
	// of the pseudo-feature "task": previous on the episode's own clock; made when it is asked for
	task func() (*kernel.Plan, error)
	size int64
}

const layoutBudget = 64 << 20

// RowRange is a half-open range of rows.
type RowRange struct{ From, To int }

// View gives a dataset whose streams all lie on the grid of cfg: rows, values and masks are those
// of Episode, made when they are asked for.
//
// Streams some of whose rows hold no value in some episode (beyond the data, in a gap, masked in
// the source, under slerp) are joined by a bool feature "<key>.valid". Frames and ragged rows are
// those of the row that the mode chooses. A row without a value is a missing frame, or a ragged row
// without entries, unless the configuration names the edge policy clamp. An episode that cannot be
// aligned has no rows and a finding. Reading it returns its error.
//
// All timestamps are read once here, because Len and Info.Frames follow from them. The source stays
// the caller's to close, without ViewOptions.Own.
func View(
	ctx context.Context,
	src robocache.Dataset,
	cfg Config,
	opt ViewOptions,
) (_ *Viewed, err error) {
	if cfg.Times != nil {
		return nil, robocache.Misuse(
			"align",
			nil,
			"a view of a dataset has a rate, not times of its own",
		).
			Expected("hz", "")
	}
	if slices.Contains(cfg.Keys, "task") {
		// The task is there for every dataset; as a stream it would only take part in the extent.
		cfg.Keys = slices.DeleteFunc(
			slices.Clone(cfg.Keys),
			func(k string) bool { return k == "task" },
		)
	}
	info := src.Info()
	if err := cfg.validate(info); err != nil {
		return nil, err
	}
	v := &Viewed{
		src:     src,
		cfg:     cfg,
		opt:     opt,
		info:    *info,
		place:   map[string]int{},
		masks:   map[string]int{},
		layouts: lru.New[int, *layout](layoutBudget),
	}
	probe := aligner{ctx: ctx, ds: src, cfg: cfg}
	v.kept = probe.selected(info)
	for _, f := range v.kept {
		if _, err := probe.choose(f); err != nil {
			return nil, err
		}
	}
	masked, err := v.scan(ctx)
	if err != nil {
		return nil, err
	}
	v.describe(masked)
	v.setCapabilities()
	return v, nil
}

// setCapabilities sets the capabilities: those of the source that do not depend on its rows and
// clocks, and ragged rows of the grid. Masks are streams of their own, and no video file or
// recording has the rows of the grid.
func (v *Viewed) setCapabilities() {
	v.offered = *v.src.Capabilities()
	c := &v.offered
	c.Origin, c.Recording = v.Origin, nil
	c.LeaseFrames, c.Valid, c.Rows, c.VideoStart, c.Lacks = nil, nil, nil, nil, nil
	c.Clocks, c.TimesBy = nil, nil
	if c.GatherRagged != nil {
		c.GatherRagged = v.GatherRagged
	}
}

// Capabilities returns those of the source that hold on the grid.
func (v *Viewed) Capabilities() *robocache.Capabilities { return &v.offered }

// scan lays out every episode once, for its length and for which streams need a mask.
func (v *Viewed) scan(ctx context.Context) (masked []bool, err error) {
	n := v.info.Episodes
	v.lengths = make([]int, n)
	v.broken = make([]error, n)
	v.gaps = make([]gaps, len(v.kept))
	masked = make([]bool, len(v.kept))
	v.complete = make([][]RowRange, n)
	threads := v.opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var work errgroup.Group
	work.SetLimit(threads)
	var mu sync.Mutex
	episodes := v.opt.Episodes
	for e := range n {
		if v.opt.Episodes == nil {
			episodes = append(episodes, e)
		}
	}
	for _, e := range episodes {
		work.Go(func() error {
			l, err := v.layout(ctx, e)
			isFatal := errors.Is(err, robocache.ErrTemporary) ||
				errors.Is(err, robocache.ErrInternal)
			if isFatal || ctx.Err() != nil { // no fault of the episode
				return err
			} else if err != nil {
				v.broken[e] = err
				return nil
			}
			v.lengths[e] = len(l.times)
			all := slices.Repeat([]uint8{1}, len(l.times))
			lacking := make([]bool, len(l.plans))
			for i := range l.plans {
				valid, err := v.validity(ctx, l, i)
				if err = cmp.Or(err, ctx.Err()); err != nil {
					return err
				}
				if v.ignores(i) {
					continue
				}
				lacking[i] = slices.Contains(valid, 0)
				for k, ok := range valid {
					all[k] &= ok
				}
			}
			v.complete[e] = spansOf(all)
			mu.Lock()
			defer mu.Unlock()
			for i := range l.plans {
				masked[i] = masked[i] || lacking[i]
				v.gaps[i].add(&l.gaps[i])
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return masked, err
	}
	return masked, nil
}

// validity returns which rows of an episode hold a value of a stream, as far as ViewOptions.Exact
// asks.
func (v *Viewed) validity(ctx context.Context, l *layout, i int) ([]uint8, error) {
	p, source := l.plans[i], &l.a.streams[i]
	if !v.opt.Exact || len(l.times) == 0 {
		return p.Valid, nil
	}
	a := newAligner(ctx, v.src, l.a.ep, v.cfg)
	valid := p.Valid
	err := crash.Func("align", func() error {
		f := &source.feature
		switch {
		case f.Kind == robocache.KindVideo,
			source.opt.Mode == Slerp && f.Kind == robocache.KindNumeric && !f.Ragged():
			stream, err := a.stream(source, p)
			if err != nil {
				return err
			}
			valid = stream.Valid
		case f.Masked:
			masked, err := a.masked(source, p)
			if err != nil {
				return err
			}
			valid = masked.Valid
		}
		return nil
	})()
	// Another error is ignored here: it is reported when the episode is read.
	if errors.Is(err, robocache.ErrInternal) || errors.Is(err, robocache.ErrTemporary) {
		return nil, err
	}
	return valid, nil
}

// ignores reports whether the caller writes nothing of stream i.
func (v *Viewed) ignores(i int) bool { return v.opt.Ignore != nil && v.opt.Ignore(&v.kept[i]) }

// spansOf returns the runs of rows that are marked, in order.
func spansOf(marked []uint8) (out []RowRange) {
	for i := 0; i < len(marked); i++ {
		if marked[i] == 0 {
			continue
		}
		from := i
		for i < len(marked) && marked[i] != 0 {
			i++
		}
		out = append(out, RowRange{from, i})
	}
	return out
}

// Complete returns the runs of rows of an episode at which every stream holds a value, in order.
func (v *Viewed) Complete(e int) []RowRange {
	if e < 0 || e >= len(v.complete) {
		return nil
	}
	return v.complete[e]
}

// describe makes the schema.
func (v *Viewed) describe(masked []bool) {
	v.info.FPS, v.info.Clock, v.info.Frames = v.cfg.HZ, "", 0
	v.info.Findings = slices.Clone(v.info.Findings)
	v.info.Features = nil
	for e, n := range v.lengths {
		v.info.Frames += int64(n)
		if err := v.broken[e]; err != nil {
			v.info.Findings = append(
				v.info.Findings,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "episode-not-aligned",
					Where:    robocache.Where{"episode": v.info.EpisodeIndex(e)},
					Message:  err.Error(),
				},
			)
		}
	}
	v.findGaps()
	probe := aligner{ds: v.src, cfg: v.cfg}
	for i, f := range v.kept {
		v.place[f.Key] = i
		s, _ := probe.choose(f)
		masked[i] = masked[i] ||
			!v.opt.Exact && !v.ignores(i) && (f.Masked || s.opt.Mode == Slerp) ||
			slices.Contains(v.opt.Masks, f.Key)
		if to, ok := v.cfg.DTypes[f.Key]; ok {
			f.DType = to
		}
		if s.opt.Mode == Sum {
			_, f.RelativeReason = f.RelativeChannels()
			f.Relative = s.summed
		} else if v.cfg.Relative[f.Key].None {
			f.Relative, f.RelativeReason = []int{}, ""
		}
		f.Clock, f.FPS, f.Masked, f.Default = "", v.cfg.HZ, false, false
		v.info.Features = append(v.info.Features, f)
	}
	if v.opt.DropInvalid {
		return
	}
	for i, f := range v.kept {
		// A stream of that name is the source's own, and stays.
		if key := f.Key + ValidSuffix; masked[i] && v.src.Info().Feature(key) == nil {
			v.masks[key] = i
			v.info.Features = append(
				v.info.Features,
				robocache.Feature{
					Key:   key,
					Kind:  robocache.KindNumeric,
					DType: robocache.Bool,
					Shape: []int{1},
					FPS:   v.cfg.HZ,
				},
			)
		}
	}
}

// layout finds or makes what time decides about an episode.
func (v *Viewed) layout(ctx context.Context, e int) (*layout, error) {
	if e < 0 || e >= v.info.Episodes {
		return nil, robocache.Misuse("align", robocache.Where{"position": e}, "").
			Expected("a position below "+strconv.Itoa(v.info.Episodes), strconv.Itoa(e))
	}
	l, err := v.layouts.Get(ctx, e, func() (*layout, int64, error) {
		l, err := v.lay(ctx, e)
		if err != nil {
			return nil, 0, err
		}
		return l, min(l.size, layoutBudget), nil // the newest is kept whatever it takes
	})
	return l, robocache.At(err, robocache.Where{"episode": v.info.EpisodeIndex(e)})
}

func (v *Viewed) lay(ctx context.Context, e int) (_ *layout, err error) {
	defer crash.Recover("align", &err)
	a := newAligner(ctx, v.src, e, v.cfg)
	times, err := a.prepare()
	if err != nil {
		return nil, err
	}
	l := &layout{a: a, times: times}
	for i := range a.streams {
		s := &a.streams[i]
		if v.byRhythm(s) {
			s.opt.MaxGap = robocache.LongestStep(a.clocks[s.clock])
		}
		p, err := a.plan(s, times)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": s.feature.Key})
		}
		l.plans = append(l.plans, p)
		l.gaps = append(l.gaps, gapsOf(a.clocks[s.clock], times, s.opt.MaxGap, p))
	}
	own, err := a.clock("task")
	if err != nil {
		return nil, err
	}
	l.task = sync.OnceValues(func() (*kernel.Plan, error) {
		return a.plan(&source{clock: own, opt: Options{Mode: Previous, Stream: "task"}}, times)
	})
	seen := map[*kernel.Plan]bool{}
	for _, p := range l.plans {
		seen[p] = true
	}
	l.size = int64(len(l.times))*(8+planBytes(Previous)) + 4096 // of the task
	for p := range seen {
		l.size += int64(len(l.times)) * planBytes(p.Mode)
	}
	for _, c := range a.clocks {
		l.size += int64(len(c)) * 8
	}
	a.plans = nil // found through l.plans
	return l, nil
}

// choose is a plan of some rows of another (A2: no row looks at its neighbours).
func choose(p *kernel.Plan, rows []int) *kernel.Plan {
	q := &kernel.Plan{
		Mode:    p.Mode,
		Sources: p.Sources,
		Sums:    p.Sums.Pick(rows),
		Kind:    make([]kernel.Kind, len(rows)),
		Left:    make([]int32, len(rows)),
		Right:   make([]int32, len(rows)),
		Weight:  make([]float64, len(rows)),
		Valid:   make([]uint8, len(rows)),
	}
	for i, r := range rows {
		q.Kind[i], q.Left[i], q.Right[i], q.Weight[i], q.Valid[i] = p.Kind[r], p.Left[r], p.Right[r], p.Weight[r], p.Valid[r]
	}
	return q
}

// Unwrap gives the dataset under the view (robocache.As).
func (v *Viewed) Unwrap() robocache.Dataset { return v.src }

// Info is the source's, with the schema of the view.
func (v *Viewed) Info() *robocache.Info { return &v.info }

// Len is the number of grid rows of an episode; 0 where it cannot be aligned.
func (v *Viewed) Len(e int) int {
	if e < 0 || e >= len(v.lengths) {
		return 0
	}
	return v.lengths[e]
}

// Episode is the source's, with the length of the view.
func (v *Viewed) Episode(ctx context.Context, e int) (robocache.Episode, error) {
	if e >= 0 && e < len(v.broken) && v.broken[e] != nil {
		return robocache.Episode{}, v.broken[e]
	}
	ep, err := v.src.Episode(ctx, e)
	ep.Length = v.Len(e)
	return ep, err
}

// Origin is the source's.
func (v *Viewed) Origin(ctx context.Context, e int) (*robocache.Origin, error) {
	return robocache.OriginOf(ctx, v.src, e)
}

// Times is the grid, whatever the stream.
func (v *Viewed) Times(ctx context.Context, e int, key string) ([]int64, error) {
	if _, mask := v.masks[key]; key != "" && v.info.Feature(key) == nil && !mask {
		return nil, v.unknown(key)
	}
	l, err := v.layout(ctx, e)
	if err != nil {
		return nil, err
	}
	return slices.Clone(l.times), nil
}

func (v *Viewed) unknown(key string) error {
	return robocache.NotFound("align", robocache.Where{"stream": key}, "no such stream").
		WithHint("%s", nearest(key, featureKeys(&v.info)))
}

// Stats are none: those of the source are not those of the view's rows.
func (v *Viewed) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close ends the view. The source stays open.
func (v *Viewed) Close() error {
	if v.opt.Own {
		return v.src.Close()
	}
	return nil
}
