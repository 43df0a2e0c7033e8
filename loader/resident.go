package loader

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/video"
)

// chunk is neighbouring frames of one file that are decoded in one go for a pool: few enough that the first batch does not
// wait for whole episodes, and enough that starting at a sync sample is paid rarely.
type chunk struct {
	src    *source
	col    int
	path   string
	frames []*frame // by ordinal
	prio   int64    // of its most urgent job; guarded by frames.mu
	begun  atomic.Bool
}

const (
	chunkFrames = 32
	// background is how many batches later than its admission an episode's frames come that no batch has asked for yet.
	background = 64
)

// admitted is the frames that an admission wants of one file.
type admitted struct {
	src    *source
	col    int
	path   string
	frames []*frame
	seq    int64
}

// worthwhile is the part of a pool's samples that a rank must take for keeping its episodes to pay.
const worthwhile = 0.2

// follow brings the residents to where the order's pool is at a step: before its batch is made.
func (w *worker) follow(s *order.Step, seq int64) {
	if w.a.frames == nil {
		return
	}
	for i := range s.Admitted {
		if s.Admitted[i].Share >= worthwhile {
			w.admit(w.q, &s.Admitted[i], seq)
		}
	}
	w.release(s.Passed)
}

// admit makes an episode resident: what its samples will want is noted, and decoded from then on. Where it fails, nothing is noted:
// the samples find their frames as those of other orders do, and report what is wrong.
func (w *worker) admit(q *queue, adm *order.Admission, seq int64) {
	a := w.a
	src := a.sources[adm.Source]
	p := &part{src: src}
	p.resolve(src.local(adm.Samples))
	for col := range src.layout.columns {
		c := &src.layout.columns[col]
		if c.source != fromVideo {
			continue
		}
		uses, ok := w.uses(p, c)
		if !ok {
			continue
		}
		byPath := map[string][]*frame{}
		prefixes := map[string]cache.Key{}
		if a.disk != nil {
			for k := range uses {
				if _, ok := prefixes[k.path]; !ok {
					prefixes[k.path] = w.prefix(src, c, k.path)
				}
			}
		}
		a.frames.mu.Lock()
		for k, n := range uses {
			if a.disk != nil && a.disk.has(prefixes[k.path], k.ordinal) {
				continue
			}
			file := a.frames.file(src.column(col), k.path)
			if x, fresh := a.frames.expect(frameKey{src.column(col), file, int32(k.ordinal)}, n); fresh {
				byPath[k.path] = append(byPath[k.path], x)
			}
		}
		a.frames.mu.Unlock()
		for path, list := range byPath {
			q.push(job{prio: seq, sub: int64(col), kind: jobAdmit, admit: &admitted{src, col, path, sorted(list), seq}})
		}
	}
}

// release takes back what samples of resident episodes would have used that this rank will never give.
func (w *worker) release(samples []int64) {
	a := w.a
	for len(samples) > 0 {
		src, _ := a.sourceOf(samples[0])
		n := 1
		for n < len(samples) && src.holds(samples[n]) {
			n++
		}
		p := &part{src: src}
		p.resolve(src.local(samples[:n]))
		samples = samples[n:]
		for col := range src.layout.columns {
			c := &src.layout.columns[col]
			if c.source != fromVideo {
				continue
			}
			uses, ok := w.uses(p, c)
			if !ok {
				continue
			}
			a.frames.mu.Lock()
			for k, n := range uses {
				key := frameKey{src.column(col), a.frames.file(src.column(col), k.path), int32(k.ordinal)}
				for range n {
					a.frames.passed(key)
				}
			}
			a.frames.mu.Unlock()
		}
	}
}

type frameID struct {
	path    string
	ordinal int
}

// uses counts how often a part's samples want each frame of a column.
func (w *worker) uses(p *part, c *column) (map[frameID]int32, bool) {
	rows := p.rows[c.rows]
	if c.aligns != nil {
		var err error
		if rows, err = w.alignedRows(p, c, nil); err != nil {
			return nil, false
		}
	}
	refs := w.refsFor(len(rows))
	asked := rows
	if c.aligns != nil {
		asked = w.anyRow(rows)
	}
	if err := p.src.ds.Frames(w.ctx(), c.key, asked, refs); err != nil {
		return nil, false
	}
	uses := make(map[frameID]int32, len(rows))
	for i := range refs {
		if noRow(rows[i]) || refs[i].Missing || refs[i].Path == "" {
			continue
		}
		uses[frameID{refs[i].Path, refs[i].Ordinal}]++
	}
	clear(refs)
	return uses, true
}

// column numbers a column among those of all sources.
func (src *source) column(col int) int32 { return int32(src.index<<16 | col) }

// holds says whether a sample is of this source.
func (src *source) holds(sample int64) bool {
	return sample >= src.offset && sample < src.offset+src.table.Samples()
}

