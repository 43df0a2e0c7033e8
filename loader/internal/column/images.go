package column

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// SizeError returns the error of a frame whose size differs from the column's.
func SizeError(c *ImageColumn, width, height int) error {
	return robocache.Malformed("loader", robocache.Where{"stream": c.Key},
		"frames of another size").
		Expected(formatSize(c.Width, c.Height), formatSize(width, height)).
		WithHint("%s brings all to one size", robocache.Option("image_size"))
}

func formatSize(width, height int) string { return fmt.Sprintf("%d×%d", width, height) }

// target implements frames.Target for the frames of one column in one part of a batch.
type target struct {
	part   *Part
	column *ImageColumn
}

// BatchNumber returns the number of the batch in its run.
func (t *target) BatchNumber() int64 { return t.part.Build.Seq }

// Epoch returns the epoch of the batch.
func (t *target) Epoch() int64 { return t.part.Build.Epoch }

// Buffer returns the memory of the slot, or scratch if the frame is augmented afterwards.
func (t *target) Buffer(w *frames.Worker, k int) []byte {
	if t.column.Augment == nil || t.column.Deferred != nil {
		return t.part.frameData(t.column.Column, k)
	}
	return w.Scratch(t.column.frameSize())
}

// Put stores a frame in its slot.
func (t *target) Put(k int, pixels []byte) { t.part.putFrame(t.column, k, pixels) }

// Complete marks n frames of the batch as finished.
func (t *target) Complete(n int) { t.part.Build.Complete(int64(n)) }

// errMaskedFrame reports that a row of a masked stream holds no frame.
var errMaskedFrame = errors.New("a row without a frame")

// Fail marks slot k as failed with err. It masks the slot instead if err is errMaskedFrame.
func (t *target) Fail(k int, path string, ordinal int, err error) {
	p, c := t.part, t.column
	if err == errMaskedFrame {
		p.maskFrame(c, k)
		return
	}
	// A rule by time chooses the row only later, so that only the episode of the slot is known.
	r := robocache.Row{Episode: p.rows[0][k/c.Steps].Episode, Index: -1}
	if c.Time == nil {
		r = p.rows[c.Window][k]
	}
	if !c.IsVideo() {
		r.Index = ordinal
	}
	where := p.Source.Where(c.Column, r)
	if c.IsVideo() {
		where["file"], where["frame"] = path, ordinal
	}
	p.recordBadEpisode(r.Episode, robocache.At(err, where))
	p.Build.Complete(1)
}

// blankFrame completes a slot that has no frame: its pixels are zero.
func (p *Part) blankFrame(c *ImageColumn, k int) {
	if c.FrameDevice == nil {
		clear(p.frameData(c.Column, k))
	} else if err := c.FrameDevice.Clear(p.frameData(c.Column, k)); err != nil {
		p.Build.Fail(err)
	}
	if c.Deferred != nil {
		c.Deferred.markBlank(p, c.Column, k)
	}
	p.Source.Resources.BlankFrames.Add(1)
	p.Build.Complete(1)
}

// maskFrame is blankFrame for a row that may lack a frame. It also sets the mask.
func (p *Part) maskFrame(c *ImageColumn, k int) {
	p.TensorData(c.MaskEntry)[p.ValueSlot(c.Column, k)] = 1
	p.blankFrame(c, k)
}

// FrameRefs returns the file and number of the frame of each row, and the rows that it looked up. For
// a row with index -1 it looks up row 0, so the caller must ignore that reference. Both results are
// valid until the next call.
func (w *Reader) FrameRefs(
	c *ImageColumn, rows []robocache.Row,
) ([]robocache.FrameRef, []robocache.Row, error) {
	w.refScratch = append(w.refScratch[:0], make([]robocache.FrameRef, len(rows))...)
	lookedUp := rows
	if c.Time != nil {
		lookedUp = append(w.rowScratch[:0], rows...)
		for i := range lookedUp {
			lookedUp[i].Index = max(lookedUp[i].Index, 0)
		}
		w.rowScratch = lookedUp
	}
	return w.refScratch, lookedUp, frameRefs(
		w.Ctx(),
		c.Source.Dataset,
		c.StreamKey(),
		lookedUp,
		w.refScratch,
	)
}

