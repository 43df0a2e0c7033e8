package quality

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/video"
)

// DefaultBudget is the memory for the numbers of one episode in bytes.
const DefaultBudget = 256 << 20

// Options configures Measure. The zero value measures all episodes and every frame.
type Options struct {
	Episodes []int  // positions; nil: all
	Frames   Frames // "": AllFrames
	// Budget bounds the memory of the numbers of one episode, for each thread, in bytes. An episode
	// that exceeds it is not measured. 0: DefaultBudget.
	Budget   int64
	Threads  int // episodes at once; 0: 1
	Progress func(robocache.Progress)
	// Scale is the scale of the dataset; nil: ScaleOf computes it.
	Scale *Scale
	// Parts is a folder for unfinished work: see resumeParts. "": the work cannot be resumed.
	Parts string
	// IsShard leaves out the metrics of the set, which Merge computes.
	IsShard bool
}

// Measure computes the metrics of a dataset, one row for each episode.
//
// An episode that cannot be read has a row without values and the reason in Table.Errors. Faults of
// the machine, such as a full disk, are errors.
func Measure(ctx context.Context, ds robocache.Dataset, opt Options) (_ *Table, err error) {
	defer crash.Recover("quality", &err)
	m, err := newMeasurement(ctx, ds, opt)
	if err != nil {
		return nil, err
	}
	if err := m.resumeParts(ctx); err != nil {
		return nil, err
	}
	if err := m.measureAll(ctx); err != nil {
		return nil, err
	}
	m.removeParts(ctx)
	if !opt.IsShard {
		m.table.complete()
	}
	return m.table, nil
}

// measurement is a running Measure.
type measurement struct {
	ds        robocache.Dataset
	opt       Options
	roles     *streamRoles
	scale     *Scale
	layout    sketchLayout
	positions []int // of the rows of the table
	table     *Table
	library   *video.Library
	counter   *robocache.RowCounter

	mu      sync.Mutex
	isDone  []bool // rows that are measured
	unsaved []int  // rows that are measured and in no part
	parts   int    // number of the next part
}

func newMeasurement(
	ctx context.Context, ds robocache.Dataset, opt Options,
) (*measurement, error) {
	opt.Frames = cmp.Or(opt.Frames, AllFrames)
	opt.Budget = cmp.Or(opt.Budget, DefaultBudget)
	if err := opt.Frames.Check(); err != nil {
		return nil, err
	}
	m := &measurement{ds: ds, opt: opt, roles: rolesOf(ds.Info()), scale: opt.Scale}
	var err error
	if m.scale == nil {
		if m.scale, err = ScaleOf(ctx, ds); err != nil {
			return nil, err
		}
	}
	for _, f := range m.roles.features() {
		if len(m.scale.Streams[f.Key]) != f.Elements() {
			return nil, robocache.Misuse("quality", robocache.Where{"stream": f.Key},
				"the scale is of another dataset")
		}
	}
	if m.positions, err = m.sortedPositions(opt.Episodes); err != nil {
		return nil, err
	}
	m.layout = layoutOf(m.roles, m.scale)
	hashes := 0
	if opt.Frames != NoFrames {
		hashes = hashesPerCamera * len(m.roles.cameras)
	}
	m.table = newTable(len(m.positions), m.layout.width(), hashes)
	m.table.Dataset, m.table.Frames = robocache.Redact(ds.Info().URI), opt.Frames
	m.table.SketchPoints, m.table.SketchStates = m.layout.points, m.layout.state
	m.table.Timeless = !robocache.KeepsTime(ctx, ds)
	if m.table.Fingerprint, err = flags.Fingerprint(ctx, ds); err != nil {
		return nil, err
	}
	if m.table.State, err = flags.FilesState(ctx, ds); err != nil {
		return nil, err
	}
	m.isDone = make([]bool, len(m.positions))
	m.library = video.LibraryOf(ds)
	m.counter = robocache.NewRowCounter(ds, m.positions, opt.Progress)
	return m, nil
}

// sortedPositions returns the positions of the rows, in ascending order of the episode index.
func (m *measurement) sortedPositions(chosen []int) ([]int, error) {
	info := m.ds.Info()
	out := slices.Clone(chosen)
	if chosen == nil {
		out = make([]int, info.Episodes)
		for e := range out {
			out[e] = e
		}
	}
	for _, e := range out {
		if e < 0 || e >= info.Episodes {
			return nil, robocache.Misuse("quality", robocache.Where{"position": e},
				"no such episode")
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Compare(info.EpisodeIndex(a), info.EpisodeIndex(b))
	})
	return slices.Compact(out), nil
}