// local gives samples by the source's own numbers.
func (src *source) local(samples []int64) []int64 {
	if src.offset == 0 {
		return samples
	}
	out := make([]int64, len(samples))
	for i, s := range samples {
		out[i] = s - src.offset
	}
	return out
}

// cut makes chunks of what an admission wants of a file.
func (w *worker) cut(ad *admitted) {
	a := w.a
	reel, err := ad.src.reels.open(w.ctx(), ad.path)
	if err != nil {
		for _, x := range ad.frames {
			w.giveUp(ad.src, ad.col, ad.path, x, err)
		}
		return
	}
	defer reel.release()
	ordinals := make([]int, len(ad.frames))
	for i, x := range ad.frames {
		ordinals[i] = int(x.key.ordinal)
	}
	c := &chunk{src: ad.src, col: ad.col, path: ad.path}
	var jobs []job
	flush := func() {
		if len(c.frames) == 0 {
			return
		}
		sorted(c.frames)
		a.frames.mu.Lock()
		c.prio = ad.seq + background
		for _, x := range c.frames {
			x.chunk = c
			for _, wait := range x.wait {
				c.prio = min(c.prio, wait.p.u.seq)
			}
		}
		jobs = append(jobs, c.job())
		a.frames.mu.Unlock()
		c = &chunk{src: ad.src, col: ad.col, path: ad.path}
	}
	for _, g := range reel.plan(&w.planner, ordinals) {
		for _, o := range g.Ordinals {
			if k, ok := slices.BinarySearchFunc(ad.frames, o, func(x *frame, o int) int { return int(x.key.ordinal) - o }); ok {
				c.frames = append(c.frames, ad.frames[k])
			}
		}
		if len(c.frames) >= chunkFrames {
			flush()
		}
	}
	flush()
	for _, j := range jobs {
		w.q.push(j)
	}
}

// job is the chunk's job at its present urgency. frames.mu is held.
func (c *chunk) job() job {
	first := int64(0)
	if len(c.frames) > 0 {
		first = int64(c.frames[0].key.ordinal)
	}
	return job{prio: c.prio, sub: int64(c.col)<<48 | first, kind: jobChunk, chunk: c}
}

// decodeChunk decodes what is still wanted of a chunk.
func (w *worker) decodeChunk(c *chunk) {
	if c.begun.Swap(true) {
		return // a more urgent job of it came first
	}
	a := w.a
	begin := time.Now()
	w.spent = 0
	w.chunk = c
	w.ordinals = w.ordinals[:0]
	kept := c.frames[:0]
	a.frames.mu.Lock()
	for _, x := range c.frames {
		if x.uses == 0 && len(x.wait) == 0 {
			delete(a.frames.have, x.key)
			continue
		}
		kept = append(kept, x)
		w.ordinals = append(w.ordinals, int(x.key.ordinal))
	}
	c.frames = kept // under the lock: who wants a frame of it reads them to raise the chunk
	a.frames.mu.Unlock()
	defer func() {
		w.chunk = nil
		a.n.decode.Add(int64(time.Since(begin) - w.spent))
		a.n.convert.Add(int64(w.spent))
	}()
	if len(kept) == 0 {
		return
	}
	w.got = slices.Grow(w.got[:0], len(kept))[:len(kept)]
	clear(w.got)
	reel, err := c.src.reels.open(w.ctx(), c.path)
	if err != nil {
		for _, x := range kept {
			w.giveUp(c.src, c.col, c.path, x, err)
		}
		return
	}
	defer reel.release()
	groups := slices.DeleteFunc(reel.plan(&w.planner, w.ordinals), func(g video.Group) bool { return g.Cost() <= 0 })
	b, done, ok := w.fetch(reel, groups)
	if !ok {
		return // the run is over
	}
	defer done()
	begin = time.Now()
	_ = reel.decode(w.ctx(), b, groups, w.keep) // what did not come is tried alone, for its own error
	for i, x := range kept {
		if w.got[i] {
			continue
		}
		if w.ctx().Err() != nil {
			return // the run is over
		}
		// Whether a frame can be had must not depend on its neighbours (L4).
		var p video.Planner
		single := reel.plan(&p, []int{int(x.key.ordinal)})
		if single[0].Cost() <= 0 {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Msg: "the video has no frame of that number", Hint: "the video is shorter than its table"}
		} else if err = reel.decode(w.ctx(), nil, single, w.keep); w.got[i] {
			continue
		}
		if err == nil {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Msg: "the decoder gave no frame"}
		}
		w.giveUp(c.src, c.col, c.path, x, err)
	}
}

