package loader

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// line is what the samples of a source lie on: the rows of one clock, or a uniform timeline. Streams on that clock are read by row; all
// others are brought to the samples' times by their align rules (column.timed).
type line struct {
	grid    bool   // a uniform timeline (hz)
	key     string // else: the stream whose rows are samples; "" for the episode's own
	clock   string // the clock of those rows
	own     string // Info.Clock: the name of "", where it has one
	several bool   // windows lie in time and not in rows: there are several clocks, or a timeline
	shift   int64  // of the anchor's timestamps
}

// clockOf is the clock of a feature; "" is the episode's own, under whichever name.
func (l *line) clockOf(f *robocache.Feature) string {
	if f.Clock == l.own {
		return ""
	}
	return f.Clock
}

// newLine settles the line of a source. Without hz and anchor it is the dataset's own rows: Info.Clock, where there are several clocks.
func newLine(info *robocache.Info, cfg *Config) (line, error) {
	l := line{grid: cfg.Align != nil && !cfg.Align.HZ.Zero(), own: info.Clock}
	l.several = l.grid || info.Clock != "" || cfg.Anchor != ""
	for i := range info.Features {
		l.several = l.several || info.Features[i].Clock != ""
	}
	if cfg.Anchor != "" {
		f := info.Feature(cfg.Anchor)
		switch {
		case f == nil:
			return l, lacks(info, "anchor", cfg.Anchor, keysOf(info))
		case l.grid:
			return l, misuse("anchor", "anchor or hz: samples lie on a stream's rows or on a timeline", "both")
		}
		if l.clock = l.clockOf(f); l.clock != "" || moves(cfg.Align, f.Key) {
			l.key = f.Key // its own timestamps: clock=, offset=, latency= and drift= may name it
		}
	}
	if a := cfg.Align; a != nil && !l.grid {
		if !l.several && len(cfg.Windows) == 0 && !casts(a) {
			return l, misuse("align", "hz, a rate above 0", "none")
		}
		var err error
		if l.shift, err = a.Shift(l.key); err != nil {
			return l, err
		}
	}
	return l, nil
}

// moves says whether the timestamps of a stream are not those that it was recorded with first.
func moves(a *align.Config, key string) bool {
	return a != nil && (a.Offset[key] != a.Latency[key] || !a.Drift[key].IsZero() || a.Clock[key] != "")
}

// casts says that nothing but output types is chosen: that needs no timeline.
func casts(a *align.Config) bool {
	b := *a
	b.DTypes = nil
	return len(a.DTypes) > 0 && len(slices.Concat(b.Named()...)) == 0 && b.Edge.IsZero() && b.MaxGap.IsZero() && b.Window == 0
}

func keysOf(info *robocache.Info) []string {
	out := make([]string, len(info.Features))
	for i := range info.Features {
		out[i] = info.Features[i].Key
	}
	return out
}

// timed says whether a column goes by time, and not by the rows of the line. f is nil for the task text.
func (l *line) timed(f *robocache.Feature, cfg *Config) (bool, error) {
	key, clock := "", ""
	if f != nil {
		key, clock = f.Key, l.clockOf(f)
	}
	switch {
	case l.grid || clock != l.clock || cfg.Windows.Of(key) != nil || l.several && cfg.Deltas.Of(key) != nil:
		return true, nil
	case cfg.Align == nil || key == "":
		return false, nil
	}
	shift, err := cfg.Align.Shift(key)
	return shift != l.shift || cfg.Align.Clock[key] != cfg.Align.Clock[l.key] || cfg.Align.Drift[key] != cfg.Align.Drift[l.key], err
}

