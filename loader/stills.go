package loader

import (
	"cmp"
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// stillsPerJob bounds how many encoded images a job holds at once.
const stillsPerJob = 8

// stillSet is the frames that a unit wants of one column of stills, by row.
type stillSet struct {
	rows  []robocache.Row
	order []int32 // slots, sorted by row
	index []int32 // the distinct rows: where each begins in order
}

// sortStills finds the distinct rows of a column and cuts them into jobs.
func (w *worker) sortStills(p *part, col int) {
	c := &p.src.layout.columns[col]
	rows, err := w.frameRows(p, c)
	if err != nil {
		p.failAt(err)
		p.u.finish(int64(p.size() * c.steps))
		return
	}
	s := &stillSet{rows: rows, order: make([]int32, len(rows))}
	for i := range s.order {
		s.order[i] = int32(i)
	}
	slices.SortFunc(s.order, func(x, y int32) int {
		if d := cmp.Compare(rows[x].Episode, rows[y].Episode); d != 0 {
			return d
		}
		if d := cmp.Compare(rows[x].Index, rows[y].Index); d != 0 {
			return d
		}
		return cmp.Compare(x, y)
	})
	for i, slot := range s.order {
		if i == 0 || rows[slot] != rows[s.order[i-1]] {
			s.index = append(s.index, int32(i))
		}
	}
	for lo := 0; lo < len(s.index); lo += stillsPerJob {
		hi := int32(min(lo+stillsPerJob, len(s.index)))
		w.Push(job(p.u.seq, int64(col)<<32|int64(lo), frames.Still, &w.a.store.N.Decode, func(w *worker) { w.still(p, c, s, int32(lo), hi) }))
	}
}

// still decodes a few distinct rows and copies each frame to every place that wants it.
func (w *worker) still(p *part, c *column, s *stillSet, lo, hi int32) {
	defer w.Core()()
	src, u, kept, to := p.src, p.u, w.a.store, &target{p, c}
	cam := src.camera(c)
	rows := w.rows[:0]
	places := make([]int32, 0, stillsPerJob)
	for k := lo; k < hi; k++ {
		r := s.rows[s.order[s.index[k]]]
		if !noRow(r) && kept.Still(cam, r.Episode, r.Index, to, s.slots(k)) {
			continue
		}
		rows, places = append(rows, r), append(places, k)
	}
	w.rows = rows
	if len(rows) == 0 {
		return
	}
	asked := rows
	if c.aligns != nil {
		asked = slices.Clone(rows)
		for i := range asked {
			asked[i].Index = max(asked[i].Index, 0)
		}
	}
	refs := w.refsFor(len(rows))
	done, all := lease(w.Ctx(), src.ds, c.key, asked, refs)
	defer done()
	for i, r := range rows {
		slots := s.slots(places[i])
		if noRow(r) {
			for _, slot := range slots {
				w.blank(p, c, int(slot))
			}
			continue
		}
		err := all
		if err != nil && len(rows) > 1 {
			// One bad row must not take its neighbours with it.
			err = src.ds.Frames(w.Ctx(), c.key, asked[i:i+1], refs[i:i+1])
		}
		if err == nil && refs[i].Missing && c.feature.Masked {
			for _, slot := range slots {
				w.masked(p, c, int(slot))
			}
			continue
		}
		dst := to.Into(w.Worker, int(slots[0]))
		switch {
		case err != nil:
		case refs[i].Missing:
			err = src.missing(c, r, &refs[i])
		case refs[i].Path != "":
			err = &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "a still image that is in a video file"}
		default:
			err = c.decodeStill(&refs[i], dst)
		}
		refs[i] = robocache.FrameRef{}
		if err != nil {
			p.blame(r.Episode, robocache.At(err, src.where(c, r)))
			u.finish(int64(len(slots)))
			continue
		}
		for _, slot := range slots {
			p.put(c, int(slot), dst)
		}
		kept.KeepStill(cam, r.Episode, r.Index, dst)
		w.a.n.stills.Add(1)
		kept.N.Unique.Add(1)
		kept.N.Frames.Add(int64(len(slots)))
		u.finish(int64(len(slots)))
	}
}

// lease gets frames until done is called: without garbage, where the dataset can.
func lease(ctx context.Context, ds robocache.Dataset, key string, rows []robocache.Row, refs []robocache.FrameRef) (done func(), err error) {
	if l, ok := ds.(robocache.FrameLeaser); ok {
		done, err = l.LeaseFrames(ctx, key, rows, refs)
	} else {
		err = ds.Frames(ctx, key, rows, refs)
	}
	if done == nil {
		done = func() {}
	}
	return done, err
}

// slots are the places that want the k-th distinct row.
func (s *stillSet) slots(k int32) []int32 {
	end := len(s.order)
	if int(k)+1 < len(s.index) {
		end = int(s.index[k+1])
	}
	return s.order[s.index[k]:end]
}

func (c *column) decodeStill(ref *robocache.FrameRef, dst []byte) error {
	w, h := c.width, c.height
	if c.spec.Width == 0 || c.resize != Stretch {
		info, err := video.ImageSize(ref)
		if err != nil {
			return err
		}
		w, h = info.Width, info.Height
	}
	return c.draw(w, h, dst, func(d *draft) error { return video.DecodeImage(ref, &d.spec, d.into) })
}
