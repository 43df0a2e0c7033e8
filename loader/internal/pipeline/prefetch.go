package pipeline

import (
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// worthwhile is the part of a pool's samples that a rank must take for keeping its episodes to pay.
const worthwhile = 0.2

// follow brings the residents to where the order's pool is at a step, before its batch is made: what the samples of an episode that enters will
// want is decoded from then on, and kept; what the rank will never give is let go. Where the rows cannot be read nothing is noted: the samples
// find their frames as those of other orders do, and report what is wrong. first: the step is the epoch's first, or the run's.
func (w *worker) follow(s *order.Step, epoch, seq int64, first bool) {
	if w.a.Config.Shuffle != order.Pool || !w.a.HasVideo() {
		return
	}
	for i := range s.Admitted {
		w.admit(&s.Admitted[i], epoch, seq, first)
	}
	for samples := s.Passed; len(samples) > 0; {
		src, _ := w.a.SourceOf(samples[0])
		n := 1
		for n < len(samples) && samples[n] >= src.SampleOffset && samples[n] < src.SampleOffset+src.Table.Samples() {
			n++
		}
		w.eachUse(&src.DataSource, samples[:n], func(c *column.ImageColumn, uses map[frames.FrameID]int32) {
			w.a.Frames.ReleaseUses(c.FrameStream(), uses, epoch)
		})
		samples = samples[n:]
	}
}

// admit has an episode's frames decoded and kept from now on, where that pays.
func (w *worker) admit(a *order.Admission, epoch, seq int64, first bool) {
	if a.Share >= worthwhile {
		w.eachUse(&w.a.Sources[a.Source].DataSource, a.Samples, func(c *column.ImageColumn, uses map[frames.FrameID]int32) {
			w.AdmitFrames(c.FrameStream(), uses, epoch, seq, first)
		})
	}
}

// eachUse counts how often samples of a source want each frame of each camera.
func (w *worker) eachUse(src *column.DataSource, samples []int64, fn func(c *column.ImageColumn, uses map[frames.FrameID]int32)) {
	own := make([]int64, len(samples))
	for i, s := range samples {
		own[i] = s - src.SampleOffset
	}
	p := &column.Part{Source: src}
	p.ResolveRows(own)
	for c := range src.ImageColumns() {
		if c.IsStill {
			continue
		}
		rows, err := w.RowsOf(p, c.Column, nil)
		if err != nil {
			continue
		}
		refs, _, err := w.FrameRefs(c, rows)
		if err != nil {
			continue
		}
		uses := make(map[frames.FrameID]int32, len(rows))
		for i := range refs {
			if !column.NoRow(rows[i]) && !refs[i].Missing && refs[i].Path != "" {
				uses[frames.FrameID{Path: refs[i].Path, Ordinal: refs[i].Ordinal}]++
			}
		}
		clear(refs)
		fn(c, uses)
	}
}
