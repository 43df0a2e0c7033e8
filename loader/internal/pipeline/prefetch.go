package pipeline

import (
	"slices"

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
		n := 1 // number of samples at the beginning that are of src
		for n < len(samples) && samples[n] >= src.SampleOffset &&
			samples[n] < src.SampleOffset+src.Table.Samples() {
			n++
		}
		release := func(c *column.ImageColumn, uses map[frames.FrameID]int32) {
			w.assembler.Frames.ReleaseUses(c.FrameStream(), uses, epoch)
		}
		w.countFrameUses(&src.DataSource, samples[:n], epoch, release)
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
	w.countFrameUses(src, a.Samples, epoch, admit)
}

// countFrameUses calls fn for each camera with the number of times that samples of src use each
// frame in an epoch.
//
// With several sources or weights it omits cameras that are drawn at random. Their draws depend on
// the epoch of each sample, which is unknown here. Their frames are decoded when a batch needs them.
func (w *worker) countFrameUses(
	src *column.DataSource, samples []int64, epoch int64,
	fn func(c *column.ImageColumn, uses map[frames.FrameID]int32),
) {
	numbers := make([]int64, len(samples))
	for i, s := range samples {
		numbers[i] = s - src.SampleOffset
	}
	build := &column.BatchBuild{Epochs: slices.Repeat([]int64{epoch}, len(samples))}
	p := &column.Part{Build: build, Source: src}
	p.ResolveRows(numbers)
	for _, c := range src.Columns {
		if c.Image() == nil || c.Draw != nil && w.assembler.HasSampleEpochs() {
			continue
		}
		_ = p.EachDrawn(c, func(c *column.Column, p *column.Part) error {
			if uses := w.frameUses(p, c.Image()); uses != nil {
				fn(c.Image(), uses)
			}
			return nil
		})
	}
}

// frameUses returns how often a part uses each frame of a camera. It returns nil for stills, and for
// rows that cannot be read.
func (w *worker) frameUses(p *column.Part, c *column.ImageColumn) map[frames.FrameID]int32 {
	if c.IsStill {
		return nil
	}
	rows, err := w.RowsOf(p, c.Column, nil)
	if err != nil {
		return nil
	}
	refs, _, err := w.FrameRefs(c, rows)
	if err != nil {
		return nil
	}
	uses := make(map[frames.FrameID]int32, len(rows))
	for i := range refs {
		if !column.NoRow(rows[i]) && !refs[i].Missing && refs[i].Path != "" {
			uses[frames.FrameID{Path: refs[i].Path, Ordinal: refs[i].Ordinal}]++
		}
	}
	clear(refs)
	return uses
}
