package loader

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// Spans of frames, and of rows of varying length, without a count: the number of places is that of the fullest span, found in the timestamps
// when the source is opened, so that frames are decoded straight into places of the batch as those of any window are.

// spreads makes a column of all frames or clouds of a span.
func (c *column) spreads(w *Window, cfg *Config) error {
	if !free(cfg, c.key) {
		return nil
	}
	c.spread, c.native, c.span = true, true, [2]int64{options.Seconds(w.Span[0]), options.Seconds(w.Span[1])}
	c.steps, c.window, c.axis = max(cfg.widest[c.key], 1), true, true
	return nil
}

// free says that keys do not leave a column out.
func free(cfg *Config, key string) bool { return cfg.Keys == nil || slices.Contains(cfg.Keys, key) }

// widest counts, for each such span, the samples of the fullest one of its length in the selected episodes.
func (src *source) widest(ctx context.Context) (map[string]int, error) {
	var out map[string]int
	info := src.ds.Info()
	for i := range src.cfg.Windows {
		w := &src.cfg.Windows[i]
		f := info.Feature(w.Key)
		if f == nil || w.Span == nil || w.Count != 0 || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent || f.Kind == robocache.KindNumeric && !f.Ragged() || !free(&src.cfg, w.Key) {
			continue
		}
		if _, err := w.Nanos(); err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": w.Key})
		}
		n, err := src.fullest(ctx, w.Key, options.Seconds(w.Span[1])-options.Seconds(w.Span[0]))
		if err != nil {
			return nil, err
		}
		if n > options.MaxSteps {
			return nil, misuse("windows", "a span of at most 2^20 samples of "+w.Key, strconv.Itoa(n))
		}
		if out == nil {
			out = map[string]int{}
		}
		out[w.Key] = n
	}
	return out, nil
}

