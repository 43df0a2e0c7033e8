package loader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// want is one place in a batch that a picture goes to.
type want struct {
	ordinal int
	path    int32 // index into the paths of the locate job
	unit    int32 // of the horizon
	slot    int32 // picture of the tensor
}

// fileTask is what a horizon wants of one file for one column.
type fileTask struct {
	h        *horizon
	col      int
	path     string
	wants    []want // by ordinal
	ordinals []int
	reel     reel
	pending  atomic.Int64 // groups
}

var fileTasks = sync.Pool{New: func() any { return new(fileTask) }}

// done counts a group; the last one gives the file back.
func (t *fileTask) done() {
	if t.pending.Add(-1) == 0 {
		t.reel.release()
		t.reel, t.h, t.wants = nil, nil, nil
		fileTasks.Put(t)
	}
}

// locate finds out where the pictures of a column lie, for all batches of a horizon, and makes a job a file.
func (w *worker) locate(h *horizon, col int) {
	a := w.a
	c := &a.layout.columns[col]
	total := 0
	for _, u := range h.units {
		total += u.batch.Rows * c.steps
	}
	wants := make([]want, 0, total)
	var paths []string
	known := map[string]int32{}
	for k, u := range h.units {
		rows, err := w.pictureRows(u, c)
		if err != nil {
			a.failAt(u, err)
			u.finish(int64(u.batch.Rows * c.steps))
			continue
		}
		refs := w.refsFor(len(rows))
		asked := rows
		if c.aligns != nil {
			asked = w.anyRow(rows)
		}
		if err := a.ds.Frames(w.ctx(), c.key, asked, refs); err != nil {
			a.isolate(u, asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
				return a.ds.Frames(w.ctx(), c.key, sub, make([]robocache.FrameRef, len(sub)))
			})
			u.finish(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			if noRow(rows[i]) {
				w.blank(u, c, i)
				continue
			}
			if r.Missing || r.Path == "" {
				a.blame(u, rows[i].Episode, a.missing(c, rows[i], r))
				u.finish(1)
				continue
			}
			p, ok := known[r.Path]
			if !ok {
				p = int32(len(paths))
				known[r.Path] = p
				paths = append(paths, r.Path)
			}
			wants = append(wants, want{ordinal: r.Ordinal, path: p, unit: int32(k), slot: int32(i)})
		}
		if a.cfg.Tolerance != nil && a.starts == nil {
			a.checkStamps(w.ctx(), u, c, rows)
		}
	}
	clear(w.refs)
	slices.SortFunc(wants, func(x, y want) int {
		if d := cmp.Compare(x.path, y.path); d != 0 {
			return d
		}
		if d := cmp.Compare(x.ordinal, y.ordinal); d != 0 {
			return d
		}
		if d := cmp.Compare(x.unit, y.unit); d != 0 {
			return d
		}
		return cmp.Compare(x.slot, y.slot)
	})
	for lo := 0; lo < len(wants); {
		hi := lo
		first := wants[lo].unit
		for hi < len(wants) && wants[hi].path == wants[lo].path {
			first = min(first, wants[hi].unit)
			hi++
		}
		t := fileTasks.Get().(*fileTask)
		t.h, t.col, t.path, t.wants = h, col, paths[wants[lo].path], wants[lo:hi]
		w.q.push(job{prio: h.units[first].seq, sub: int64(col)<<32 | int64(wants[lo].path), kind: jobFile, task: t})
		lo = hi
	}
}

// anyRow puts row 0 where there is none: its picture is not used.
func (w *worker) anyRow(rows []robocache.Row) []robocache.Row {
	w.rows = append(w.rows[:0], rows...)
	for i := range w.rows {
		w.rows[i].Index = max(w.rows[i].Index, 0)
	}
	return w.rows
}

