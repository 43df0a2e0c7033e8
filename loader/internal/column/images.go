package column

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

func SizeError(c *ImageColumn, width, height int) error {
	return robocache.Malformed("loader", robocache.Where{"stream": c.Key}, "frames of another size").
		Expected(dimensions(c.Width, c.Height), dimensions(width, height)).
		WithHint("%s brings all to one size", robocache.Option("image_size"))
}

func dimensions(width, height int) string { return fmt.Sprintf("%d×%d", width, height) }

// target is where the frames of a column go in one part of a batch.
type target struct {
	p *Part
	c *ImageColumn
}

// BatchNumber returns the number of the batch in its run.
func (t *target) BatchNumber() int64 { return t.p.Build.Seq }

// Epoch returns the epoch of the batch.
func (t *target) Epoch() int64 { return t.p.Build.Epoch }

// Buffer returns the memory of the place, or scratch memory if the frame is augmented on its way there.
func (t *target) Buffer(w *frames.Worker, k int) []byte {
	if t.c.Augment == nil || t.c.Deferred != nil {
		return t.p.frame(t.c.Column, k)
	}
	return w.Scratch(t.c.frameSize())
}

// Put writes a frame to its place.
func (t *target) Put(k int, pixels []byte) { t.p.put(t.c, k, pixels) }

// Complete marks n frames of the batch as finished.
func (t *target) Complete(n int) { t.p.Build.Complete(int64(n)) }

// errMasked says that a row holds no frame, and may.
var errMasked = errors.New("a row without a frame")

// Fail marks the frame of place k as failed with err, which may be masked.
func (t *target) Fail(k int, path string, ordinal int, err error) {
	p, c := t.p, t.c
	if err == errMasked {
		p.masked(c, k)
		return
	}
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
	p.blame(r.Episode, robocache.At(err, where))
	p.Build.Complete(1)
}

// blank writes the frame of a place that has none: zero, and masked.
func (p *Part) blank(c *ImageColumn, k int) {
	if c.FrameDevice == nil {
		clear(p.frame(c.Column, k))
	} else if err := c.FrameDevice.Clear(p.frame(c.Column, k)); err != nil {
		p.Build.Fail(err)
	}
	if c.Deferred != nil {
		c.Deferred.blank(p, c.Column, k)
	}
	p.Source.Resources.BlankFrames.Add(1)
	p.Build.Complete(1)
}

// masked is blank for a place whose row may hold no frame, and holds none.
func (p *Part) masked(c *ImageColumn, k int) {
	p.TensorData(c.MaskEntry)[p.ValueSlot(c.Column, k)] = 1
	p.blank(c, k)
}

// FrameRefs finds out where the frames of rows lie. Of rows with none (index -1) they mean nothing.
func (w *Reader) FrameRefs(c *ImageColumn, rows []robocache.Row) ([]robocache.FrameRef, []robocache.Row, error) {
	w.refs = append(w.refs[:0], make([]robocache.FrameRef, len(rows))...)
	asked := rows
	if c.Time != nil {
		asked = append(w.rows[:0], rows...)
		for i := range asked {
			asked[i].Index = max(asked[i].Index, 0)
		}
		w.rows = asked
	}
	return w.refs, asked, frameRefs(w.Ctx(), c.Source.Dataset, c.Key, asked, w.refs)
}

// LocateFrames finds out where the frames of a column lie, for all batches of a horizon, and asks the store for them.
func (w *Reader) LocateFrames(parts []*Part, c *ImageColumn) {
	total := 0
	for _, p := range parts {
		total += p.size() * c.Steps
	}
	wants := make([]frames.FrameRequest, 0, total)
	targets := make([]frames.Target, len(parts))
	var paths []string
	known := map[string]int32{}
	for k, p := range parts {
		targets[k] = &target{p, c}
		mask, masked := p.rowsInto(c.MaskEntry)
		rows, err := w.RowsOf(p, c.Column, mask)
		masked()
		if err != nil {
			p.FailAt(err)
			p.Build.Complete(int64(p.size() * c.Steps))
			continue
		}
		refs, err := w.located(p, c, rows)
		if err != nil {
			p.Build.Complete(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			switch {
			case NoRow(rows[i]):
				p.blank(c, i)
				continue
			case r.Missing && c.Feature.Masked:
				p.masked(c, i)
				continue
			case r.Missing || r.Path == "":
				p.blame(rows[i].Episode, c.Source.missing(c.Column, rows[i], r))
				p.Build.Complete(1)
				continue
			}
			path, ok := known[r.Path]
			if !ok {
				path = int32(len(paths))
				known[r.Path] = path
				paths = append(paths, r.Path)
			}
			wants = append(wants, frames.FrameRequest{Ordinal: r.Ordinal, Path: path, Target: int32(k), Slot: int32(i)})
		}
	}
	clear(w.refs)
	w.RequestFrames(c.FrameStream(), targets, wants, paths)
}

// located is where the frames of rows lie, stills by their rows. Where that cannot be said episodes are blamed.
func (w *Reader) located(p *Part, c *ImageColumn, rows []robocache.Row) ([]robocache.FrameRef, error) {
	if !c.IsVideo() {
		w.refs = append(w.refs[:0], make([]robocache.FrameRef, len(rows))...)
		for i, r := range rows {
			if i > 0 && r.Episode == rows[i-1].Episode {
				w.refs[i].Path = w.refs[i-1].Path
			} else {
				w.refs[i].Path = strconv.Itoa(r.Episode)
			}
			w.refs[i].Ordinal = r.Index
		}
		return w.refs, nil
	}
	refs, asked, err := w.FrameRefs(c, rows)
	if err != nil {
		p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.Key}), func(sub []robocache.Row) error {
			return frameRefs(w.Ctx(), c.Source.Dataset, c.Key, sub, make([]robocache.FrameRef, len(sub)))
		})
		return nil, err
	}
	c.Source.checkTimestamps(w.Ctx(), p, c.Column, rows)
	return refs, nil
}
