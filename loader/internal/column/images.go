package column

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// A column of frames is what the store of frames knows of it (frames.Column).

// ID numbers a column among those of all sources.
func (c *ImageColumn) ID() int32 { return int32(c.Source.Index<<16 | c.Number) }

// Files are those of the source; stills are files of their own (stills.go).
func (c *ImageColumn) Files() frames.Files { return c.FrameFiles }

// FrameSize is the bytes of a frame before augmentation.
func (c *ImageColumn) FrameSize() int {
	if c.Augment == nil {
		return c.OutBytes
	}
	return 3 * c.Height * c.Width
}

// Recipe is what decides a frame's pixels: a part of its key in a cache directory, so that it must not change. Stills are not cached there.
func (c *ImageColumn) Recipe() string {
	if !c.IsVideo() {
		return ""
	}
	s := fmt.Sprintf("pixels 1 %d %d %d %t %s %+v", c.Height, c.Width, c.Spec.Pixel, c.Spec.ChannelsFirst, c.OutDType, c.Spec.Depth)
	if c.Resize != options.Stretch {
		s += fmt.Sprint(" ", c.Resize)
	}
	if c.Norm != nil {
		s += fmt.Sprintf(" %v %v %v %t", c.Norm.Kind, c.Norm.A, c.Norm.B, c.Norm.Clip)
	}
	return s
}

// Render writes a decoded frame as it is in a batch before augmentation.
func (c *ImageColumn) Render(f video.Frame, dst []byte) error {
	if own, is := f.(video.DeviceFrame); is && c.FrameDevice != nil {
		if info, ok := own.PlaneInfo(); ok && c.Direct(info) {
			return own.ConvertThere(&c.Spec, dst)
		}
	}
	if own, is := f.(video.PlanarFrame); is && c.FrameDevice != nil { // the host decoded it
		if info, ok := own.PlaneInfo(); ok && c.Direct(info) {
			room := uploads.Get().(*[]byte)
			defer uploads.Put(room)
			*room = slices.Grow((*room)[:0], info.Bytes())[:info.Bytes()]
			if err := own.CopyPlanes(*room); err != nil {
				return err
			}
			return c.lifted(info, *room, dst)
		}
	}
	w, h := f.Size()
	return c.drafted(w, h, dst, f.Convert)
}

// lifted makes a frame there of the host's planes.
func (c *ImageColumn) lifted(info video.PlaneInfo, planes, dst []byte) error {
	room, err := c.Source.Resources.DeviceBuffers.Get(len(planes))
	if err != nil {
		return err
	}
	defer room.Unref() // what is done there is done in order
	if err := c.FrameDevice.UploadPlanes(info, room.Mem[:len(planes)], planes); err != nil {
		return err
	}
	return c.FromThere(info, [][]byte{room.Mem[:len(planes)]}, [][]byte{dst})
}

// FromThere does so with planes of the device.
func (c *ImageColumn) FromThere(info video.PlaneInfo, planes, dst [][]byte) error {
	return c.FrameDevice.ConvertKept(info, planes, &c.Spec, dst)
}

// FromPlanes does so with kept planes.
func (c *ImageColumn) FromPlanes(info video.PlaneInfo, planes, dst []byte) error {
	if c.FrameDevice != nil && c.Direct(info) {
		return c.lifted(info, planes, dst)
	}
	shape := info.Shape()
	return c.drafted(shape.Width, shape.Height, dst, func(spec *video.Spec, into []byte) error { return video.ConvertPlanes(info, planes, spec, into) })
}

// drafted makes a frame of w × h pixels on the host, and brings it to the device where dst is there.
func (c *ImageColumn) drafted(w, h int, dst []byte, convert func(spec *video.Spec, into []byte) error) error {
	to := dst
	if c.FrameDevice != nil {
		room := uploads.Get().(*[]byte)
		defer uploads.Put(room)
		*room = slices.Grow((*room)[:0], len(dst))[:len(dst)]
		to = *room
	}
	d, err := c.draft(w, h, to)
	if err != nil {
		return err
	}
	if err := d.Done(convert(&d.Spec, d.into)); err != nil || c.FrameDevice == nil {
		return err
	}
	return c.FrameDevice.Upload(dst, to)
}

// uploads are frames on their way from the host to a device.
var uploads = sync.Pool{New: func() any { return new([]byte) }}

// Device is where its pixels are made; nil: on the host.
func (c *ImageColumn) Device() video.DeviceMemory { return c.FrameDevice }

// Direct says that the device makes the pixels, of planes of that form.
func (c *ImageColumn) Direct(info video.PlaneInfo) bool {
	shape := info.Shape()
	w, h, _, _ := c.scaled(shape.Width, shape.Height)
	return w == c.Width && h == c.Height && (c.Spec.Width != 0 || shape.Width == c.Width && shape.Height == c.Height) && c.FrameDevice.Converts(info, &c.Spec)
}

// Check compares a frame's time in its file with its row's, where that is asked for.
func (c *ImageColumn) Check() func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
	if c.Source.Tolerance == nil || c.Source.VideoStarts == nil || c.Time != nil || !c.IsVideo() {
		return nil
	}
	return func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
		return checkTime(w.Ctx(), to.(*target).p, c.Column, f, k, ordinal)
	}
}

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

// Seq is the batch's number in its run.
func (t *target) Seq() int64 { return t.p.Build.Seq }

// Epoch is the batch's.
func (t *target) Epoch() int64 { return t.p.Build.Epoch }

// Into is the place itself, or scratch where the frame is augmented on the way.
func (t *target) Into(w *frames.Worker, k int) []byte {
	if t.c.Augment == nil || t.c.Deferred != nil {
		return t.p.frame(t.c.Column, k)
	}
	return w.Bytes(t.c.FrameSize())
}

// Put brings a frame to its place.
func (t *target) Put(k int, pixels []byte) { t.p.put(t.c, k, pixels) }

// Done counts frames of the batch.
func (t *target) Done(n int) { t.p.Build.Complete(int64(n)) }

// errMasked says that a row holds no frame, and may.
var errMasked = errors.New("a row without a frame")

// Lose notes that the frame of a place will not come.
func (t *target) Lose(k int, path string, ordinal int, err error) {
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
	wants := make([]frames.Want, 0, total)
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
			wants = append(wants, frames.Want{Ordinal: r.Ordinal, Path: path, To: int32(k), K: int32(i)})
		}
	}
	clear(w.refs)
	w.Want(c, targets, wants, paths)
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
