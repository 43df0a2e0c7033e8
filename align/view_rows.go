package align

import (
	"context"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// maxRowDistance is the maximal distance of two rows that are computed together. The samples
// between them are read without being used.
const maxRowDistance = 16

// eachRun cuts rows, in the given order, into runs of increasing rows of one episode that lie near
// each other. It calls fn with the position of each run in rows and the part of a layout's plan for
// it. plan selects that plan.
func (v *Viewed) eachRun(
	ctx context.Context,
	rows []robocache.Row,
	plan func(*layout) (*kernel.Plan, error),
	fn func(at int, l *layout, p *kernel.Plan) error,
) error {
	for at := 0; at < len(rows); {
		l, err := v.layoutOf(ctx, rows[at].Episode)
		if err != nil {
			return err
		}
		end := at
		var part []int
		for ; end < len(rows) && rows[end].Episode == rows[at].Episode; end++ {
			i := rows[end].Index
			if i < 0 || i >= len(l.times) {
				return robocache.Misuse("align", robocache.Where{
					"episode": v.info.EpisodeIndex(rows[at].Episode),
					"row":     i,
				}, "").
					Expected("a row below "+strconv.Itoa(len(l.times)), strconv.Itoa(i))
			}
			if n := len(part); n > 0 && (i < part[n-1] || i > part[n-1]+maxRowDistance) {
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
			p = selectRows(p, part)
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

// makeRows computes rows of stream i of the view. It calls fn with each run of them (eachRun) and
// the position of the run in rows. If dst is not nil, numbers are written to it, with size bytes per
// row.
func (v *Viewed) makeRows(
	ctx context.Context,
	i int,
	rows []robocache.Row,
	dst []byte,
	size int,
	fn func(at int, s *Stream) error,
) error {
	err := v.eachRun(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.plans[i], nil },
		func(at int, l *layout, p *kernel.Plan) error {
			a := newAligner(ctx, v.src, l.a.ep, v.cfg)
			if dst != nil {
				a.into = dst[at*size:][:p.Len()*size]
			}
			s, err := a.makeStream(&l.a.streams[i], p)
			if err != nil {
				return err
			}
			return fn(at, s)
		},
	)
	return robocache.At(err, robocache.Where{"stream": v.kept[i].Key})
}

// Gather returns aligned rows of a numeric stream or of a mask.
func (v *Viewed) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	i, mask := v.masks[key]
	if !mask {
		var ok bool
		if i, ok = v.place[key]; !ok {
			return v.unknownStream(key)
		}
	}
	size := v.info.Feature(key).RowBytes()
	if size == 0 || len(dst) != len(rows)*size {
		return robocache.Misuse("align", robocache.Where{"stream": key}, "").
			Expected(
				strconv.Itoa(len(rows)*size)+" bytes of a numeric stream",
				strconv.Itoa(len(dst)),
			)
	}
	if !mask {
		return v.makeRows(ctx, i, rows, dst, size, func(int, *Stream) error { return nil })
	}
	return v.makeRows(ctx, i, rows, nil, 0, func(at int, s *Stream) error {
		copy(dst[at:], s.Valid)
		return nil
	})
}

// Text returns aligned rows of a text or event stream, or of the task.
func (v *Viewed) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	if i, ok := v.place[key]; ok {
		return out, v.makeRows(ctx, i, rows, nil, 0, func(at int, s *Stream) error {
			if s.Text == nil && len(rows) > 0 {
				return robocache.Misuse("align", nil, "").Expected("a text stream", string(s.Kind))
			}
			copy(out[at:], s.Text)
			return nil
		})
	}
	if key != "task" {
		return nil, v.unknownStream(key)
	}
	return out, v.eachRun(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.task() },
		func(at int, l *layout, p *kernel.Plan) (err error) {
			var s Stream
			if err := newAligner(ctx, v.src, l.a.ep, v.cfg).readText("task", p, &s); err != nil {
				return err
			}
			copy(out[at:], s.Text)
			return nil
		},
	)
}

// sourceRows returns the rows of the source that rows of stream i show. place[k] is the
// index in shown of the row that rows[k] shows; -1 = none.
func (v *Viewed) sourceRows(
	ctx context.Context,
	i int,
	rows []robocache.Row,
) (shown []robocache.Row, place []int, err error) {
	place = make([]int, len(rows))
	err = v.eachRun(
		ctx,
		rows,
		func(l *layout) (*kernel.Plan, error) { return l.plans[i], nil },
		func(at int, l *layout, p *kernel.Plan) (err error) {
			if p, err = newAligner(ctx, v.src, l.a.ep, v.cfg).maskPlan(&l.a.streams[i], p); err !=
				nil {
				return err
			}
			picked, where := distinctRows(p, l.a.ep)
			// Clamp must be named, because it is also the default.
			clamped := v.cfg.Edge.Says(v.kept[i].Key) && l.a.streams[i].opt.Edge == EdgeClamp
			for k, w := range where {
				place[at+k] = -1
				if w >= 0 && (p.Valid[k] != 0 || clamped) {
					place[at+k] = len(shown) + int(w)
				}
			}
			shown = append(shown, picked...)
			return nil
		},
	)
	return shown, place, err
}

// Frames locates the frames of rows: those of the source's rows that the mode chose.
func (v *Viewed) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	i, ok := v.place[key]
	if !ok {
		return v.unknownStream(key)
	}
	shown, place, err := v.sourceRows(ctx, i, rows)
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": key})
	}
	refs := make([]robocache.FrameRef, len(shown))
	if err := v.src.Frames(ctx, key, shown, refs); err != nil {
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

// GatherRagged returns the entries of the source's rows that the mode chose.
func (v *Viewed) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) ([]byte, []int, error) {
	i, ok := v.place[key]
	if !ok {
		return nil, nil, v.unknownStream(key)
	}
	shown, place, err := v.sourceRows(ctx, i, rows)
	if err != nil {
		return nil, nil, robocache.At(err, robocache.Where{"stream": key})
	}
	data, counts, err := robocache.GatherRagged(ctx, v.src, key, shown)
	if err != nil {
		return nil, nil, err
	}
	f := &v.kept[i]
	size, begins := f.Elements()*f.DType.Size(), make([]int, len(counts)+1)
	for k, n := range counts {
		begins[k+1] = begins[k] + n*size
	}
	if len(counts) != len(shown) || len(data) != begins[len(counts)] {
		return nil, nil, robocache.Malformed("align", robocache.Where{"stream": key}, "").
			Expected(strconv.Itoa(len(shown))+" ragged rows", strconv.Itoa(len(counts)))
	}
	out, outCounts := make([]byte, 0, len(data)), make([]int, len(rows))
	for k, p := range place {
		if p >= 0 {
			outCounts[k] = counts[p]
			out = append(out, data[begins[p]:begins[p+1]]...)
		}
	}
	return out, outCounts, nil
}
