package loader

import (
	"fmt"
	"math/bits"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/video"
)

// camera is a column of frames, as the store of frames sees it.
type camera struct {
	src *source
	*column
}

func (src *source) camera(c *column) *camera { return &camera{src, c} }

// ID numbers a column among those of all sources.
func (c *camera) ID() int32 { return int32(c.src.index<<16 | c.number) }

// Files are those of the source.
func (c *camera) Files() frames.Files { return c.src.files }

// FrameSize is the bytes of a frame before augmentation.
func (c *camera) FrameSize() int { return c.frameSize() }

// Recipe is what decides a frame's pixels: a part of its key in a cache directory, so that it must not change.
func (c *camera) Recipe() string {
	s := fmt.Sprintf("pixels 1 %d %d %d %t %s %+v", c.height, c.width, c.spec.Pixel, c.spec.ChannelsFirst, c.out, c.spec.Depth)
	if c.resize != Stretch {
		s += fmt.Sprint(" ", c.resize)
	}
	if c.norm != nil {
		s += fmt.Sprintf(" %v %v %v %t", c.norm.Kind, c.norm.A, c.norm.B, c.norm.clip)
	}
	return s
}

// Render writes a decoded frame as it is in a batch before augmentation.
func (c *camera) Render(f video.Frame, dst []byte) error {
	w, h := f.Size()
	return c.draw(w, h, dst, func(d *draft) error { return f.Convert(&d.spec, d.into) })
}

// FromPlanes does so with kept planes.
func (c *camera) FromPlanes(info video.PlaneInfo, planes, dst []byte) error {
	shape := info.Shape()
	return c.draw(shape.Width, shape.Height, dst, func(d *draft) error { return video.ConvertPlanes(info, planes, &d.spec, d.into) })
}

// Check compares a frame's time in its file with its row's, where that is asked for.
func (c *camera) Check() func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
	if !c.src.timed(c.column) {
		return nil
	}
	return func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
		t := to.(*target)
		return w.Own.(*worker).checkTime(t.p, c.column, f, k, ordinal)
	}
}

// draw makes a frame of w × h pixels in dst. A column without a size of its own has that of its first frame.
func (c *column) draw(w, h int, dst []byte, convert func(d *draft) error) error {
	if c.spec.Width == 0 && (w != c.width || h != c.height) {
		return sizeError(c, w, h)
	}
	d, err := c.draft(w, h, dst)
	if err != nil {
		return err
	}
	if err := convert(d); err != nil {
		d.drop()
		return err
	}
	return d.done()
}

func sizeError(c *column, width, height int) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "frames of another size",
		Want: dimensions(c.width, c.height), Got: dimensions(width, height), Hint: "image_size=[h, w] brings all to one size"}
}

func dimensions(width, height int) string { return fmt.Sprintf("%d×%d", width, height) }

// target is where the frames of a column go in one part of a batch.
type target struct {
	p *part
	c *column
}

// Seq is the batch's number in its run.
func (t *target) Seq() int64 { return t.p.u.seq }

// Into is the place itself, or scratch where the frame is augmented on the way.
func (t *target) Into(w *frames.Worker, k int) []byte {
	if t.c.aug == nil || t.c.raw != nil {
		return t.p.frame(t.c, k)
	}
	return w.Bytes(t.c.frameSize())
}

// Put brings a frame to its place.
func (t *target) Put(k int, pixels []byte) { t.p.put(t.c, k, pixels) }

// Done counts frames of the batch.
func (t *target) Done(n int) { t.p.u.finish(int64(n)) }

// Lose notes that the frame of a place will not come.
func (t *target) Lose(k int, path string, ordinal int, err error) {
	p, c := t.p, t.c
	r := robocache.Row{Episode: p.rows[0][k/c.steps].Episode, Index: -1}
	if c.aligns == nil {
		r = p.rows[c.rows][k]
	}
	where := p.src.where(c, r)
	where["file"], where["frame"] = path, ordinal
	p.blame(r.Episode, robocache.At(err, where))
	p.u.finish(1)
}

// refs finds out where the frames of a column lie, those of rows with none (index -1) left zero.
func (w *worker) frameRefs(p *part, c *column, rows []robocache.Row) ([]robocache.FrameRef, []robocache.Row, error) {
	refs, asked := w.refsFor(len(rows)), rows
	if c.aligns != nil {
		asked = w.anyRow(rows)
	}
	return refs, asked, p.src.ds.Frames(w.Ctx(), c.key, asked, refs)
}

