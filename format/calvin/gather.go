package calvin

import (
	"cmp"
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// remoteAtOnce is how many frames are asked for at the same time where each is a request.
const remoteAtOnce = 16

func (d *Dataset) get(key string, kind robocache.Kind) *stream {
	s, ok := d.streams[key]
	if !ok {
		guard.Fail(op.NoStream(key))
	}
	guard.Check(op.Kind(key, s.feature.Kind, kind))
	return s
}

// each runs fn for rows on all cores: frames are files of their own.
func (d *Dataset) each(ctx context.Context, rows []robocache.Row, fn func(ctx context.Context, i int)) {
	for _, r := range rows {
		d.checkRow(r)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	if _, local := d.st.(*store.Local); !local {
		g.SetLimit(max(runtime.GOMAXPROCS(0), remoteAtOnce))
	}
	var alone error
	for i := range rows {
		one := func() (err error) {
			defer guard.Malformed("calvin read", &err)
			guard.Check(ctx.Err())
			err = guard.Try(func() { fn(ctx, i) })
			return robocache.At(err, robocache.Where{"episode": rows[i].Episode, "row": rows[i].Index})
		}
		if len(rows) > 1 {
			g.Go(one)
		} else {
			alone = one()
		}
	}
	guard.Check(cmp.Or(g.Wait(), alone))
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("calvin gather", &err)
	s := d.get(key, robocache.KindNumeric)
	size := s.feature.RowBytes()
	guard.Check(op.Room(key, "bytes", len(rows)*size, len(dst)))
	if s.member < 0 {
		for i, r := range rows {
			d.checkRow(r)
			d.lang.embedding(d.eps[r.Episode], r.Index, dst[i*size:(i+1)*size])
		}
		return nil
	}
	m := &d.members[s.member]
	// What is kept is copied at once; files are opened for the rest alone.
	var missing []robocache.Row
	var positions []int
	for i, r := range rows {
		d.checkRow(r)
		if f, ok := d.cache.Peek(d.frameID(d.eps[r.Episode], r.Index)); ok {
			copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
			continue
		}
		missing, positions = append(missing, r), append(positions, i)
	}
	d.each(ctx, missing, func(ctx context.Context, k int) {
		f, _ := d.open(ctx, d.eps[missing[k].Episode], missing[k].Index, false)
		i := positions[k]
		copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
	})
	return nil
}
