package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// PlaneSource is a dataset whose frames of video are decoded already.
type PlaneSource interface {
	// Planes returns the decoded planes of a row's frame, which are valid until the dataset changes.
	// ok is false if the row holds a still image instead, which Frames returns.
	Planes(key string, r robocache.Row) (info video.PlaneInfo, planes []byte, ok bool)
}

// BeginTick resolves the rows of the only sample of a source that changes (DataSource.Tick).
func (p *Part) BeginTick() { p.Begin([]int64{0}) }

// FillFrames renders the frames of a column into its slots, one after the other.
func (w *Reader) FillFrames(p *Part, c *ImageColumn, source PlaneSource) error {
	mask, maskDone := p.stageEntry(c.MaskEntry)
	rows, err := w.RowsOf(p, c.Column, mask)
	maskDone()
	if err != nil {
		return err
	}
	refs, lookedUp, err := w.FrameRefs(c, rows)
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": c.Key})
	}
	to, render := &target{p, c}, c.FrameStream().Renderer
	still := stillFile{column: c}
	for k := range refs {
		if NoRow(rows[k]) {
			p.blankFrame(c, k)
			continue
		}
		dst := to.Buffer(w.Worker, k)
		if info, planes, ok := source.Planes(c.StreamKey(), lookedUp[k]); ok {
			err = render.RenderPlanes(info, planes, dst)
		} else {
			err = still.deliverStill(lookedUp[k], &refs[k], func(_ int, f video.Frame) error {
				return render.Render(f, dst)
			})
		}
		if err != nil {
			return robocache.At(err, p.Source.Where(c.Column, lookedUp[k]))
		}
		to.Put(k, dst)
	}
	return nil
}
