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
)

// load gives the record of an episode, whole.
func (d *Dataset) load(ctx context.Context, episode int) (*record, error) {
	s, r, err := d.place(episode)
	if err != nil {
		return nil, err
	}
	rec, err := d.recs.Get(ctx, episode, func() (*record, int64, error) {
		b, err := d.read(ctx, s, r)
		if err != nil {
			return nil, 0, err
		}
		rec, err := d.s.parseRecord(b)
		if err != nil {
			return nil, 0, err
		}
		if rec.steps != int(d.index[s].steps[r]) {
			return nil, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Msg: "the number of steps, against the heads of the record's features", Want: fmt.Sprint(d.index[s].steps[r]), Got: fmt.Sprint(rec.steps)}
		}
		if t := rec.thin(d.s); t != nil {
			d.thin.Put(episode, t, t.bytes())
		}
		return rec, rec.bytes(), nil
	})
	if err != nil {
		return nil, d.at(err, s, r)
	}
	return rec, nil
}

// values gives the record of an episode, perhaps without its images.
func (d *Dataset) values(ctx context.Context, episode int) (*record, error) {
	if rec := d.peek(episode); rec != nil {
		return rec, nil
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

// grown tells the cache that a record was unfolded further: that record, and not one that was loaded again since.
func (d *Dataset) grown(episode int, rec *record) func(int64) {
	c := d.recs
	if rec.slim {
		c = d.thin
	}
	return func(n int64) {
		if now, ok := c.Peek(episode); ok && now == rec {
			c.Grow(episode, n)
		}
	}
}

// at adds the place of a record to an error.
func (d *Dataset) at(err error, s, r int) error {
	return robocache.At(err, robocache.Where{"file": d.shards[s].name, "offset": d.index[s].off[r], "episode": d.ids[s] + int64(r)})
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
func (d *Dataset) read(ctx context.Context, s, r int) (b []byte, err error) {
	x := d.index[s]
	if x.length[r] > d.limit {
		return nil, tooLarge(x.length[r], d.limit)
	}
	err = d.withShard(ctx, s, func(f robocache.Ranged) error {
		b = make([]byte, headBytes+x.length[r]+tailBytes)
		return f.ReadAt(ctx, b, x.off[r])
	})
	return b, err
}

// withShard calls fn with the records of a shard, of the version that was indexed.
func (d *Dataset) withShard(ctx context.Context, s int, fn func(r robocache.Ranged) error) (err error) {
	defer guard.Malformed("rlds", &err)
	name, x := d.shards[s].name, d.index[s]
	f := guard.Must(d.open(ctx, name))
	defer d.files.Put(f)
	guard.Check(x.check(f.Value))
	if x.packed == unpacked {
		return fn(f.Value)
	}
	u := guard.Must(d.plain.shard(ctx, name, f.Value, x.packed, d.limit))
	return fn(u)
}

// check says whether a file is the one that was indexed.
func (x *shardIndex) check(f robocache.Ranged) error {
	if f.Size() != x.size || f.Version() != x.version {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Msg: "the shard changed since it was indexed", Want: fmt.Sprintf("version %s", x.version), Got: fmt.Sprintf("version %s", f.Version()), Hint: "open the data set again"}
	}
	return nil
}

// checkRow says whether a row is there.
func (d *Dataset) checkRow(row robocache.Row) error {
	if err := op.Episode(d.info.Episodes, row.Episode); err != nil {
		return err
	}
	return op.Row(d.Len(row.Episode), row)
}

// eachEpisode calls fn with every record that the rows need, and with the numbers of its rows; the records are loaded several at a time,
// and fn runs as often at once.
func (d *Dataset) eachEpisode(ctx context.Context, l *leaf, rows []robocache.Row, fn func(rec *record, episode int, which []int) error) error {
	images := l.coding == frame || l.coding == floatPNG
	order := make([]int, len(rows))
	sorted := true
	for i, r := range rows {
		guard.Check(robocache.At(d.checkRow(r), robocache.Where{"stream": l.key}))
		order[i] = i
		sorted = sorted && (i == 0 || rows[i-1].Episode <= r.Episode)
	}
	if !sorted {
		slices.SortStableFunc(order, func(a, b int) int { return rows[a].Episode - rows[b].Episode })
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
			defer guard.Malformed("rlds gather", &err)
			if !here {
				rec = guard.Must(d.values(gctx, episode))
			}
			return fn(rec, episode, which)
		}
		if !here && len(which) < len(rows) {
			g.Go(one)
		} else if err := one(); err != nil {
			_ = g.Wait()
			return err
		}
	}
	return g.Wait()
}

// leafOf gives the leaf of a stream of one of some kinds.
func (d *Dataset) leafOf(key string, kinds ...robocache.Kind) (*leaf, source, *robocache.Feature, error) {
	s, ok := d.byKey[key]
	if !ok {
		for i := range d.s.leaves {
			if l := &d.s.leaves[i]; l.key == key && l.what != "" {
				return nil, s, nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "rlds", Where: robocache.Where{"stream": key}, Msg: l.what + " is not read"}
			}
		}
		return nil, s, nil, op.NoStream(key)
	}
	f := d.info.Feature(key)
	if len(kinds) > 0 {
		if err := op.Kind(key, f.Kind, kinds...); err != nil {
			return nil, s, nil, err
		}
	}
	return &d.s.leaves[s.leaf], s, f, nil
}

