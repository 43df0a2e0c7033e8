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

// ValidSuffix ends the key of the mask that View adds to a stream: bool, one value per row.
const ValidSuffix = robocache.ValidSuffix

// ViewOptions are the options of View that Config does not have.
type ViewOptions struct {
	// DropInvalid declares no masks. The caller must leave out all rows outside Complete.
	DropInvalid bool
	// Exact also reads the source to find masked rows, lost frames and quaternions without a
	// direction, which timestamps do not show. If Exact is false, each stream that may have such
	// rows gets a mask, and Complete ignores them.
	Exact bool
	// Rhythm derives max_gap from the steps between the timestamps of each stream in each episode
	// (robocache.LongestStep), if Config does not set it. It does not apply to latched streams, texts
	// and events, which hold until the next value.
	Rhythm bool
	// Ignore reports whether the caller does not use the rows of a stream. Such a stream has no mask
	// and no findings, and Complete does not depend on it. nil ignores no stream.
	Ignore func(f *robocache.Feature) bool
	Own    bool // Close also closes the source
	// number of threads that read timestamps while the view is created; 0 = the number of CPUs
	Threads int
	// Episodes holds the positions of the episodes of a shard; nil = all. All other episodes count as
	// empty.
	Episodes []int
	// Masks names streams that get a mask even if all their rows have a value.
	Masks []string
}

// Viewed is a dataset on one grid.
type Viewed struct {
	src     robocache.Dataset
	cfg     Config
	opt     ViewOptions
	info    robocache.Info
	offered robocache.Capabilities
	kept    []robocache.Feature // features of the source, in the order of the streams
	place   map[string]int      // index in kept of each key
	masks   map[string]int      // index in kept of the stream of each mask "<key>.valid"
	lengths []int
	broken  []error // error of each episode that cannot be aligned
	gaps    []gaps  // of each stream
	// complete holds, for each episode, the ranges of rows at which every stream has a value.
	complete [][]RowRange

	layouts *lru.Cache[int, *layout]
}

// layout holds everything about one episode that depends on time and not on values: its rows, and
// the samples that each row of each stream uses.
type layout struct {
	a     *aligner
	times []int64
	plans []*kernel.Plan // one per stream
	gaps  []gaps         // one per stream
	// plan of the task, which is not a stream: previous on the episode's own clock, computed at the
	// first call
	task func() (*kernel.Plan, error)
	size int64 // bytes
}

// layoutBudget is the largest size in bytes of the layouts that a view keeps.
const layoutBudget = 64 << 20

// RowRange is a half-open range of rows.
type RowRange struct{ From, To int }

// View returns a dataset whose streams all lie on the grid of cfg. Rows, values and masks are those
// of Episode. They are computed when they are read.
//
// A stream that has rows without a value in some episode gets a bool feature "<key>.valid". A row
// has no value if it lies beyond the data, in a gap, is masked in the source, or has no direction
// under slerp. Frames and ragged rows are those of the row that the mode chooses. A row without a
// value is a missing frame, or a ragged row without entries, unless the configuration names the
// edge policy clamp. An episode that cannot be aligned has no rows and a finding. Reading it
// returns its error.
//
// View reads all timestamps once, because Len and Info.Frames depend on them. The caller must close
// the source, unless ViewOptions.Own is set.
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
		// Every dataset has the task. As a stream it would only take part in the extent.
		cfg.Keys = slices.DeleteFunc(
			slices.Clone(cfg.Keys),
			func(k string) bool { return k == "task" },
		)
	}
	info := src.Info()
	if err := cfg.validateNames(info); err != nil {
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
	v.kept = probe.selectFeatures(info)
	for _, f := range v.kept {
		if _, err := probe.resolveOptions(f); err != nil {
			return nil, err
		}
	}
	masked, err := v.scanEpisodes(ctx)
	if err != nil {
		return nil, err
	}
	v.setSchema(masked)
	v.setCapabilities()
	return v, nil
}