// counts gives the samples of each episode, and with a timeline its start. Timestamps are read by several goroutines: of a folder of recordings each
// is a file.
func (src *source) counts(ctx context.Context, exclude map[int]bool) func(e int) (int, int64, error) {
	if !src.line.grid && src.line.key == "" {
		return func(e int) (int, int64, error) { return src.ds.Len(e), 0, nil }
	}
	src.long = map[int]int{}
	anchor := src.ds.Info().Feature(src.line.key)
	one := func(e int) (n int, start int64, err error) {
		if src.line.grid {
			n, start, err = src.timeline(ctx, e)
		} else if !src.layout.timed() {
			n, err = robocache.RowsIn(ctx, src.ds, e, anchor) // nothing is asked for by time
		} else {
			var t []int64
			t, err = src.timestamps.of(ctx, e, src.line.key)
			n = len(t)
		}
		return n, start, err
	}
	type counted struct {
		n     int
		start int64
		err   error
	}
	var todo []int
	add := func(e int) {
		if e >= 0 && e < src.ds.Info().Episodes && !exclude[e] {
			todo = append(todo, e)
		}
	}
	for _, e := range src.cfg.Episodes {
		add(e)
	}
	if src.cfg.Episodes == nil {
		for e := range src.ds.Info().Episodes {
			add(e)
		}
	}
	slices.Sort(todo)
	todo = slices.Compact(todo)
	var next atomic.Int64
	var wg sync.WaitGroup
	found := make([]counted, len(todo))
	for range min(max(src.cfg.Threads, 1), len(todo)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := next.Add(1) - 1; i < int64(len(todo)); i = next.Add(1) - 1 {
				c := &found[i]
				c.n, c.start, c.err = one(todo[i])
			}
		}()
	}
	wg.Wait()
	return func(e int) (int, int64, error) {
		i, ok := slices.BinarySearch(todo, e)
		if !ok {
			return 0, 0, nil
		}
		c := &found[i]
		if c.err != nil && src.cfg.OnBadEpisode == "skip" && badEpisode(c.err) {
			// Its timestamps are bad: it never enters the order.
			src.a.n.skip.Add(int64(src.ds.Len(e)))
			src.a.warn(robocache.Where{"episode": e}.String() + " is left out: " + c.err.Error())
			return 0, 0, nil
		}
		if src.line.key != "" && c.err == nil {
			src.long[e] = c.n
		}
		return c.n, c.start, c.err
	}
}

// rowsOn is how many rows an episode has on the line.
func (src *source) rowsOn(episode int) int {
	if src.line.key == "" {
		return src.ds.Len(episode)
	}
	return src.long[episode]
}

// at gives the time of a sample: place is its episode's in the table, index its row there.
func (src *source) at(ctx context.Context, place int32, index int) (int64, error) {
	if src.line.grid {
		return src.table.Start[place] + src.cfg.Align.HZ.Nanos(int64(index)), nil
	}
	episode := src.table.Episode(int(place))
	t, err := src.timestamps.of(ctx, episode, src.line.key)
	if err != nil {
		return 0, &episodeError{episode, err}
	}
	if index >= len(t) {
		return 0, &episodeError{episode, &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"episode": episode, "row": index}, Msg: "a row without a timestamp"}}
	}
	return t[index] + src.line.shift, nil
}

// readStamps is how the timestamps of a stream are read where values go by time: proved to ascend, once.
func (src *source) readTimestamps(ctx context.Context, episode int, stream string) ([]int64, error) {
	cfg := src.cfg.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	return cfg.Timestamps(ctx, src.ds, episode, stream)
}

// stampsOf is the stream whose timestamps stand for those of a feature: the first one of its clock, so that they are read and kept once.
func (src *source) timestampsOf(f *robocache.Feature) string {
	same := func(a, b string) bool {
		cfg := src.cfg.Align
		return cfg == nil || cfg.Clock[a] == cfg.Clock[b] && cfg.Drift[a] == cfg.Drift[b]
	}
	if f.Clock != "" {
		info := src.ds.Info()
		for i := range info.Features {
			if g := &info.Features[i]; g.Clock == f.Clock && same(g.Key, f.Key) {
				return g.Key
			}
		}
	}
	return f.Key
}
