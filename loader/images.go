package loader

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// want is one place in a batch that a frame goes to.
type want struct {
	ordinal int
	path    int32 // index into the paths of the locate job
	part    int32 // of the task
	slot    int32 // frame of the part
}

// fileTask is what a horizon wants of one file for one column.
type fileTask struct {
	src      *source
	parts    []*part // of the horizon
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
		t.reel, t.parts, t.wants = nil, nil, nil
		fileTasks.Put(t)
	}
}

// locate finds out where the frames of a column lie, for all batches of a horizon, and makes a job a file.
func (w *worker) locate(parts []*part, col int) {
	src := parts[0].src
	c := &src.layout.columns[col]
	total := 0
	for _, p := range parts {
		total += p.size() * c.steps
	}
	wants := make([]want, 0, total)
	var paths []string
	known := map[string]int32{}
	for k, p := range parts {
		rows, err := w.frameRows(p, c)
		if err != nil {
			p.failAt(err)
			p.u.finish(int64(p.size() * c.steps))
			continue
		}
		refs := w.refsFor(len(rows))
		asked := rows
		if c.aligns != nil {
			asked = w.anyRow(rows)
		}
		if err := src.ds.Frames(w.ctx(), c.key, asked, refs); err != nil {
			p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
				return src.ds.Frames(w.ctx(), c.key, sub, make([]robocache.FrameRef, len(sub)))
			})
			p.u.finish(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			if noRow(rows[i]) {
				w.blank(p, c, i)
				continue
			}
			if r.Missing && c.feature.Masked {
				w.masked(p, c, i)
				continue
			}
			if r.Missing || r.Path == "" {
				p.blame(rows[i].Episode, src.missing(c, rows[i], r))
				p.u.finish(1)
				continue
			}
			path, ok := known[r.Path]
			if !ok {
				path = int32(len(paths))
				known[r.Path] = path
				paths = append(paths, r.Path)
			}
			wants = append(wants, want{ordinal: r.Ordinal, path: path, part: int32(k), slot: int32(i)})
		}
		if src.cfg.Tolerance != nil && src.starts == nil {
			src.checkTimestamps(w.ctx(), p, c, rows)
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
		if d := cmp.Compare(x.part, y.part); d != 0 {
			return d
		}
		return cmp.Compare(x.slot, y.slot)
	})
	if w.a.frames != nil || w.a.disk != nil {
		if src.timed(c) {
			wants = w.timely(parts, col, wants, paths)
		}
		wants = w.found(parts, col, wants, paths)
	}
	for lo := 0; lo < len(wants); {
		hi := lo
		first := wants[lo].part
		for hi < len(wants) && wants[hi].path == wants[lo].path {
			first = min(first, wants[hi].part)
			hi++
		}
		t := fileTasks.Get().(*fileTask)
		t.src, t.parts, t.col, t.path, t.wants = src, parts, col, paths[wants[lo].path], wants[lo:hi]
		w.q.push(job{prio: parts[first].u.seq, sub: int64(col)<<32 | int64(wants[lo].path), kind: jobFile, task: t})
		lo = hi
	}
}

// anyRow puts row 0 where there is none: its frame is not used.
func (w *worker) anyRow(rows []robocache.Row) []robocache.Row {
	w.rows = append(w.rows[:0], rows...)
	for i := range w.rows {
		w.rows[i].Index = max(w.rows[i].Index, 0)
	}
	return w.rows
}

// blank writes the frame of a place that has none: zero, and masked.
func (w *worker) blank(p *part, c *column, slot int) {
	clear(p.pic(c, slot))
	p.absent(c, slot)
	w.a.n.frames.Add(1)
	p.u.finish(1)
}

// masked is blank for a place whose row may hold no frame, and holds none.
func (w *worker) masked(p *part, c *column, slot int) {
	p.data(c.mask)[p.slot(slot/c.steps)*c.steps+slot%c.steps] = 1
	w.blank(p, c, slot)
}

// openFile opens a file, plans its groups, and makes a job a group.
func (w *worker) openFile(t *fileTask) {
	reel, err := t.src.reels.open(w.ctx(), t.path)
	if err != nil {
		w.lose(t, t.wants, err)
		t.parts, t.wants = nil, nil
		fileTasks.Put(t)
		return
	}
	t.reel = reel
	if c := &t.src.layout.columns[t.col]; t.src.timed(c) {
		t.wants = w.timelyOf(reel, t.parts, c, t.wants, t.path)
	}
	t.ordinals = t.ordinals[:0]
	for lo := 0; lo < len(t.wants); {
		same := t.of(t.wants[lo].ordinal)
		t.ordinals = append(t.ordinals, same[0].ordinal)
		lo += len(same)
	}
	groups := reel.plan(&w.planner, t.ordinals)
	// The planner's slices are the next plan's: the groups' ordinals move into the task's own, in the groups' order.
	t.ordinals = t.ordinals[:0]
	t.pending.Store(int64(len(groups)) + 1) // one for this function
	far := w.a.remote != nil && reel.remote()
	var run []job
	var bytes int64
	push := func() {
		if len(run) == 0 {
			return
		}
		first := run[0].prio
		for i := range run {
			first = min(first, run[i].prio)
		}
		w.q.push(job{prio: first, sub: run[0].sub, kind: jobFetch, task: t, run: run})
		run, bytes = nil, 0
	}
	for _, g := range groups {
		if g.Cost() <= 0 {
			for _, o := range g.Ordinals {
				w.lose(t, t.of(o), &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Where: robocache.Where{"ordinal": o}, Msg: "the video has no frame of that number", Hint: "the video is shorter than its table"})
			}
			t.done()
			continue
		}
		from := len(t.ordinals)
		t.ordinals = append(t.ordinals, g.Ordinals...)
		own := t.ordinals[from:len(t.ordinals):len(t.ordinals)]
		first := t.parts[t.of(own[0])[0].part].u.seq
		for _, o := range own[1:] {
			first = min(first, t.parts[t.of(o)[0].part].u.seq)
		}
		j := job{prio: first, sub: int64(t.col)<<48 | int64(t.wants[0].path)<<32 | int64(g.Start), kind: jobGroup, task: t, group: video.Group{Start: g.Start, End: g.End, Ordinals: own}}
		if !far {
			w.q.push(j)
			continue
		}
		size := reel.fetchBytes(j.group)
		if len(run) == runGroups || len(run) > 0 && bytes+size > runBytes {
			push()
		}
		run, bytes = append(run, j), bytes+size
	}
	push()
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

