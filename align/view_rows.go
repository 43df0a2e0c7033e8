package align

import (
	"context"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// apart is how far rows may lie from each other to be made together: what lies between them is read
// for nothing.
const apart = 16

// runs cuts rows, in the order asked, into runs of one episode that lie near each other, and gives
// each the plan of its rows.
func (v *Viewed) runs(
	ctx context.Context,
	rows []robocache.Row,
	plan func(*layout) (*kernel.Plan, error),
	fn func(at int, l *layout, p *kernel.Plan) error,
) error {
	for at := 0; at < len(rows); {
		l, err := v.layout(ctx, rows[at].Episode)
		if err != nil {
			return err
		}
		end := at
		var part []int
		for ; end < len(rows) && rows[end].Episode == rows[at].Episode; end++ {
			i := rows[end].Index
			if i < 0 || i >= len(l.times) {
				return robocache.Misuse("align", robocache.Where{"episode": v.info.EpisodeIndex(rows[at].Episode), "row": i}, "").
					Expected("a row below "+strconv.Itoa(len(l.times)), strconv.Itoa(i))
			}
			if n := len(part); n > 0 && (i < part[n-1] || i > part[n-1]+apart) {
				break
			}
			part = append(part, i)
		}
		p, err := plan(l)
		if err != nil {
			return err
		}
		whole := len(part) == p.Len()
		for k, i := range part {
			whole = whole && i == k
		}
		if !whole {
			p = choose(p, part)
		}
		if err := fn(at, l, p); err != nil {
			return robocache.At(
				err,
				robocache.Where{"episode": v.info.EpisodeIndex(rows[at].Episode)},
			)
		}
		at = end
	}
	return nil
}

// made runs a stream of the view over rows; values of numbers go into dst, rows of so many bytes,
// where it is not nil.
func (v *Viewed) made(
	ctx context.Context,
	i int,
	rows []robocache.Row,
	dst []byte,
	size int,
	fn func(at int, s *Stream) error,
) error {
	err := v.runs(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.plans[i], nil },
		func(at int, l *layout, p *kernel.Plan) error {
			a := newAligner(ctx, v.src, l.a.ep, v.cfg)
			if dst != nil {
				a.into = dst[at*size:][:p.Len()*size]
			}
			s, err := a.stream(&l.a.streams[i], p)
			if err != nil {
				return err
			}
			return fn(at, s)
		},
	)
	return robocache.At(err, robocache.Where{"stream": v.kept[i].Key})
}

// Gather gives aligned rows of a numeric stream, or of a mask.
func (v *Viewed) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	i, mask := v.masks[key]
	if !mask {
		var ok bool
		if i, ok = v.place[key]; !ok {
			return v.unknown(key)
		}
	}
	size := v.info.Feature(key).RowBytes()
	if size == 0 || len(dst) != len(rows)*size {
		return robocache.Misuse("align", robocache.Where{"stream": key}, "").
			Expected(strconv.Itoa(len(rows)*size)+" bytes of a numeric stream", strconv.Itoa(len(dst)))
	}
	if !mask {
		return v.made(ctx, i, rows, dst, size, func(int, *Stream) error { return nil })
	}
	return v.made(ctx, i, rows, nil, 0, func(at int, s *Stream) error {
		copy(dst[at:], s.Valid)
		return nil
	})
}

// Text gives aligned rows of a text or event stream, and of the task.
func (v *Viewed) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	if i, ok := v.place[key]; ok {
		return out, v.made(ctx, i, rows, nil, 0, func(at int, s *Stream) error {
			if s.Text == nil && len(rows) > 0 {
				return robocache.Misuse("align", nil, "").Expected("a text stream", string(s.Kind))
			}
			copy(out[at:], s.Text)
			return nil
		})
	}
	if key != "task" {
		return nil, v.unknown(key)
	}
	return out, v.runs(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.task() },
		func(at int, l *layout, p *kernel.Plan) (err error) {
			var s Stream
			if err := newAligner(ctx, v.src, l.a.ep, v.cfg).text("task", p, &s); err != nil {
				return err
			}
			copy(out[at:], s.Text)
			return nil
		},
	)
}

// shown gives the source's rows that stand at rows of the view; index -1 = none.
func (v *Viewed) shown(
	ctx context.Context,
	i int,
	rows []robocache.Row,
) (asked []robocache.Row, place []int, err error) {
	place = make([]int, len(rows))
	err = v.runs(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.plans[i], nil },
		func(at int, l *layout, p *kernel.Plan) (err error) {
			if p, err = newAligner(
				ctx,
				v.src,
				l.a.ep,
				v.cfg,
			).masked(&l.a.streams[i], p); err != nil {
				return err
			}
			picked, where := distinct(p, l.a.ep)
			clamped := v.cfg.Edge.Says(v.kept[i].Key) && l.a.streams[i].opt.Edge == EdgeClamp
			for k, w := range where {
				place[at+k] = -1
				if w >= 0 && (p.Valid[k] != 0 || clamped) {
					place[at+k] = len(asked) + int(w)
				}
			}
			asked = append(asked, picked...)
			return nil
		},
	)
	return asked, place, err
}

// Frames says where the frames of rows lie: those of the rows that the mode chose.
func (v *Viewed) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	i, ok := v.place[key]
	if !ok {
		return v.unknown(key)
	}
	asked, place, err := v.shown(ctx, i, rows)
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": key})
	}
	refs := make([]robocache.FrameRef, len(asked))
	if err := v.src.Frames(ctx, key, asked, refs); err != nil {
		return err
	}
	for k, p := range place {
		out[k] = robocache.FrameRef{Missing: true}
		if p >= 0 {
			out[k] = refs[p]
		}
	}
	return nil
}

// GatherRagged gives the entries of the rows that the mode chose.
func (v *Viewed) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) ([]byte, []int, error) {
	i, ok := v.place[key]
	if !ok {
		return nil, nil, v.unknown(key)
	}
	asked, place, err := v.shown(ctx, i, rows)
	if err != nil {
		return nil, nil, robocache.At(err, robocache.Where{"stream": key})
	}
	data, counts, err := robocache.GatherRagged(ctx, v.src, key, asked)
	if err != nil {
		return nil, nil, err
	}
	f := &v.kept[i]
	size, from := f.Elements()*f.DType.Size(), make([]int, len(counts)+1)
	for k, n := range counts {
		from[k+1] = from[k] + n*size
	}
	if len(counts) != len(asked) || len(data) != from[len(counts)] {
		return nil, nil, robocache.Malformed("align", robocache.Where{"stream": key}, "").
			Expected(strconv.Itoa(len(asked))+" ragged rows", strconv.Itoa(len(counts)))
	}
	out, n := make([]byte, 0, len(data)), make([]int, len(rows))
	for k, p := range place {
		if p >= 0 {
			n[k] = counts[p]
			out = append(out, data[from[p]:from[p+1]]...)
		}
	}
	return out, n, nil
}