// row is the row of a leaf that a step shows: values of the episode hold for each step.
func (l *leaf) row(index int) int {
	if l.step {
		return index
	}
	return 0
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("rlds gather", &err)
	l, s, f, err := d.leafOf(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	if f.Ragged() {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds gather", Where: robocache.Where{"stream": key}, Msg: "rows of this stream vary in length", Hint: "GatherRagged reads them"}
	}
	size := l.rowBytes()
	guard.Check(op.Room(key, "bytes", len(rows)*size, len(dst)))
	return d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) error {
		var c *column
		if l.coding == plain {
			var err error
			if c, err = d.s.column(rec, s.leaf, d.grown(episode, rec)); err != nil {
				return robocache.At(err, robocache.Where{"episode": episode})
			}
		}
		for _, i := range which {
			to, row := dst[i*size:(i+1)*size], l.row(rows[i].Index)
			switch {
			case c == nil:
				if err := l.encoded(rec, row, to); err != nil {
					return robocache.At(err, robocache.Where{"episode": episode, "stream": key, "row": rows[i].Index})
				}
			case c.rows == nil && l.absent(rec):
				clear(to)
			default:
				copy(to, c.rows[row*size:(row+1)*size])
			}
		}
		return nil
	})
}

// Valid says which rows of a stream that may be left out are there.
func (d *Dataset) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) (err error) {
	defer guard.Malformed("rlds valid", &err)
	l, _, _, err := d.leafOf(key)
	if err != nil {
		return err
	}
	guard.Check(op.Room(key, "bytes", len(rows), len(valid)))
	if reader.AllValid(valid); !l.optional {
		return nil
	}
	return d.eachEpisode(ctx, l, rows, func(rec *record, _ int, which []int) error {
		if l.absent(rec) && l.rows(rec) > 0 {
			for _, i := range which {
				valid[i] = 0
			}
		}
		return nil
	})
}

// GatherRagged gives the rows of a stream whose rows vary in length.
func (d *Dataset) GatherRagged(ctx context.Context, key string, rows []robocache.Row) (data []byte, counts []int, err error) {
	defer guard.Malformed("rlds gather", &err)
	l, s, f, err := d.leafOf(key, robocache.KindNumeric, robocache.KindPointCloud)
	if err != nil {
		return nil, nil, err
	}
	if !f.Ragged() {
		return nil, nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds gather", Where: robocache.Where{"stream": key}, Msg: "rows of this stream are all of one length", Hint: "Gather reads them"}
	}
	size := f.Elements() * f.DType.Size()
	parts := make([][]byte, len(rows))
	counts = make([]int, len(rows))
	err = d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) error {
		c, err := d.s.column(rec, s.leaf, d.grown(episode, rec))
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": episode})
		}
		for _, i := range which {
			k := l.row(rows[i].Index)
			switch {
			case l.coding != plain:
				b, err := l.open(rec, k, d.limit)
				if err == nil && (size == 0 || len(b)%size != 0) {
					err = l.miscount(len(b), fmt.Sprintf("a multiple of %d bytes", size))
				}
				if err != nil {
					return robocache.At(err, robocache.Where{"episode": episode, "stream": key, "row": rows[i].Index})
				}
				parts[i] = b
			case s.nested:
				parts[i] = c.innerLengths(k)
			case c.starts != nil:
				parts[i] = c.rows[c.starts[k]*int64(size) : c.starts[k+1]*int64(size)]
			}
			counts[i] = len(parts[i]) / max(size, 1)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return slices.Concat(parts...), counts, nil
}