// blank writes the picture of a place that has none: zero, and masked.
func (w *worker) blank(u *unit, c *column, slot int) {
	data := u.batch.Tensors[c.entry].Data
	clear(data[slot*c.outBytes : (slot+1)*c.outBytes])
	w.a.n.frames.Add(1)
	u.finish(1)
}

// where names the place of a picture or value, by the episode's number in the dataset.
func (a *assembler) where(c *column, r robocache.Row) robocache.Where {
	w := robocache.Where{"episode": r.Episode, "stream": c.key}
	if ep, err := a.ds.Episode(context.Background(), r.Episode); err == nil {
		w["episode"] = ep.Index
	}
	if r.Index >= 0 {
		w["row"] = r.Index
	}
	return w
}

func (a *assembler) missing(c *column, r robocache.Row, ref *robocache.FrameRef) error {
	e := &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: a.where(c, r), Msg: "the row has no picture",
		Hint: `on_bad_episode="skip" leaves such episodes out; 'robocache doctor' lists them`}
	if !ref.Missing {
		e.Class, e.Msg, e.Hint = robocache.ErrUnsupported, "a picture of a video stream that is in no video file", ""
	}
	return e
}

// openFile opens a file, plans its groups, and makes a job a group.
func (w *worker) openFile(t *fileTask) {
	a := w.a
	reel, err := a.reels.open(w.ctx(), t.path)
	if err != nil {
		w.lose(t, t.wants, err)
		t.h, t.wants = nil, nil
		fileTasks.Put(t)
		return
	}
	t.reel = reel
	t.ordinals = t.ordinals[:0]
	for lo := 0; lo < len(t.wants); {
		same := t.of(t.wants[lo].ordinal)
		if err := w.checkTime(t, &same[0]); err != nil {
			w.lose(t, same, err)
		} else {
			t.ordinals = append(t.ordinals, same[0].ordinal)
		}
		lo += len(same)
	}
	groups := reel.plan(&w.planner, t.ordinals)
	// The planner's slices are the next plan's: the groups' ordinals move into the task's own, in the groups' order.
	t.ordinals = t.ordinals[:0]
	t.pending.Store(int64(len(groups)) + 1) // one for this function
	for _, g := range groups {
		if g.Cost() <= 0 {
			for _, o := range g.Ordinals {
				w.lose(t, t.of(o), &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Where: robocache.Where{"ordinal": o}, Msg: "the video has no picture of that number", Hint: "the video is shorter than its table"})
			}
			t.done()
			continue
		}
		from := len(t.ordinals)
		t.ordinals = append(t.ordinals, g.Ordinals...)
		own := t.ordinals[from:len(t.ordinals):len(t.ordinals)]
		first := t.h.units[t.of(own[0])[0].unit].seq
		for _, o := range own[1:] {
			first = min(first, t.h.units[t.of(o)[0].unit].seq)
		}
		w.q.push(job{prio: first, sub: int64(t.col)<<48 | int64(t.wants[0].path)<<32 | int64(g.Start), kind: jobGroup, task: t, group: video.Group{Start: g.Start, End: g.End, Ordinals: own}})
	}
	t.done()
}

// of gives the wants of an ordinal.
func (t *fileTask) of(ordinal int) []want {
	lo, ok := slices.BinarySearchFunc(t.wants, ordinal, func(x want, o int) int { return cmp.Compare(x.ordinal, o) })
	if !ok {
		return nil
	}
	hi := lo
	for hi < len(t.wants) && t.wants[hi].ordinal == ordinal {
		hi++
	}
	return t.wants[lo:hi]
}

// lose notes that pictures will not come.
func (w *worker) lose(t *fileTask, wants []want, err error) {
	a := w.a
	c := &a.layout.columns[t.col]
	for i := range wants {
		u := t.h.units[wants[i].unit]
		r := robocache.Row{Episode: -1}
		if rows := u.rows[c.rows]; c.aligns == nil {
			r = rows[wants[i].slot]
		} else {
			r.Episode = u.rows[0][int(wants[i].slot)/c.steps].Episode
			r.Index = -1
		}
		where := a.where(c, r)
		where["file"], where["ordinal"] = t.path, wants[i].ordinal
		a.blame(u, r.Episode, robocache.At(err, where))
		u.finish(1)
	}
}