// lose notes that frames will not come.
func (w *worker) lose(t *fileTask, wants []want, err error) {
	c := &t.src.layout.columns[t.col]
	for i := range wants {
		w.loseAt(t.parts[wants[i].part], c, int(wants[i].slot), t.path, wants[i].ordinal, err)
	}
}

// loseAt notes that the frame of one place will not come.
func (w *worker) loseAt(p *part, c *column, slot int, path string, ordinal int, err error) {
	r := robocache.Row{Episode: -1}
	if rows := p.rows[c.rows]; c.aligns == nil {
		r = rows[slot]
	} else {
		r.Episode = p.rows[0][slot/c.steps].Episode
		r.Index = -1
	}
	where := p.src.where(c, r)
	where["file"], where["ordinal"] = path, ordinal
	p.blame(r.Episode, robocache.At(err, where))
	p.u.finish(1)
}

// decodeGroup decodes one group. Where it fails, each frame that did not come is tried alone: whether a frame can be
// had must not depend on its neighbours (L4).
func (w *worker) decodeGroup(t *fileTask, f *fetched, g video.Group) {
	a := w.a
	var b *video.Fetched
	if f != nil {
		b = f.b
		defer w.a.remote.core()()
	} else {
		own, done, ok := w.fetch(t.reel, []video.Group{g})
		if !ok {
			return // the run is over: its parts need not be counted
		}
		defer done()
		b = own
	}
	begin := time.Now()
	w.spent = 0
	err := w.decode(t, b, g)
	if err != nil || slices.Contains(w.got, false) {
		w.retry(t, g, err)
	}
	w.task = nil
	a.n.decode.Add(int64(time.Since(begin) - w.spent))
	a.n.convert.Add(int64(w.spent))
}

func (w *worker) decode(t *fileTask, b *video.Fetched, g video.Group) error {
	w.task, w.group = t, g
	w.got = slices.Grow(w.got[:0], len(g.Ordinals))[:len(g.Ordinals)]
	clear(w.got)
	w.groups = append(w.groups[:0], g)
	return t.reel.decode(w.ctx(), b, w.groups, w.deliver)
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
			if err = w.decode(t, nil, single[0]); w.got[0] {
				continue
			}
		}
		if err == nil {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Msg: "the decoder gave no frame"}
		}
		w.lose(t, t.of(o), err)
	}
}

// take gets one decoded frame: it is converted into the first place that wants it, and copied to the others.
func (w *worker) take(ordinal int, pic video.Frame) error {
	begin := time.Now()
	defer func() { w.spent += time.Since(begin) }()
	i, ok := slices.BinarySearch(w.group.Ordinals, ordinal)
	if !ok || w.got[i] {
		return nil
	}
	t := w.task
	a := w.a
	c := &t.src.layout.columns[t.col]
	if c.spec.Width == 0 {
		if pw, ph := pic.Size(); pw != c.width || ph != c.height {
			return sizeError(c, pw, ph)
		}
	}
	wants := t.of(ordinal)
	dst := w.made(t.parts[wants[0].part], c, int(wants[0].slot))
	if err := c.render(pic, dst); err != nil {
		return err
	}
	for k := range wants {
		t.parts[wants[k].part].put(c, int(wants[k].slot), dst)
	}
	w.got[i] = true
	w.cacheFrame(t, c, ordinal, pic, dst)
	a.n.unique.Add(1)
	a.n.frames.Add(int64(len(wants)))
	// Only when all copies are made: a finished batch may be released, and its first frame overwritten.
	for k := range wants {
		t.parts[wants[k].part].u.finish(1)
	}
	return nil
}

func sizeError(c *column, width, height int) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "frames of another size",
		Want: dimensions(c.width, c.height), Got: dimensions(width, height), Hint: "image_size=[h, w] brings all to one size"}
}

func dimensions(width, height int) string { return fmt.Sprintf("%d×%d", width, height) }

// cacheFrame keeps a frame that was decoded for a batch, where there is a cache and room in it.
func (w *worker) cacheFrame(t *fileTask, c *column, ordinal int, pic video.Frame, pixels []byte) {
	a := w.a
	a.disk.put(w, t.src, c, t.path, ordinal, pic, pixels)
	f := a.frames
	if f == nil || f.room == 0 {
		return
	}
	size := len(pixels)
	if c.keepsPlanes(f, pic) {
		info, _ := pic.(video.PlanarFrame).PlaneInfo()
		size = info.Bytes()
	}
	f.mu.Lock()
	k := frameKey{t.src.column(t.col), f.file(t.src.column(t.col), t.path), int32(ordinal)}
	f.mu.Unlock()
	x := f.offer(k, size)
	if x == nil {
		return
	}
	stored, err := f.fill(x, pic, pixels)
	if err != nil || !stored {
		_ = w.serve(t.src, t.col, t.path, x, f.drop(x), pic, pixels)
		return
	}
	_ = w.serve(t.src, t.col, t.path, x, f.arrived(x, true), pic, pixels)
	f.done(x)
}
