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

// load gives the record of an episode, whole.
func (d *Dataset) load(ctx context.Context, episode int) *record {
	s, r := d.place(episode)
	defer guard.At(d.where(s, r))
	return leafcache.Load(ctx, d.recs, episode, func() (*record, int64) {
		rec := guard.Must(d.s.parseRecord(d.read(ctx, s, r)))
		if rec.steps != int(d.index[s].steps[r]) {
			guard.Fail(
				robocache.Malformed("rlds", nil, "the number of steps, against the heads of the record's features").
					Expected(fmt.Sprint(d.index[s].steps[r]), fmt.Sprint(rec.steps)),
			)
		}
		if t := rec.thin(d.s); t != nil {
			d.thin.Put(episode, t, t.bytes())
		}
		return rec, rec.bytes()
	})
}

// values gives the record of an episode, perhaps without its images.
func (d *Dataset) values(ctx context.Context, episode int) *record {
	if rec := d.peek(episode); rec != nil {
		return rec
	}
	return d.load(ctx, episode)
}

// peek gives the record of an episode where it is in memory, whole if it can.
func (d *Dataset) peek(episode int) *record {
	if rec, ok := d.recs.Peek(episode); ok {
		return rec
	}
	rec, _ := d.thin.Peek(episode)
	return rec
}

// column gives the values of a leaf. The cache hears that the record was unfolded further: that
// record, and not one that was loaded again since.
func (d *Dataset) column(rec *record, leaf, episode int) *column {
	kept := d.recs
	if rec.slim {
		kept = d.thin
	}
	c, err := d.s.column(rec, leaf, func(n int64) {
		if now, ok := kept.Peek(episode); ok && now == rec {
			kept.Grow(episode, n)
		}
	})
	if err != nil {
		guard.Fail(robocache.At(err, robocache.Where{"episode": d.About.EpisodeIndex(episode)}))
	}
	return c
}

// where is the place of a record.
func (d *Dataset) where(s, r int) robocache.Where {
	return robocache.Where{
		"file":    d.shards[s].name,
		"offset":  d.index[s].off[r],
		"episode": d.ids[s] + int64(r),
	}
}

// bytes is what a record holds in memory.
func (r *record) bytes() int64 {
	n := int64(len(r.data)) + 256 + int64(len(r.lists))*120 + int64(len(r.columns))*120
	for i := range r.lists {
		n += int64(len(r.lists[i].spans)) * 8
	}
	return n
}

// read gets the framed bytes of a record.
func (d *Dataset) read(ctx context.Context, s, r int) (b []byte) {
	x := d.index[s]
	if x.length[r] > d.limit {
		guard.Fail(tooLarge(x.length[r], d.limit))
	}
	d.withShard(ctx, s, func(f robocache.Ranged) error {
		b = make([]byte, headBytes+x.length[r]+tailBytes)
		return f.ReadAt(ctx, b, x.off[r])
	})
	return b
}

// withShard calls fn with the records of a shard, of the version that was indexed.
func (d *Dataset) withShard(ctx context.Context, s int, fn func(r robocache.Ranged) error) {
	name, x := d.shards[s].name, d.index[s]
	f := d.open(ctx, name)
	defer d.files.Put(f)
	x.check(f.Value)
	r := f.Value
	if x.packed != unpacked {
		r = d.plain.shard(ctx, name, r, x.packed, d.limit)
	}
	guard.Check(fn(r))
}

// check says whether a file is the one that was indexed.
func (x *shardIndex) check(f robocache.Ranged) {
	if f.Size() != x.size || f.Version() != x.version {
		guard.Fail(robocache.Malformed("rlds", nil, "the shard changed since it was indexed").
			Expected(fmt.Sprintf("version %s", x.version), fmt.Sprintf("version %s", f.Version())).
			WithHint("open the data set again"))
	}
}

// checkRow says whether a row is there.
func (d *Dataset) checkRow(row robocache.Row) error {
	if err := op.Episode(d.About.Episodes, row.Episode); err != nil {
		return err
	}
	return op.Row(d.About, d.Len(row.Episode), row)
}

