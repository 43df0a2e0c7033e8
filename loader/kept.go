package loader

import (
	"time"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/video"
)

// copies is frames that are there already, for one part: in memory, or in the disk cache.
type copies struct {
	p     *part
	col   int
	items []keptItem
}

type keptItem struct {
	x       *frame // nil: in the disk cache
	path    string
	ordinal int
	slot    int32
}

// copiesPerJob is small enough to spread a batch over the workers.
const copiesPerJob = 4

// found takes out of wants what is there, or on its way, and makes jobs of it.
func (w *worker) found(parts []*part, col int, wants []want, paths []string) []want {
	a := w.a
	src := parts[0].src
	c := &src.layout.columns[col]
	var sets []*copies // by part
	add := func(x *want, item keptItem) {
		if sets == nil {
			sets = make([]*copies, len(parts))
		}
		s := sets[x.part]
		if s == nil {
			s = &copies{p: parts[x.part], col: col}
			sets[x.part] = s
		}
		if s.items = append(s.items, item); len(s.items) == copiesPerJob {
			w.q.push(s.job())
			sets[x.part] = nil
		}
	}
	var raised []job
	var gone []keptItem
	var at []int32
	left := wants[:0]
	if f := a.frames; f != nil {
		f.mu.Lock()
		for i := range wants {
			x := wants[i]
			k := frameKey{src.column(col), f.file(src.column(col), paths[x.path]), int32(x.ordinal)}
			item := keptItem{path: paths[x.path], ordinal: x.ordinal, slot: x.slot}
			got, fr := f.want(k, parts[x.part], x.slot)
			item.x = fr
			switch got {
			case here:
				add(&x, item)
			case coming:
				if seq := parts[x.part].u.seq; fr.chunk != nil && seq < fr.chunk.prio {
					fr.chunk.prio = seq
					raised = append(raised, fr.chunk.job())
				}
			case useless:
				gone, at = append(gone, item), append(at, x.part)
			default:
				left = append(left, x)
			}
		}
		f.mu.Unlock()
		wants, left = left, left[:0]
	}
	if a.disk != nil {
		keys := make([]cache.Key, len(paths))
		seen := make([]bool, len(paths))
		for i := range wants {
			x := wants[i]
			if !seen[x.path] {
				keys[x.path], seen[x.path] = w.prefix(src, c, paths[x.path]), true
			}
			if a.disk.has(keys[x.path], x.ordinal) {
				add(&x, keptItem{path: paths[x.path], ordinal: x.ordinal, slot: x.slot})
				continue
			}
			left = append(left, x)
		}
		wants = left
	}
	for _, s := range sets {
		if s != nil {
			w.q.push(s.job())
		}
	}
	for _, j := range raised {
		w.q.push(j)
	}
	for i, item := range gone {
		w.loseAt(parts[at[i]], c, int(item.slot), item.path, item.ordinal, item.x.err)
	}
	return wants
}

func (s *copies) job() job {
	return job{prio: s.p.u.seq, sub: int64(s.col)<<32 | int64(s.items[0].slot), kind: jobCopy, copies: s}
}

// copyKept writes kept frames into a batch.
func (w *worker) copyKept(s *copies) {
	a, p := w.a, s.p
	src := p.src
	c := &src.layout.columns[s.col]
	begin := time.Now()
	defer func() { a.n.copy.Add(int64(time.Since(begin))) }()
	count := int64(0)
	u := p.u
	for i := range s.items {
		item := &s.items[i]
		if item.x == nil {
			dst := w.made(p, c, int(item.slot))
			ok, err := a.disk.get(w, src, c, item.path, item.ordinal, dst)
			if !ok {
				// Evicted, or found damaged: it is decoded as if it had not been there.
				w.decodeOne(p, s.col, item)
				continue
			}
			if err != nil {
				w.loseAt(p, c, int(item.slot), item.path, item.ordinal, err)
				continue
			}
			p.put(c, int(item.slot), dst)
			count++
			continue
		}
		err := w.fromKept(p, c, int(item.slot), item.x)
		a.frames.done(item.x)
		if err != nil {
			w.loseAt(p, c, int(item.slot), item.path, item.ordinal, err)
			continue
		}
		count++
	}
	a.n.frames.Add(count)
	if count > 0 {
		u.finish(count)
	}
}

// fromKept writes a kept frame into a batch.
func (w *worker) fromKept(p *part, c *column, k int, x *frame) error {
	if !x.planar {
		p.put(c, k, x.at.mem[:x.size])
		return nil
	}
	dst := w.made(p, c, k)
	if err := c.fromPlanes(x.info, x.at.mem[:x.size], dst); err != nil {
		return err
	}
	p.put(c, k, dst)
	return nil
}

// fromPlanes writes the frame of kept planes as it is kept as pixels.
func (c *column) fromPlanes(info video.PlaneInfo, planes, dst []byte) error {
	shape := info.Shape()
	d, err := c.draft(shape.Width, shape.Height, dst)
	if err != nil {
		return err
	}
	if err := video.ConvertPlanes(info, planes, &d.spec, d.into); err != nil {
		d.drop()
		return err
	}
	return d.done()
}

// decodeOne decodes a frame for one place.
func (w *worker) decodeOne(p *part, col int, item *keptItem) {
	t := fileTasks.Get().(*fileTask)
	t.src, t.parts, t.col, t.path = p.src, []*part{p}, col, item.path
	t.wants = []want{{ordinal: item.ordinal, slot: item.slot}}
	w.q.push(job{prio: p.u.seq, sub: int64(col) << 32, kind: jobFile, task: t})
}