// locate finds out where the frames of a column lie, for all batches of a horizon, and asks the store for them.
func (w *worker) locate(parts []*part, col int) {
	src := parts[0].src
	c := &src.layout.columns[col]
	total := 0
	for _, p := range parts {
		total += p.size() * c.steps
	}
	wants := make([]frames.Want, 0, total)
	targets := make([]frames.Target, len(parts))
	var paths []string
	known := map[string]int32{}
	for k, p := range parts {
		targets[k] = &target{p, c}
		rows, err := w.frameRows(p, c)
		if err != nil {
			p.failAt(err)
			p.u.finish(int64(p.size() * c.steps))
			continue
		}
		refs, asked, err := w.frameRefs(p, c, rows)
		if err != nil {
			p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
				return src.ds.Frames(w.Ctx(), c.key, sub, make([]robocache.FrameRef, len(sub)))
			})
			p.u.finish(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			switch {
			case noRow(rows[i]):
				w.blank(p, c, i)
				continue
			case r.Missing && c.feature.Masked:
				w.masked(p, c, i)
				continue
			case r.Missing || r.Path == "":
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
			wants = append(wants, frames.Want{Ordinal: r.Ordinal, Path: path, To: int32(k), K: int32(i)})
		}
		if src.cfg.Tolerance != nil && src.starts == nil {
			src.checkTimestamps(w.Ctx(), p, c, rows)
		}
	}
	clear(w.refs)
	w.Want(src.camera(c), targets, wants, paths)
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
func (w *worker) blank(p *part, c *column, k int) {
	clear(p.frame(c, k))
	p.absent(c, k)
	w.a.store.N.Frames.Add(1)
	p.u.finish(1)
}

// masked is blank for a place whose row may hold no frame, and holds none.
func (w *worker) masked(p *part, c *column, k int) {
	p.data(c.mask)[p.slot(k/c.steps)*c.steps+k%c.steps] = 1
	w.blank(p, c, k)
}

// worthwhile is the part of a pool's samples that a rank must take for keeping its episodes to pay.
const worthwhile = 0.2

// follow brings the residents to where the order's pool is at a step, before its batch is made: what the samples of an episode that enters will
// want is decoded from then on, and kept; what the rank will never give is let go. Where the rows cannot be read nothing is noted: the samples
// find their frames as those of other orders do, and report what is wrong.
func (w *worker) follow(s *order.Step, seq int64) {
	if w.a.cfg.Shuffle != Pool || !w.a.hasVideo() {
		return
	}
	for i := range s.Admitted {
		if a := &s.Admitted[i]; a.Share >= worthwhile {
			w.eachUse(w.a.sources[a.Source], a.Samples, func(c *camera, uses map[frames.ID]int32) { w.Admit(c, uses, seq) })
		}
	}
	for samples := s.Passed; len(samples) > 0; {
		src, _ := w.a.sourceOf(samples[0])
		n := 1
		for n < len(samples) && samples[n] >= src.offset && samples[n] < src.offset+src.table.Samples() {
			n++
		}
		w.eachUse(src, samples[:n], func(c *camera, uses map[frames.ID]int32) { w.a.store.Pass(c, uses) })
		samples = samples[n:]
	}
}

// eachUse counts how often samples of a source want each frame of each camera.
func (w *worker) eachUse(src *source, samples []int64, fn func(c *camera, uses map[frames.ID]int32)) {
	own := make([]int64, len(samples))
	for i, s := range samples {
		own[i] = s - src.offset
	}
	p := &part{src: src}
	p.resolve(own)
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo {
			continue
		}
		rows := p.rows[c.rows]
		if c.aligns != nil {
			var err error
			if rows, err = w.alignedRows(p, c, nil); err != nil {
				continue
			}
		}
		refs, _, err := w.frameRefs(p, c, rows)
		if err != nil {
			continue
		}
		uses := make(map[frames.ID]int32, len(rows))
		for i := range refs {
			if !noRow(rows[i]) && !refs[i].Missing && refs[i].Path != "" {
				uses[frames.ID{Path: refs[i].Path, Ordinal: refs[i].Ordinal}]++
			}
		}
		clear(refs)
		fn(src.camera(c), uses)
	}
}

// frameBytes is what one kept frame of a column takes, by its declared size.
func (c *column) frameBytes(planar bool) int64 {
	if !planar {
		return frames.PieceBytes(c.height * c.width * channels(c.spec.Pixel) * c.out.Size()) // augmented or not: the order comes of it
	}
	w, h := int64(c.width), int64(c.height)
	if c.feature != nil && c.feature.Width > 0 && c.feature.Height > 0 {
		w, h = int64(c.feature.Width), int64(c.feature.Height)
	}
	if c.spec.Pixel == video.RGB8 || c.spec.Pixel == video.RGBFloat32 {
		return frames.PieceBytes(int(w*h*3+1) / 2)
	}
	return frames.PieceBytes(int(2 * w * h))
}

// residentBytes is what a sample that is still to be drawn takes of a pool, by declared sizes and lengths: its frames; where there are
// none, its numbers. With windows of T frames a frame stays until the last of T samples is drawn: at most T frames a sample, and at
// most the whole episode, which is ln(n) + γ times the samples that an episode of n has left on average (draws empty it like a
// collector of coupons).
//
// In integers: the order of a pool comes of it, and must be the same on every machine.
func (src *source) residentBytes() int64 {
	var images, rows int64
	mean := src.table.Samples() / int64(max(src.table.Filled(), 1))
	whole := 69*int64(bits.Len64(uint64(mean))) + 58 // hundredths
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		each := min(100*int64(c.steps), whole)
		switch c.source {
		case fromVideo:
			images += each * c.frameBytes(src.a.planar()) / 100
		case fromStills:
			images += each * int64(c.height*c.width*channels(c.spec.Pixel)*c.out.Size()) / 100
		case fromTable:
			rows += int64(c.rowBytes)
		}
	}
	if images == 0 {
		return max(rows, 1)
	}
	return images
}