// measureAll measures the rows that are not done, in opt.Threads goroutines.
func (m *measurement) measureAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	next := make(chan int)
	g.Go(crash.Func("quality", func() error {
		defer close(next)
		for i := range m.positions {
			if m.isDone[i] {
				m.counter.Finish(m.positions[i])
				continue
			}
			select {
			case next <- i:
			case <-gctx.Done():
				return gctx.Err()
			}
		}
		return nil
	}))
	for range max(1, m.opt.Threads) {
		g.Go(crash.Func("quality", func() error {
			r := &reader{ds: m.ds, roles: m.roles, scale: m.scale, budget: m.opt.Budget}
			pool := video.NewPool(0)
			defer pool.Close()
			for i := range next {
				if err := m.measureRow(gctx, r, pool, i); err != nil {
					return err
				}
				if err := m.finishRow(gctx, i); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	err := g.Wait()
	if err != nil {
		// The rows so far are kept for the next run, also after an interruption.
		_ = m.savePart(context.WithoutCancel(ctx))
	}
	return err
}

// measureRow measures one episode. Only faults of the machine and of this program are errors.
func (m *measurement) measureRow(
	ctx context.Context, r *reader, pool *video.Pool, i int,
) error {
	t, e := m.table, m.positions[i]
	t.Episodes[i] = m.ds.Info().EpisodeIndex(e)
	t.Lengths[i], t.SourceEpisodes[i] = int64(m.ds.Len(e)), -1
	err := m.fillRow(ctx, r, pool, i)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if robocache.IsFatal(err) || errors.Is(err, robocache.ErrTemporary) {
		return robocache.At(err, robocache.Where{"episode": t.Episodes[i]})
	}
	if err != nil {
		t.Errors[i] = err.Error()
	}
	return nil
}

// fillRow reads one episode and writes its row.
func (m *measurement) fillRow(
	ctx context.Context, r *reader, pool *video.Pool, i int,
) error {
	t, e := m.table, m.positions[i]
	episode, err := m.ds.Episode(ctx, e)
	if err != nil {
		return err
	}
	if len(episode.Tasks) > 0 {
		t.Tasks[i] = episode.Tasks[0]
	}
	if err := m.fillSource(ctx, i); err != nil {
		return err
	}
	x, err := r.readEpisode(ctx, e)
	if err != nil {
		return err
	}
	frames, frameSpans, frameErr := m.measureFrames(ctx, pool, x, i)
	spans := t.spansOf(i)[:0]
	for k := range registry {
		d := &registry[k]
		x.span = noSpan
		if d.measure != nil {
			t.Columns[d.Name][i] = finiteOrNaN(d.measure(x))
		} else if v, ok := frames[d.Name]; ok {
			t.Columns[d.Name][i] = finiteOrNaN(v)
			if part, ok := frameSpans[d.Name]; ok {
				x.span = part
			}
		}
		if d.isTimed {
			spans = append(spans, float32(x.span.from), float32(x.span.to))
		}
	}
	m.layout.write(x, t.Sketch(i))
	return frameErr
}

// fillSource writes the recording from which an episode was made, if it is known.
func (m *measurement) fillSource(ctx context.Context, i int) error {
	offered := m.ds.Capabilities()
	if offered.Origin == nil && offered.Recording == nil {
		return nil
	}
	o, err := robocache.OriginOf(ctx, m.ds, m.positions[i])
	if err != nil || o == nil {
		return err
	}
	m.table.Sources[i] = o.Dataset
	if o.File != "" {
		m.table.Sources[i] = o.File
		if o.Dataset != m.table.Dataset {
			m.table.Sources[i] = fmt.Sprintf("%s/%s", o.Dataset, o.File)
		}
	}
	m.table.SourceEpisodes[i] = o.Episode
	return nil
}

func finiteOrNaN(v float64) float64 {
	if v-v != 0 {
		return math.NaN()
	}
	return v
}

// finishRow counts a measured row, and saves a part when enough rows are measured.
func (m *measurement) finishRow(ctx context.Context, i int) error {
	m.counter.Finish(m.positions[i])
	m.mu.Lock()
	m.isDone[i] = true
	m.unsaved = append(m.unsaved, i)
	isFull := len(m.unsaved) >= max(partRows, len(m.positions)/maxParts)
	m.mu.Unlock()
	if isFull {
		return m.savePart(ctx)
	}
	return nil
}