// LocateFrames finds the frames of a column for all batches of a horizon and requests them from the
// frame store.
func (w *Reader) LocateFrames(parts []*Part, c *ImageColumn) {
	if c.Draw == nil {
		w.locateFrames(parts, c)
		return
	}
	drawn := map[*Column][]*Part{}
	for _, p := range parts {
		_ = p.EachDrawn(c.Column, func(c *Column, p *Part) error {
			drawn[c] = append(drawn[c], p)
			return nil
		})
	}
	for _, one := range c.Draw.Alternatives {
		w.locateFrames(drawn[one], one.Image())
	}
}

// locateFrames is LocateFrames for one stream.
func (w *Reader) locateFrames(parts []*Part, c *ImageColumn) {
	total := 0
	for _, p := range parts {
		total += p.sampleCount() * c.Steps
	}
	requests := make([]frames.FrameRequest, 0, total)
	targets := make([]frames.Target, len(parts))
	var paths []string
	pathNumbers := map[string]int32{} // index of each path in paths
	for k, p := range parts {
		targets[k] = &target{p, c}
		mask, maskDone := p.stageEntry(c.MaskEntry)
		rows, err := w.RowsOf(p, c.Column, mask)
		maskDone()
		if err != nil {
			p.FailAt(err)
			p.Build.Complete(int64(p.sampleCount() * c.Steps))
			continue
		}
		refs, err := w.locateRefs(p, c, rows)
		if err != nil {
			p.Build.Complete(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			switch {
			case NoRow(rows[i]):
				p.blankFrame(c, i)
				continue
			case r.Missing && c.Feature.Masked:
				p.maskFrame(c, i)
				continue
			case r.Missing || r.Path == "":
				p.recordBadEpisode(
					rows[i].Episode,
					c.Source.missingFrameError(c.Column, rows[i], r),
				)
				p.Build.Complete(1)
				continue
			}
			path, ok := pathNumbers[r.Path]
			if !ok {
				path = int32(len(paths))
				pathNumbers[r.Path] = path
				paths = append(paths, r.Path)
			}
			requests = append(requests, frames.FrameRequest{
				Ordinal: r.Ordinal,
				Path:    path,
				Target:  int32(k),
				Slot:    int32(i),
			})
		}
	}
	clear(w.refScratch)
	w.RequestFrames(c.FrameStream(), targets, requests, paths)
}

// locateRefs returns references to the frames of rows. Stills are referenced by row. If it fails,
// it records bad episodes.
func (w *Reader) locateRefs(
	p *Part, c *ImageColumn, rows []robocache.Row,
) ([]robocache.FrameRef, error) {
	if !c.IsVideo() {
		w.refScratch = append(w.refScratch[:0], make([]robocache.FrameRef, len(rows))...)
		for i, r := range rows {
			if i > 0 && r.Episode == rows[i-1].Episode {
				w.refScratch[i].Path = w.refScratch[i-1].Path
			} else {
				w.refScratch[i].Path = strconv.Itoa(r.Episode)
			}
			w.refScratch[i].Ordinal = r.Index
		}
		return w.refScratch, nil
	}
	refs, lookedUp, err := w.FrameRefs(c, rows)
	if err != nil {
		err := robocache.At(err, robocache.Where{"stream": c.StreamKey()})
		p.failEpisodes(lookedUp, err, func(sub []robocache.Row) error {
			refs := make([]robocache.FrameRef, len(sub))
			return frameRefs(w.Ctx(), c.Source.Dataset, c.StreamKey(), sub, refs)
		})
		return nil, err
	}
	c.Source.checkTimestamps(w.Ctx(), p, c.Column, rows)
	return refs, nil
}