// decodeGroup decodes one group. Where it fails, each picture that did not come is tried alone: whether a picture can be
// had must not depend on its neighbours (L4).
func (w *worker) decodeGroup(t *fileTask, g video.Group) {
	a := w.a
	begin := time.Now()
	w.spent = 0
	err := w.decode(t, g)
	if err != nil || slices.Contains(w.got, false) {
		w.retry(t, g, err)
	}
	w.task = nil
	a.n.decode.Add(int64(time.Since(begin) - w.spent))
	a.n.convert.Add(int64(w.spent))
}

func (w *worker) decode(t *fileTask, g video.Group) error {
	w.task, w.group = t, g
	w.got = slices.Grow(w.got[:0], len(g.Ordinals))[:len(g.Ordinals)]
	clear(w.got)
	return t.reel.decode(w.ctx(), g, w.deliver)
}

func (w *worker) retry(t *fileTask, g video.Group, first error) {
	var lost []int
	for i, ok := range w.got {
		if !ok {
			lost = append(lost, g.Ordinals[i])
		}
	}
	for _, o := range lost {
		if w.ctx().Err() != nil {
			return // the run is over: its parts need not be counted
		}
		err := first
		if len(g.Ordinals) > 1 {
			var p video.Planner
			single := t.reel.plan(&p, []int{o})
			if err = w.decode(t, single[0]); w.got[0] {
				continue
			}
		}
		if err == nil {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Msg: "the decoder gave no picture"}
		}
		w.lose(t, t.of(o), err)
	}
}

// take gets one decoded picture: it is converted into the first place that wants it, and copied to the others.
func (w *worker) take(ordinal int, pic video.Picture) error {
	begin := time.Now()
	defer func() { w.spent += time.Since(begin) }()
	i, ok := slices.BinarySearch(w.group.Ordinals, ordinal)
	if !ok || w.got[i] {
		return nil
	}
	t := w.task
	a := w.a
	c := &a.layout.columns[t.col]
	if c.spec.Width == 0 {
		if pw, ph := pic.Size(); pw != c.width || ph != c.height {
			return sizeError(c, pw, ph)
		}
	}
	wants := t.of(ordinal)
	place := func(x *want) []byte {
		data := t.h.units[x.unit].batch.Tensors[c.entry].Data
		return data[int(x.slot)*c.outBytes : int(x.slot+1)*c.outBytes]
	}
	dst := place(&wants[0])
	if err := pic.Convert(&c.spec, dst); err != nil {
		return err
	}
	c.finishPicture(dst)
	for k := 1; k < len(wants); k++ {
		copy(place(&wants[k]), dst)
	}
	w.got[i] = true
	a.n.unique.Add(1)
	a.n.frames.Add(int64(len(wants)))
	// Only when all copies are made: a finished batch may be released, and its first picture overwritten.
	for k := range wants {
		t.h.units[wants[k].unit].finish(1)
	}
	return nil
}

func sizeError(c *column, width, height int) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "pictures of another size",
		Want: fmt.Sprintf("%d×%d", c.width, c.height), Got: fmt.Sprintf("%d×%d", width, height), Hint: "image_size=[h, w] brings all to one size"}
}

// finishPicture does what the decoder's conversion does not: metres, and normalisation.
func (c *column) finishPicture(dst []byte) {
	if !c.metres && c.norm == nil {
		return
	}
	v := floats32(dst)
	if c.metres {
		for i := range v {
			v[i] /= 1000
		}
	}
	if c.norm != nil {
		c.norm.planes(v, c.height*c.width)
	}
}
