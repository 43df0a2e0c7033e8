package rlds

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
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
func (d *Dataset) withShard(ctx context.Context, s int, fn func(r robocache.Ranged) error) error {
	name, x := d.shards[s].name, d.index[s]
	f, err := d.open(ctx, name)
	if err != nil {
		return err
	}
	defer d.files.Put(f)
	if err := x.check(f.Value); err != nil {
		return err
	}
	if x.packed == unpacked {
		return fn(f.Value)
	}
	u, err := d.scratch.shard(ctx, name, f.Value, x.packed, d.limit)
	if err != nil {
		return err
	}
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
func (d *Dataset) checkRow(l *leaf, row robocache.Row) error {
	n := d.Len(row.Episode)
	if _, _, err := d.place(row.Episode); err != nil {
		return err
	}
	if row.Index < 0 || row.Index >= n {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds", Where: robocache.Where{"episode": row.Episode, "stream": l.key, "row": row.Index}, Want: fmt.Sprintf("a row from 0 to %d", n-1), Got: fmt.Sprint(row.Index)}
	}
	return nil
}

// eachEpisode calls fn with every record that the rows need, and with the numbers of its rows; the records are loaded several at a time,
// and fn runs as often at once. which is nil where all rows are of one episode.
func (d *Dataset) eachEpisode(ctx context.Context, l *leaf, rows []robocache.Row, fn func(rec *record, episode int, which []int) error) error {
	images := l.coding == frame || l.coding == floatPNG
	single := true
	for _, r := range rows {
		if err := d.checkRow(l, r); err != nil {
			return err
		}
		single = single && r.Episode == rows[0].Episode
	}
	if len(rows) == 0 {
		return nil
	}
	if single {
		rec, err := d.values(ctx, rows[0].Episode)
		if err != nil {
			return err
		}
		return fn(rec, rows[0].Episode, nil)
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rows[a].Episode - rows[b].Episode })
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && rows[order[to]].Episode == rows[order[from]].Episode {
			to++
		}
		which := order[from:to]
		episode := rows[which[0]].Episode
		from = to
		if rec := d.peek(episode); rec != nil && !(rec.slim && images) {
			if err := fn(rec, episode, which); err != nil {
				g.Wait()
				return err
			}
			continue
		}
		g.Go(func() (err error) {
			defer guard.Malformed("rlds gather", &err)
			rec, err := d.values(ctx, episode)
			if err != nil {
				return err
			}
			return fn(rec, episode, which)
		})
	}
	return g.Wait()
}

// visit calls fn for each of the rows of one episode: those numbered in which, or all.
func visit(rows []robocache.Row, which []int, fn func(i int) error) error {
	if which == nil {
		for i := range rows {
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range which {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// find gives the leaf of a stream of one of some kinds.
func (d *Dataset) leafOf(key string, kinds ...robocache.Kind) (*leaf, source, *robocache.Feature, error) {
	s, ok := d.byKey[key]
	if !ok {
		for i := range d.s.leaves {
			if l := &d.s.leaves[i]; l.key == key && l.what != "" {
				return nil, s, nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "rlds", Where: robocache.Where{"stream": key}, Msg: l.what + " is not read"}
			}
		}
		return nil, s, nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "rlds", Where: robocache.Where{"stream": key}, Msg: "no stream of this name"}
	}
	f := d.info.Feature(key)
	if len(kinds) > 0 && !slices.Contains(kinds, f.Kind) {
		return nil, s, nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("a stream of kind %s", kinds[0]), Got: string(f.Kind)}
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
	if len(dst) != len(rows)*size {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds gather", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("%d bytes for %d rows", len(rows)*size, len(rows)), Got: fmt.Sprint(len(dst))}
	}
	return d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) error {
		if l.coding != plain {
			return visit(rows, which, func(i int) error {
				return robocache.At(l.encoded(rec, l.row(rows[i].Index), dst[i*size:(i+1)*size]), robocache.Where{"episode": episode, "stream": key, "row": rows[i].Index})
			})
		}
		c, err := d.s.column(rec, s.leaf, d.grown(episode, rec))
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": episode})
		}
		if c.rows == nil && l.absent(rec) {
			return visit(rows, which, func(i int) error {
				clear(dst[i*size : (i+1)*size])
				return nil
			})
		}
		return visit(rows, which, func(i int) error {
			at := l.row(rows[i].Index) * size
			copy(dst[i*size:(i+1)*size], c.rows[at:at+size])
			return nil
		})
	})
}

// Valid says which rows of a stream that may be left out are there.
func (d *Dataset) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) (err error) {
	defer guard.Malformed("rlds valid", &err)
	l, _, _, err := d.leafOf(key)
	if err != nil {
		return err
	}
	if len(valid) != len(rows) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds valid", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("%d bytes", len(rows)), Got: fmt.Sprint(len(valid))}
	}
	if !l.optional {
		for i := range valid {
			valid[i] = 1
		}
		return nil
	}
	return d.eachEpisode(ctx, l, rows, func(rec *record, _ int, which []int) error {
		v := uint8(1)
		if l.absent(rec) && l.rows(rec) > 0 {
			v = 0
		}
		return visit(rows, which, func(i int) error {
			valid[i] = v
			return nil
		})
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
		return visit(rows, which, func(i int) error {
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
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	data = make([]byte, 0, n)
	for _, p := range parts {
		data = append(data, p...)
	}
	return data, counts, nil
}
