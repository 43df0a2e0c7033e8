package loader

import (
	"math/bits"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// worthwhile is the part of a pool's samples that a rank must take for keeping its episodes to pay.
const worthwhile = 0.2

// follow brings the residents to where the order's pool is at a step, before its batch is made: what the samples of an episode that enters will
// want is decoded from then on, and kept; what the rank will never give is let go. Where the rows cannot be read nothing is noted: the samples
// find their frames as those of other orders do, and report what is wrong. first: the step is the epoch's first, or the run's.
func (w *worker) follow(s *order.Step, epoch, seq int64, first bool) {
	if w.a.cfg.Shuffle != order.Pool || !w.a.hasVideo() {
		return
	}
	for i := range s.Admitted {
		w.admit(&s.Admitted[i], epoch, seq, first)
	}
	for samples := s.Passed; len(samples) > 0; {
		src, _ := w.a.sourceOf(samples[0])
		n := 1
		for n < len(samples) && samples[n] >= src.offset && samples[n] < src.offset+src.table.Samples() {
			n++
		}
		w.eachUse(&src.dataSource, samples[:n], func(c *imageColumn, uses map[frames.ID]int32) { w.a.store.Pass(c, uses, epoch) })
		samples = samples[n:]
	}
}

// admit has an episode's frames decoded and kept from now on, where that pays.
func (w *worker) admit(a *order.Admission, epoch, seq int64, first bool) {
	if a.Share >= worthwhile {
		w.eachUse(&w.a.sources[a.Source].dataSource, a.Samples, func(c *imageColumn, uses map[frames.ID]int32) { w.Admit(c, uses, epoch, seq, first) })
	}
}

// eachUse counts how often samples of a source want each frame of each camera.
func (w *worker) eachUse(src *dataSource, samples []int64, fn func(c *imageColumn, uses map[frames.ID]int32)) {
	own := make([]int64, len(samples))
	for i, s := range samples {
		own[i] = s - src.offset
	}
	p := &part{src: src}
	p.resolve(own)
	for c := range src.imageColumns() {
		if c.still {
			continue
		}
		rows, err := w.rowsOf(p, c.column, nil)
		if err != nil {
			continue
		}
		refs, _, err := w.frameRefs(c, rows)
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
		fn(c, uses)
	}
}

// residentBytes returns what a sample that is still to be drawn takes of a pool, by declared sizes and lengths: its frames; where there are
// none, its numbers. With windows of T frames a frame stays until the last of T samples is drawn: at most T frames a sample, and at
// most the whole episode, which is ln(n) + γ times the samples that an episode of n has left on average (draws empty it like a
// collector of coupons).
//
// In integers: the order of a pool comes of it, and must be the same on every machine.
func residentBytes(src *dataSource, planar bool) int64 {
	var shown, rows int64
	mean := src.table.Samples() / int64(max(src.table.Filled(), 1))
	whole := 69*int64(bits.Len64(uint64(mean))) + 58 // hundredths
	for _, c := range src.columns {
		switch k := c.kind.(type) {
		case *imageColumn:
			pixels := k.height * k.width * channels(k.spec.Pixel) * k.out.Size() // augmented or not
			kept := int64(pixels)
			if !k.still {
				kept = keptBytes(k, pixels, planar)
			}
			shown += min(100*int64(k.steps), whole) * kept / 100
		case *tableColumn, *spanColumn, *timesColumn:
			rows += int64(c.rowBytes)
		}
	}
	if shown == 0 {
		return max(rows, 1)
	}
	return shown
}

// keptBytes returns what one kept frame of a column takes, by its declared size.
func keptBytes(c *imageColumn, pixels int, planar bool) int64 {
	if !planar {
		return frames.PieceBytes(pixels)
	}
	w, h := int64(c.width), int64(c.height)
	if c.feature.Width > 0 && c.feature.Height > 0 {
		w, h = int64(c.feature.Width), int64(c.feature.Height)
	}
	if channels(c.spec.Pixel) == 3 {
		return frames.PieceBytes(int(w*h*3+1) / 2)
	}
	return frames.PieceBytes(int(2 * w * h))
}