// keep takes one frame of a chunk: for those who wait for it, and for those who will come.
func (w *worker) keep(ordinal int, pic video.Frame) error {
	begin := time.Now()
	defer func() { w.spent += time.Since(begin) }()
	ch := w.chunk
	i, ok := slices.BinarySearchFunc(ch.frames, ordinal, func(x *frame, o int) int { return int(x.key.ordinal) - o })
	if !ok || w.got[i] {
		return nil
	}
	a, x := w.a, ch.frames[i]
	c := &ch.src.layout.columns[ch.col]
	if c.spec.Width == 0 {
		if pw, ph := pic.Size(); pw != c.width || ph != c.height {
			return sizeError(c, pw, ph)
		}
	}
	a.frames.mu.Lock()
	later := x.uses > 0 || a.frames.room > 0
	a.frames.mu.Unlock()
	var pixels []byte
	if !c.keepsPlanes(a.frames, pic) || a.disk.pixels() {
		pixels = w.bytes(c.frameSize())
		if err := c.render(pic, pixels); err != nil {
			return err
		}
	}
	stored := false
	if later {
		size := pixels
		if size == nil {
			size = w.bytes(c.frameSize()) // its length is all that is looked at, where planes are kept
		}
		var err error
		if stored, err = a.frames.fill(x, pic, size); err != nil {
			return err
		}
	}
	a.disk.put(w, ch.src, c, ch.path, ordinal, pic, pixels)
	w.got[i] = true
	a.n.unique.Add(1)
	wait := a.frames.arrived(x, stored)
	err := w.serve(ch.src, ch.col, ch.path, x, wait, pic, pixels)
	a.frames.done(x)
	return err
}

// serve writes a frame to the places that wait for it.
func (w *worker) serve(src *source, col int, path string, x *frame, wait []waiter, pic video.Frame, pixels []byte) error {
	c := &src.layout.columns[col]
	if pixels == nil && len(wait) > 0 {
		pixels = w.made(wait[0].p, c, int(wait[0].slot))
		if err := c.render(pic, pixels); err != nil {
			for _, at := range wait {
				w.loseAt(at.p, c, int(at.slot), path, int(x.key.ordinal), err)
			}
			return nil
		}
	}
	for _, at := range wait {
		at.p.put(c, int(at.slot), pixels)
	}
	w.a.n.frames.Add(int64(len(wait)))
	// Only when all copies are made: a finished batch may be released, and its first frame overwritten.
	for _, at := range wait {
		at.p.u.finish(1)
	}
	return nil
}

// giveUp says that a frame cannot be had to all who wait for it.
func (w *worker) giveUp(src *source, col int, path string, x *frame, err error) {
	c := &src.layout.columns[col]
	for _, at := range w.a.frames.failed(x, err) {
		w.loseAt(at.p, c, int(at.slot), path, int(x.key.ordinal), err)
	}
}

// keepsPlanes says whether a frame is kept as its planes.
func (c *column) keepsPlanes(f *frames, pic video.Frame) bool {
	if !f.planar {
		return false
	}
	p, ok := pic.(video.PlanarFrame)
	if !ok {
		return false
	}
	_, ok = p.PlaneInfo()
	return ok
}

// render writes a decoded frame as it is in a batch.
func (c *column) render(pic video.Frame, dst []byte) error {
	w, h := pic.Size()
	d, err := c.draft(w, h, dst)
	if err != nil {
		return err
	}
	if err := pic.Convert(&d.spec, d.into); err != nil {
		d.drop()
		return err
	}
	return d.done()
}

// frameBytes is what one kept frame of a column takes, by its declared size.
func (c *column) frameBytes(planar bool) int64 {
	if !planar {
		return pieceBytes(c.height * c.width * channels(c.spec.Pixel) * c.out.Size()) // augmented or not: the order comes of it
	}
	w, h := int64(c.width), int64(c.height)
	if c.feature != nil && c.feature.Width > 0 && c.feature.Height > 0 {
		w, h = int64(c.feature.Width), int64(c.feature.Height)
	}
	if c.spec.Pixel == video.RGB8 || c.spec.Pixel == video.RGBFloat32 {
		return pieceBytes(int(w*h*3+1) / 2)
	}
	return pieceBytes(int(2 * w * h))
}

// residentBytes is what a sample that is still to be drawn takes of a pool, by declared sizes and lengths: its frames; where there are
// none, its numbers. With windows of T frames a frame stays until the last of T samples is drawn: at most T frames a sample, and at
// most the whole episode, which is ln(n) + γ times the samples that an episode of n has left on average (draws empty it like a
// collector of coupons).
//
// In integers: the order of a pool comes of it, and must be the same on every machine.
func (src *source) residentBytes() int64 {
	var imgs, rows int64
	mean := src.table.Samples() / int64(max(src.table.Filled(), 1))
	whole := 69*int64(bits.Len64(uint64(mean))) + 58 // hundredths
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		each := min(100*int64(c.steps), whole)
		switch c.source {
		case fromVideo:
			imgs += each * c.frameBytes(src.a.planar()) / 100
		case fromStills:
			imgs += each * int64(c.height*c.width*channels(c.spec.Pixel)*c.out.Size()) / 100
		case fromTable:
			rows += int64(c.rowBytes)
		}
	}
	if imgs == 0 {
		return max(rows, 1)
	}
	return imgs
}