// eachEpisode calls fn with every record that the rows need, and with the numbers of its rows; the
// records are loaded several at a time, and fn runs as often at once.
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
	if inOrder := func(a, b int) int { return rows[a].Episode - rows[b].Episode }; !slices.IsSortedFunc(
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
		rec := d.peek(episode)
		here := rec != nil && !(rec.slim && images)
		one := func() (err error) {
			defer guard.Recover("rlds gather", &err)
			if !here {
				rec = d.values(gctx, episode)
			}
			if l.missing(rec) {
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

// leafOf gives the leaf of a stream of one of some kinds.
func (d *Dataset) leafOf(key string, kinds ...robocache.Kind) (*leaf, source, *robocache.Feature) {
	s, ok := d.byKey[key]
	if !ok {
		for i := range d.s.leaves {
			if l := &d.s.leaves[i]; l.key == key && l.what != "" {
				guard.Fail(
					robocache.Unsupported(
						"rlds",
						robocache.Where{"stream": key},
						"%s is not read",
						l.what,
					),
				)
			}
		}
		guard.Fail(op.NoStream(key))
	}
	f := d.About.Feature(key)
	if len(kinds) > 0 {
		guard.Check(op.Kind(key, f.Kind, kinds...))
	}
	return &d.s.leaves[s.leaf], s, f
}

// row is the row of a leaf that a step shows: values of the episode hold for each step.
func (l *leaf) row(index int) int {
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
		return robocache.Misuse("rlds gather", robocache.Where{"stream": key}, "rows of this stream vary in length").
			WithHint("GatherRagged reads them")
	}
	size := l.rowBytes()
	guard.Check(op.Room(key, "bytes", len(rows)*size, len(dst)))
	d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) {
		var c *column
		if l.coding == plain {
			c = d.column(rec, s.leaf, episode)
		}
		for _, i := range which {
			to, row := dst[i*size:(i+1)*size], l.row(rows[i].Index)
			switch {
			case c == nil:
				// of every row: without a map and a guard
				if err := l.encoded(rec, row, to); err != nil {
					guard.Fail(
						robocache.At(
							err,
							robocache.Where{
								"episode": d.About.EpisodeIndex(episode),
								"stream":  key,
								"row":     rows[i].Index,
							},
						),
					)
				}
			case c.rows == nil && l.absent(rec):
				clear(to)
			default:
				copy(to, c.rows[row*size:(row+1)*size])
			}
		}
	})
	return nil
}

// Valid says which rows of a stream that may be left out are there.
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
		if l.absent(rec) && l.rows(rec) > 0 {
			for _, i := range which {
				valid[i] = 0
			}
		}
	})
	return nil
}

// GatherRagged gives the rows of a stream whose rows vary in length.
func (d *Dataset) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	defer guard.Recover("rlds gather", &err)
	l, s, f := d.leafOf(key, robocache.KindNumeric, robocache.KindPointCloud)
	if !f.Ragged() {
		return nil, nil, robocache.Misuse("rlds gather", robocache.Where{"stream": key}, "rows of this stream are all of one length").
			WithHint("Gather reads them")
	}
	size := f.Elements() * f.DType.Size()
	parts := make([][]byte, len(rows))
	counts = make([]int, len(rows))
	d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) {
		c := d.column(rec, s.leaf, episode)
		for _, i := range which {
			k := l.row(rows[i].Index)
			switch {
			case l.coding != plain:
				b, err := guard.Value(func() []byte { return l.open(rec, k, d.limit) })
				if err == nil && (size == 0 || len(b)%size != 0) {
					err = l.miscount(len(b), fmt.Sprintf("a multiple of %d bytes", size))
				}
				if err != nil {
					guard.Fail(
						robocache.At(
							err,
							robocache.Where{
								"episode": d.About.EpisodeIndex(episode),
								"stream":  key,
								"row":     rows[i].Index,
							},
						),
					)
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
