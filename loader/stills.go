package loader

import (
	"cmp"
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
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
		w.q.push(job{prio: p.u.seq, sub: int64(col)<<32 | int64(lo), kind: jobStill, p: p, col: int32(col), lo: int32(lo), hi: int32(min(lo+stillsPerJob, len(s.index))), stills: s})
	}
}

// still decodes a few distinct rows and copies each frame to every place that wants it.
func (w *worker) still(j *job) {
	a, p, s := w.a, j.p, j.stills
	src, u := p.src, p.u
	c := &src.layout.columns[j.col]
	rows := w.rows[:0]
	places := make([]int32, 0, stillsPerJob)
	for k := j.lo; k < j.hi; k++ {
		r := s.rows[s.order[s.index[k]]]
		if w.keptStill(p, c, r, s.slots(k)) {
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
	done, all := lend(w.ctx(), src.ds, c.key, asked, refs)
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
			err = src.ds.Frames(w.ctx(), c.key, asked[i:i+1], refs[i:i+1])
		}
		if err == nil && refs[i].Missing && c.feature.Masked {
			for _, slot := range slots {
				w.masked(p, c, int(slot))
			}
			continue
		}
		dst := w.made(p, c, int(slots[0]))
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
		w.keepStill(src, c, r, dst)
		a.n.stills.Add(1)
		a.n.unique.Add(1)
		a.n.frames.Add(int64(len(slots)))
		u.finish(int64(len(slots)))
	}
}

// lend gets frames until done is called: without garbage, where the dataset can.
func lend(ctx context.Context, ds robocache.Dataset, key string, rows []robocache.Row, refs []robocache.FrameRef) (done func(), err error) {
	if l, ok := ds.(robocache.Lender); ok {
		done, err = l.LendFrames(ctx, key, rows, refs)
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

// stillKey names a still in the RAM cache: it has no file, but an episode and a row.
func stillKey(src *source, c *column, r robocache.Row) frameKey {
	return frameKey{src.column(c.number), int32(-1 - r.Episode), int32(r.Index)}
}

// keptStill writes a still that is in the RAM cache to all places that want it. The encoded image is not read.
func (w *worker) keptStill(p *part, c *column, r robocache.Row, slots []int32) bool {
	f := w.a.frames
	if f == nil || f.room == 0 || noRow(r) {
		return false
	}
	f.mu.Lock()
	x := f.have[stillKey(p.src, c, r)]
	if x == nil || x.state != ready {
		f.n.misses++
		f.mu.Unlock()
		return false
	}
	f.n.hits++
	x.pins++
	f.mu.Unlock()
	for _, slot := range slots {
		p.put(c, int(slot), x.at.mem[:x.size])
	}
	f.done(x)
	w.a.n.frames.Add(int64(len(slots)))
	p.u.finish(int64(len(slots)))
	return true
}

// keepStill keeps a decoded still, as it is in the batch, where there is a RAM cache with room.
func (w *worker) keepStill(src *source, c *column, r robocache.Row, pixels []byte) {
	f := w.a.frames
	if f == nil || f.room == 0 {
		return
	}
	x := f.offer(stillKey(src, c, r), len(pixels))
	if x == nil {
		return
	}
	if stored, err := f.fill(x, nil, pixels); err != nil || !stored {
		f.drop(x)
		return
	}
	f.arrived(x, true)
	f.done(x)
}

func (c *column) decodeStill(ref *robocache.FrameRef, dst []byte) error {
	var w, h int
	if c.spec.Width == 0 || c.resize != Stretch {
		info, err := video.ImageSize(ref)
		if err != nil {
			return err
		}
		if w, h = info.Width, info.Height; c.spec.Width == 0 && (w != c.width || h != c.height) {
			return sizeError(c, w, h)
		}
	}
	d, err := c.draft(w, h, dst)
	if err != nil {
		return err
	}
	if err := video.DecodeImage(ref, &d.spec, d.into); err != nil {
		d.drop()
		return err
	}
	return d.done()
}