// setCapabilities sets the capabilities to those of the source, without the ones that name rows or
// clocks of the source. The validity of a row is not a capability here, because the view has a
// stream for it. Ragged rows are those of the grid.
func (v *Viewed) setCapabilities() {
	v.offered = *v.src.Capabilities()
	c := &v.offered
	c.Origin, c.Recording = v.Origin, nil
	c.LeaseFrames, c.Valid, c.Rows, c.VideoStart, c.Lacks = nil, nil, nil, nil, nil
	c.Clocks, c.TimesBy, c.Message = nil, nil, nil
	if c.GatherRagged != nil {
		c.GatherRagged = v.GatherRagged
	}
}

// Capabilities returns the capabilities of the source that are valid on the grid.
func (v *Viewed) Capabilities() *robocache.Capabilities { return &v.offered }

// scanEpisodes makes the layout of every episode once, to find its length and the streams that need
// a mask.
func (v *Viewed) scanEpisodes(ctx context.Context) (masked []bool, err error) {
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
			l, err := v.layoutOf(ctx, e)
			isFatal := errors.Is(err, robocache.ErrTemporary) ||
				errors.Is(err, robocache.ErrInternal)
			if isFatal || ctx.Err() != nil { // the episode is not the cause
				return err
			} else if err != nil {
				v.broken[e] = err
				return nil
			}
			v.lengths[e] = len(l.times)
			all := slices.Repeat([]uint8{1}, len(l.times))
			lacking := make([]bool, len(l.plans))
			for i := range l.plans {
				valid, err := v.rowValidity(ctx, l, i)
				if err = cmp.Or(err, ctx.Err()); err != nil {
					return err
				}
				if v.isIgnored(i) {
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
				v.gaps[i].addCounts(&l.gaps[i])
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return masked, err
	}
	return masked, nil
}

// rowValidity returns which rows of an episode have a value of stream i. Without ViewOptions.Exact
// only the timestamps decide. With it, the source is read if its values can decide too.
func (v *Viewed) rowValidity(ctx context.Context, l *layout, i int) ([]uint8, error) {
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
			stream, err := a.makeStream(source, p)
			if err != nil {
				return err
			}
			valid = stream.Valid
		case f.Masked:
			masked, err := a.maskPlan(source, p)
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

// isIgnored reports whether the caller does not use the rows of stream i.
func (v *Viewed) isIgnored(i int) bool { return v.opt.Ignore != nil && v.opt.Ignore(&v.kept[i]) }

// spansOf returns the ranges of consecutive rows whose mark is not 0, in order.
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

// Complete returns the ranges of rows of an episode at which every stream has a value, in order.
func (v *Viewed) Complete(e int) []RowRange {
	if e < 0 || e >= len(v.complete) {
		return nil
	}
	return v.complete[e]
}

// setSchema sets the description of the view: streams at its rate, their masks, and findings about
// the episodes. masked states which streams have rows without a value.
func (v *Viewed) setSchema(masked []bool) {
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
		s, _ := probe.resolveOptions(f)
		mayLack := f.Masked || s.opt.Mode == Slerp // only reading the source would show it
		masked[i] = masked[i] || !v.opt.Exact && !v.isIgnored(i) && mayLack ||
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
		// If the source has a stream of that name, it is kept.
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

// layoutOf returns the layout of an episode, from the cache if possible.
func (v *Viewed) layoutOf(ctx context.Context, e int) (*layout, error) {
	if e < 0 || e >= v.info.Episodes {
		return nil, robocache.Misuse("align", robocache.Where{"position": e}, "").
			Expected("a position below "+strconv.Itoa(v.info.Episodes), strconv.Itoa(e))
	}
	l, err := v.layouts.Get(ctx, e, func() (*layout, int64, error) {
		l, err := v.makeLayout(ctx, e)
		if err != nil {
			return nil, 0, err
		}
		return l, min(l.size, layoutBudget), nil // the newest layout is always kept
	})
	return l, robocache.At(err, robocache.Where{"episode": v.info.EpisodeIndex(e)})
}

// makeLayout computes the layout of an episode.
func (v *Viewed) makeLayout(ctx context.Context, e int) (_ *layout, err error) {
	defer crash.Recover("align", &err)
	a := newAligner(ctx, v.src, e, v.cfg)
	times, err := a.prepareStreams()
	if err != nil {
		return nil, err
	}
	l := &layout{a: a, times: times}
	for i := range a.streams {
		s := &a.streams[i]
		if v.usesRhythm(s) {
			s.opt.MaxGap = robocache.LongestStep(a.clocks[s.clock])
			if s.opt.MaxGap > 0 {
				s.opt.MaxGap += s.opt.heldLonger(a.clocks[s.clock], a.clocks[s.arrived])
			}
		}
		p, err := a.planFor(s, times)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": s.feature.Key})
		}
		l.plans = append(l.plans, p)
		l.gaps = append(l.gaps, countGaps(a.clocks[s.clock], times, s.opt.MaxGap, p))
	}
	taskClock, err := a.clockIndex("task")
	if err != nil {
		return nil, err
	}
	l.task = sync.OnceValues(func() (*kernel.Plan, error) {
		s := source{clock: taskClock, opt: Options{Mode: Previous, Stream: "task"}}
		return a.planFor(&s, times)
	})
	l.size = l.sizeInMemory()
	a.plans = nil // the plans are found through l.plans
	return l, nil
}

// sizeInMemory returns the size of a layout in bytes, with the plan of the task, which may still
// have to be computed.
func (l *layout) sizeInMemory() int64 {
	const fixed = 4096 // the aligner, its sources and the lists
	size := fixed + int64(len(l.times))*(8+planBytes(Previous))
	distinct := map[*kernel.Plan]bool{} // streams share plans
	for _, p := range l.plans {
		distinct[p] = true
	}
	for p := range distinct {
		size += int64(len(l.times)) * planBytes(p.Mode)
	}
	for _, c := range l.a.clocks {
		size += int64(len(c)) * 8
	}
	return size
}

// selectRows returns the plan of some rows of another plan (align.A2: rows are independent).
func selectRows(p *kernel.Plan, rows []int) *kernel.Plan {
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
		q.Kind[i], q.Left[i], q.Right[i] = p.Kind[r], p.Left[r], p.Right[r]
		q.Weight[i], q.Valid[i] = p.Weight[r], p.Valid[r]
	}
	return q
}

// Unwrap returns the dataset under the view (robocache.As).
func (v *Viewed) Unwrap() robocache.Dataset { return v.src }

// Info returns the info of the source with the schema of the view.
func (v *Viewed) Info() *robocache.Info { return &v.info }

// Len returns the number of grid rows of an episode, or 0 if it cannot be aligned.
func (v *Viewed) Len(e int) int {
	if e < 0 || e >= len(v.lengths) {
		return 0
	}
	return v.lengths[e]
}

// Episode returns the episode of the source with the length of the view.
func (v *Viewed) Episode(ctx context.Context, e int) (robocache.Episode, error) {
	if e >= 0 && e < len(v.broken) && v.broken[e] != nil {
		return robocache.Episode{}, v.broken[e]
	}
	ep, err := v.src.Episode(ctx, e)
	ep.Length = v.Len(e)
	return ep, err
}

// Origin returns the origin of the source.
func (v *Viewed) Origin(ctx context.Context, e int) (*robocache.Origin, error) {
	return robocache.OriginOf(ctx, v.src, e)
}

// Times returns the grid, which is the same for all streams.
func (v *Viewed) Times(ctx context.Context, e int, key string) ([]int64, error) {
	if _, mask := v.masks[key]; key != "" && v.info.Feature(key) == nil && !mask {
		return nil, v.unknownStream(key)
	}
	l, err := v.layoutOf(ctx, e)
	if err != nil {
		return nil, err
	}
	return slices.Clone(l.times), nil
}

func (v *Viewed) unknownStream(key string) error {
	return robocache.NotFound("align", robocache.Where{"stream": key}, "no such stream").
		WithHint("%s", nearestHint(key, featureKeys(&v.info)))
}

// Stats returns nil, because the statistics of the source are not those of the view's rows.
func (v *Viewed) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close closes the view. The source is closed too if ViewOptions.Own is set.
func (v *Viewed) Close() error {
	if v.opt.Own {
		return v.src.Close()
	}
	return nil
}
