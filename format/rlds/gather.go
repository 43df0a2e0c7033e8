package rlds

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
)

// loadRecord returns the whole record of an episode.
func (d *Dataset) loadRecord(ctx context.Context, episode int) *record {
	s, r := d.locateEpisode(episode)
	defer guard.At(d.locate(s, r))
	return leafcache.Load(ctx, d.records, episode, func() (*record, int64) {
		rec := guard.Must(d.schema.parseRecord(d.readFramed(ctx, s, r)))
		if rec.steps != int(d.index[s].steps[r]) {
			guard.Fail(robocache.Malformed(
				"rlds",
				nil,
				"the number of steps, against the heads of the record's features",
			).Expected(fmt.Sprint(d.index[s].steps[r]), fmt.Sprint(rec.steps)))
		}
		if t := rec.withoutImages(d.schema); t != nil {
			d.imageless.Put(episode, t, t.bytes())
		}
		return rec, rec.bytes()
	})
}

// loadValues returns the record of an episode, possibly without its images.
func (d *Dataset) loadValues(ctx context.Context, episode int) *record {
	if rec := d.peekRecord(episode); rec != nil {
		return rec
	}
	return d.loadRecord(ctx, episode)
}

// peekRecord returns the record of an episode if it is in memory, preferably the whole record.
func (d *Dataset) peekRecord(episode int) *record {
	if rec, ok := d.records.Peek(episode); ok {
		return rec
	}
	rec, _ := d.imageless.Peek(episode)
	return rec
}

// columnOf returns the values of a leaf. It reports the additional memory to the cache, unless the
// record was evicted and loaded again.
func (d *Dataset) columnOf(rec *record, leaf, episode int) *column {
	kept := d.records
	if rec.isImageless {
		kept = d.imageless
	}
	c, err := d.schema.column(rec, leaf, func(n int64) {
		if now, ok := kept.Peek(episode); ok && now == rec {
			kept.Grow(episode, n)
		}
	})
	if err != nil {
		guard.Fail(robocache.At(err, robocache.Where{"episode": d.About.EpisodeIndex(episode)}))
	}
	return c
}

// locate returns the location of a record for errors.
func (d *Dataset) locate(s, r int) robocache.Where {
	return robocache.Where{
		"file":    d.shards[s].name,
		"offset":  d.index[s].offset[r],
		"episode": d.firstIndexes[s] + int64(r),
	}
}

// bytes returns the memory of a record.
func (r *record) bytes() int64 {
	n := int64(len(r.data)) + 256 + int64(len(r.lists))*120 + int64(len(r.columns))*120
	for i := range r.lists {
		n += int64(len(r.lists[i].spans)) * 8
	}
	return n
}

// readFramed reads the framed bytes of a record.
func (d *Dataset) readFramed(ctx context.Context, s, r int) (b []byte) {
	x := d.index[s]
	if x.length[r] > d.limit {
		guard.Fail(tooLarge(x.length[r], d.limit))
	}
	d.withShard(ctx, s, func(f robocache.Ranged) error {
		b = make([]byte, headBytes+x.length[r]+tailBytes)
		return f.ReadAt(ctx, b, x.offset[r])
	})
	return b
}

// withShard calls fn with the records of a shard, of the version that was indexed.
func (d *Dataset) withShard(ctx context.Context, s int, fn func(r robocache.Ranged) error) {
	name, x := d.shards[s].name, d.index[s]
	f := d.openShard(ctx, name)
	defer d.files.Put(f)
	x.checkVersion(f.Value)
	r := f.Value
	if x.packed != unpacked {
		r = d.unpacked.unpackShard(ctx, name, r, x.packed, d.limit)
	}
	guard.Check(fn(r))
}

// checkVersion returns an error if f is not the version of the file that was indexed.
func (x *shardIndex) checkVersion(f robocache.Ranged) {
	if f.Size() != x.size || f.Version() != x.version {
		guard.Fail(robocache.Malformed("rlds", nil, "the shard changed since it was indexed").
			Expected(fmt.Sprintf("version %s", x.version), fmt.Sprintf("version %s", f.Version())).
			WithHint("open the data set again"))
	}
}

// checkRow returns an error if a row does not exist.
func (d *Dataset) checkRow(row robocache.Row) error {
	if err := op.Episode(d.About.Episodes, row.Episode); err != nil {
		return err
	}
	return op.Row(d.About, d.Len(row.Episode), row)
}

