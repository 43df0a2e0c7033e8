package pipeline

import (
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// minPoolShare is the share of an episode's pool samples that the rank must use for storing its
// frames to pay off.
const minPoolShare = 0.2

// followPool updates the stored frames to the order's pool at step s, before the batch of s is
// built. It admits the frames of episodes that enter the pool, and releases uses of samples that
// the rank does not deliver. If rows cannot be read, it admits nothing; the batch reports the
// error. first reports whether s is the first step of the epoch or of the run.
func (w *worker) followPool(s *order.Step, epoch, seq int64, first bool) {
	if w.assembler.Config.Shuffle != order.Pool || !w.assembler.HasVideo() {
		return
	}
	for i := range s.Admitted {
		w.admitEpisode(&s.Admitted[i], epoch, seq, first)
	}
	for samples := s.Passed; len(samples) > 0; {
		src, _ := w.assembler.SourceOf(samples[0])
		n := 1
		for n < len(samples) && samples[n] >= src.SampleOffset &&
			samples[n] < src.SampleOffset+src.Table.Samples() {
			n++
		}
		release := func(c *column.ImageColumn, uses map[frames.FrameID]int32) {
			w.assembler.Frames.ReleaseUses(c.FrameStream(), uses, epoch)
		}
		w.countFrameUses(&src.DataSource, samples[:n], release)
		samples = samples[n:]
	}
}

// admitEpisode queues the decoding of the frames that an admitted episode's samples use. It does
// nothing if this rank uses less than minPoolShare of the samples.
func (w *worker) admitEpisode(a *order.Admission, epoch, seq int64, first bool) {
	if a.Share < minPoolShare {
		return
	}
	src := &w.assembler.Sources[a.Source].DataSource
	admit := func(c *column.ImageColumn, uses map[frames.FrameID]int32) {
		w.AdmitFrames(c.FrameStream(), uses, epoch, seq, first)
	}
	w.countFrameUses(src, a.Samples, admit)
}

// countFrameUses calls fn for each camera with the number of times that samples of src use each
// frame.
func (w *worker) countFrameUses(
	src *column.DataSource, samples []int64,
	fn func(c *column.ImageColumn, uses map[frames.FrameID]int32),
) {
	numbers := make([]int64, len(samples))
	for i, s := range samples {
		numbers[i] = s - src.SampleOffset
	}
	p := &column.Part{Source: src}
	p.ResolveRows(numbers)
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
