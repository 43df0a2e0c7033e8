package calvin

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// remoteAtOnce is how many frames are asked for at the same time where each is a request.
const remoteAtOnce = 16

func (d *Dataset) get(key string, kind robocache.Kind) (*stream, error) {
	s, ok := d.streams[key]
	if !ok {
		return nil, op.NoStream(key)
	}
	return s, op.Kind(key, s.feature.Kind, kind)
}

// each runs fn for rows on all cores: frames are files of their own.
func (d *Dataset) each(ctx context.Context, rows []robocache.Row, fn func(ctx context.Context, i int) error) error {
	for _, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	if _, local := d.st.(*store.Local); !local {
		g.SetLimit(max(runtime.GOMAXPROCS(0), remoteAtOnce))
	}
	one := func(i int) (err error) {
		defer guard.Malformed("calvin read", &err)
		if err := ctx.Err(); err != nil {
			return err
		}
		return d.place(fn(ctx, i), rows[i])
	}
	if len(rows) == 1 {
		return one(0)
	}
	for i := range rows {
		g.Go(func() error { return one(i) })
	}
	return g.Wait()
}

func (d *Dataset) place(err error, r robocache.Row) error {
	return robocache.At(err, robocache.Where{"episode": r.Episode, "row": r.Index})
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("calvin gather", &err)
	s, err := d.get(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	size := s.feature.RowBytes()
	if err := op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	if s.member < 0 {
		for i, r := range rows {
			if err := d.checkRow(r); err != nil {
				return err
			}
			d.lang.embedding(d.eps[r.Episode], r.Index, dst[i*size:(i+1)*size])
		}
		return nil
	}
	m := &d.members[s.member]
	// What is kept is copied at once; files are opened for the rest alone.
	var missing []robocache.Row
	var positions []int
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
		if f, ok := d.cache.Peek(d.frameID(d.eps[r.Episode], r.Index)); ok {
			copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
			continue
		}
		missing, positions = append(missing, r), append(positions, i)
	}
	return d.each(ctx, missing, func(ctx context.Context, k int) error {
		f, _, err := d.open(ctx, d.eps[missing[k].Episode], missing[k].Index, false)
		if err != nil {
			return err
		}
		i := positions[k]
		copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
		return nil
	})
}