// eachEpisode calls fn with every record that the rows need, and with the positions of its rows.
// Several records are loaded, and passed to fn, concurrently.
func (d *Dataset) eachEpisode(
	ctx context.Context,
	l *leaf,
	rows []robocache.Row,
	fn func(rec *record, episode int, which []int),
) {
	images := l.coding == frame || l.coding == floatPNG
	order := make([]int, len(rows))
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			guard.Fail(robocache.At(err, robocache.Where{"stream": l.key}))
		}
		order[i] = i
	}
	if inOrder := func(a, b int) int {
		return rows[a].Episode - rows[b].Episode
	}; !slices.IsSortedFunc(
		order,
		inOrder,
	) {
		slices.SortStableFunc(order, inOrder)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && rows[order[to]].Episode == rows[order[from]].Episode {
			to++
		}
		which := order[from:to]
		episode := rows[which[0]].Episode
		from = to
		rec := d.peekRecord(episode)
		here := rec != nil && !(rec.isImageless && images)
		one := func() (err error) {
			defer guard.Recover("rlds gather", &err)
			if !here {
				rec = d.loadValues(gctx, episode)
			}
			if l.isMissing(rec) {
				return robocache.At(
					l.errMissing(),
					robocache.Where{"episode": d.About.EpisodeIndex(episode)},
				)
			}
			fn(rec, episode, which)
			return nil
		}
		if !here && len(which) < len(rows) {
			g.Go(one)
		} else if err := one(); err != nil {
			_ = g.Wait()
			guard.Fail(err)
		}
	}
	guard.Check(g.Wait())
}

// leafOf returns the leaf of a stream whose kind is one of kinds.
func (d *Dataset) leafOf(key string, kinds ...robocache.Kind) (*leaf, source, *robocache.Feature) {
	s, ok := d.byKey[key]
	if !ok {
		for i := range d.schema.leaves {
			if l := &d.schema.leaves[i]; l.key == key && l.unsupported != "" {
				guard.Fail(robocache.Unsupported(
					"rlds",
					robocache.Where{"stream": key},
					"%s is not read",
					l.unsupported,
				))
			}
		}
		guard.Fail(op.NoStream(key))
	}
	f := d.About.Feature(key)
	if len(kinds) > 0 {
		guard.Check(op.Kind(key, f.Kind, kinds...))
	}
	return &d.schema.leaves[s.leaf], s, f
}

// rowOf returns the row of a leaf for a step. Values of the episode have one row for all steps.
func (l *leaf) rowOf(index int) int {
	if l.step {
		return index
	}
	return 0
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer guard.Recover("rlds gather", &err)
	l, s, f := d.leafOf(key, robocache.KindNumeric)
	if f.Ragged() {
		return robocache.Misuse(
			"rlds gather",
			robocache.Where{"stream": key},
			"rows of this stream vary in length",
		).WithHint("GatherRagged reads them")
	}
	size := l.rowBytes()
	guard.Check(op.Room(key, "bytes", len(rows)*size, len(dst)))
	d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) {
		var c *column
		if l.coding == plain {
			c = d.columnOf(rec, s.leaf, episode)
		}
		for _, i := range which {
			to, row := dst[i*size:(i+1)*size], l.rowOf(rows[i].Index)
			switch {
			case c == nil:
				// This runs for every row, so it avoids a map and a guard.
				if err := l.copyTensor(rec, row, to); err != nil {
					guard.Fail(robocache.At(err, robocache.Where{
						"episode": d.About.EpisodeIndex(episode),
						"stream":  key,
						"row":     rows[i].Index,
					}))
				}
			case c.rows == nil && l.isAbsent(rec):
				clear(to)
			default:
				copy(to, c.rows[row*size:(row+1)*size])
			}
		}
	})
	return nil
}

// Valid reports which rows of an optional stream have a value.
func (d *Dataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	defer guard.Recover("rlds valid", &err)
	l, _, _ := d.leafOf(key)
	guard.Check(op.Room(key, "bytes", len(rows), len(valid)))
	if reader.AllValid(valid); !l.optional {
		return nil
	}
	d.eachEpisode(ctx, l, rows, func(rec *record, _ int, which []int) {
		if l.isAbsent(rec) && l.rowCount(rec) > 0 {
			for _, i := range which {
				valid[i] = 0
			}
		}
	})
	return nil
}

// GatherRagged returns the rows of a stream whose rows vary in length.
func (d *Dataset) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	defer guard.Recover("rlds gather", &err)
	l, s, f := d.leafOf(key, robocache.KindNumeric, robocache.KindPointCloud)
	if !f.Ragged() {
		return nil, nil, robocache.Misuse(
			"rlds gather",
			robocache.Where{"stream": key},
			"rows of this stream are all of one length",
		).WithHint("Gather reads them")
	}
	size := f.Elements() * f.DType.Size()
	parts := make([][]byte, len(rows))
	counts = make([]int, len(rows))
	d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) {
		c := d.columnOf(rec, s.leaf, episode)
		for _, i := range which {
			k := l.rowOf(rows[i].Index)
			switch {
			case l.coding != plain:
				b, err := guard.Value(func() []byte { return l.openTensor(rec, k, d.limit) })
				if err == nil && (size == 0 || len(b)%size != 0) {
					err = l.countError(len(b), fmt.Sprintf("a multiple of %d bytes", size))
				}
				if err != nil {
					guard.Fail(robocache.At(err, robocache.Where{
						"episode": d.About.EpisodeIndex(episode),
						"stream":  key,
						"row":     rows[i].Index,
					}))
				}
				parts[i] = b
			case s.nested:
				parts[i] = c.innerLengths(k)
			case c.starts != nil:
				parts[i] = c.rows[c.starts[k]*int64(size) : c.starts[k+1]*int64(size)]
			}
			counts[i] = len(parts[i]) / max(size, 1)
		}
	})
	return slices.Concat(parts...), counts, nil
}