// fullest is the largest number of samples of a stream within some time. Timestamps are read by several goroutines: of a folder of recordings each is a
// file.
func (src *source) fullest(ctx context.Context, key string, length int64) (int, error) {
	episodes := src.cfg.Episodes
	if episodes == nil {
		episodes = make([]int, src.ds.Info().Episodes)
		for e := range episodes {
			episodes[e] = e
		}
	}
	stream := src.timestampsOf(src.ds.Info().Feature(key))
	var next atomic.Int64
	var wg sync.WaitGroup
	counts, errs := make([]int, len(episodes)), make([]error, len(episodes))
	for range min(max(src.cfg.Threads, 1), len(episodes)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := next.Add(1) - 1; i < int64(len(episodes)); i = next.Add(1) - 1 {
				e := episodes[i]
				if e < 0 || e >= src.ds.Info().Episodes {
					continue // the table refuses it
				}
				timestamps, err := src.timestamps.of(ctx, e, stream)
				errs[i] = err
				from := 0
				for k, t := range timestamps {
					for timestamps[from] < t-length {
						from++
					}
					counts[i] = max(counts[i], k-from+1)
				}
			}
		}()
	}
	wg.Wait()
	most := 0
	for i, n := range counts {
		if err := errs[i]; err != nil && !(src.cfg.OnBadEpisode == "skip" && badEpisode(err)) {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// addSpread makes the tensors beside a spread column: when each of its samples was, and how many frames a sample has.
func (l *layout) addSpread(c column) {
	if !c.ragged && l.free(c.key+lengthsSuffix) {
		l.columns[c.number].count = len(l.tensors)
		l.tensors = append(l.tensors, tensorPlan{key: c.key + lengthsSuffix, dtype: robocache.Int64, shape: []int{}, bytes: 8, column: -1, of: c.number})
		l.fields = append(l.fields, Field{Key: c.key + lengthsSuffix, DType: robocache.Int64, Shape: []int{}, Kind: robocache.KindNumeric, Lengths: true})
	}
	if !l.free(c.key + timesSuffix) {
		return
	}
	steps := c.steps
	c.key, c.when, c.norm, c.source, c.ragged = c.key+timesSuffix, true, nil, fromTable, false
	c.stored, c.out, c.elems, c.rowBytes, c.outBytes = robocache.Int64, robocache.Int64, 1, 8, 8
	c.entry, c.count, c.mask, c.number, c.leader = len(l.tensors), 0, -1, len(l.columns), len(l.columns)
	l.tensors = append(l.tensors, tensorPlan{key: c.key, dtype: c.out, shape: []int{steps}, bytes: 8 * steps, column: c.number, of: -1})
	l.fields = append(l.fields, Field{Key: c.key, DType: c.out, Shape: []int{steps}, Kind: robocache.KindNumeric, Times: true})
	l.columns = append(l.columns, c)
}

// spreadRows gives the rows of a span in its places, the first ones filled; index -1 where there is none. Rows without a value are left out.
func (w *worker) spreadRows(p *part, c *column, mask []uint8) ([]robocache.Row, error) {
	out, _, err := w.spanned(p, c)
	if err != nil || mask == nil {
		return out, err
	}
	for i := range out {
		mask[i] = 0
		if noRow(out[i]) {
			mask[i] = 1
		}
	}
	if c.ragged || c.count == 0 {
		return out, nil
	}
	lengths := view[int64](p.data(c.count))
	for i := range p.size() {
		n := 0
		for _, r := range out[i*c.steps : (i+1)*c.steps] {
			if !noRow(r) {
				n++
			}
		}
		lengths[p.slot(i)] = int64(n)
	}
	return out, nil
}

// spreadTimes writes when the samples of a span were, in ns after the batch's sample; 0 in places without one.
func (w *worker) spreadTimes(p *part, c *column) error {
	rows, at, err := w.spanned(p, c)
	if err != nil {
		return err
	}
	dst, done := p.rowsInto(c.entry)
	out := view[int64](dst)
	for i, r := range rows {
		out[i] = 0
		if noRow(r) {
			continue
		}
		timestamps, err := p.src.timestamps.of(w.Ctx(), r.Episode, c.aligns.clock)
		if err != nil {
			return &episodeError{r.Episode, err}
		}
		out[i] = timestamps[r.Index] - at[i/c.steps]
	}
	done()
	return nil
}

// spanned finds the rows of a span for each sample of a part, and the samples' times on the stream's clock.
func (w *worker) spanned(p *part, c *column) (out []robocache.Row, at []int64, err error) {
	src := p.src
	out, at = make([]robocache.Row, p.size()*c.steps), make([]int64, p.size())
	for i := range out {
		out[i] = robocache.Row{Episode: p.rows[0][i/c.steps].Episode, Index: -1}
	}
	err = w.byEpisode(p, func(episode int, group []int32) error {
		timestamps, err := src.timestamps.of(w.Ctx(), episode, c.aligns.clock)
		if err != nil {
			return err
		}
		for _, i := range group {
			t, err := src.at(w.Ctx(), p.places[i], p.rows[0][i].Index)
			if err != nil {
				return err
			}
			at[i] = t - c.aligns.offset
			from, to := align.Span(timestamps, at[i], c.span[0], c.span[1])
			for r := from; r < to && r-from < c.steps; r++ {
				out[int(i)*c.steps+r-from].Index = r
			}
		}
		return nil
	})
	if err != nil || !c.feature.Masked {
		return out, at, err
	}
	var rows []robocache.Row
	for _, r := range out {
		if !noRow(r) {
			rows = append(rows, r)
		}
	}
	valid, err := align.Validity(w.Ctx(), src.ds, c.feature, rows)
	if err != nil || valid == nil {
		return out, at, err
	}
	k := 0
	for i := range at {
		own := out[i*c.steps : (i+1)*c.steps]
		n := 0
		for _, r := range own {
			if !noRow(r) {
				if valid[k] != 0 {
					own[n] = r
					n++
				}
				k++
			}
		}
		for ; n < len(own); n++ {
			own[n].Index = -1
		}
	}
	return out, at, nil
}
