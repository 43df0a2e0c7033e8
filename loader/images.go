package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// A column of frames is what the store of frames knows of it (frames.Column).

// ID numbers a column among those of all sources.
func (c *imageColumn) ID() int32 { return int32(c.src.index<<16 | c.number) }

// Files are those of the source; stills are files of their own (stills.go).
func (c *imageColumn) Files() frames.Files { return c.files }

// FrameSize is the bytes of a frame before augmentation.
func (c *imageColumn) FrameSize() int {
	if c.aug == nil {
		return c.outBytes
	}
	return 3 * c.height * c.width
}

// Recipe is what decides a frame's pixels: a part of its key in a cache directory, so that it must not change. Stills are not cached there.
func (c *imageColumn) Recipe() string {
	if !c.isVideo() {
		return ""
	}
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
func (c *imageColumn) Render(f video.Frame, dst []byte) error {
	if own, is := f.(video.DeviceFrame); is && c.device != nil {
		if info, ok := own.PlaneInfo(); ok && c.Direct(info) {
			return own.ConvertThere(&c.spec, dst)
		}
	}
	if own, is := f.(video.PlanarFrame); is && c.device != nil { // the host decoded it
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
func (c *imageColumn) lifted(info video.PlaneInfo, planes, dst []byte) error {
	room, err := c.src.there.Get(len(planes))
	if err != nil {
		return err
	}
	defer room.Unref() // what is done there is done in order
	if err := c.device.UploadPlanes(info, room.Mem[:len(planes)], planes); err != nil {
		return err
	}
	return c.FromThere(info, [][]byte{room.Mem[:len(planes)]}, [][]byte{dst})
}

// FromThere does so with planes of the device.
func (c *imageColumn) FromThere(info video.PlaneInfo, planes, dst [][]byte) error {
	return c.device.ConvertKept(info, planes, &c.spec, dst)
}

// FromPlanes does so with kept planes.
func (c *imageColumn) FromPlanes(info video.PlaneInfo, planes, dst []byte) error {
	if c.device != nil && c.Direct(info) {
		return c.lifted(info, planes, dst)
	}
	shape := info.Shape()
	return c.drafted(shape.Width, shape.Height, dst, func(spec *video.Spec, into []byte) error { return video.ConvertPlanes(info, planes, spec, into) })
}

// drafted makes a frame of w × h pixels on the host, and brings it to the device where dst is there.
func (c *imageColumn) drafted(w, h int, dst []byte, convert func(spec *video.Spec, into []byte) error) error {
	to := dst
	if c.device != nil {
		room := uploads.Get().(*[]byte)
		defer uploads.Put(room)
		*room = slices.Grow((*room)[:0], len(dst))[:len(dst)]
		to = *room
	}
	d, err := c.draft(w, h, to)
	if err != nil {
		return err
	}
	if err := d.done(convert(&d.spec, d.into)); err != nil || c.device == nil {
		return err
	}
	return c.device.Upload(dst, to)
}

// uploads are frames on their way from the host to a device.
var uploads = sync.Pool{New: func() any { return new([]byte) }}

// Device is where its pixels are made; nil: on the host.
func (c *imageColumn) Device() video.DeviceMemory { return c.device }

// Direct says that the device makes the pixels, of planes of that form.
func (c *imageColumn) Direct(info video.PlaneInfo) bool {
	shape := info.Shape()
	w, h, _, _ := c.scaled(shape.Width, shape.Height)
	return w == c.width && h == c.height && (c.spec.Width != 0 || shape.Width == c.width && shape.Height == c.height) && c.device.Converts(info, &c.spec)
}

// onDevice has frames that a device decodes stay there: those of batches that go to it, where every source's do.
func (a *assembler) onDevice() {
	first := a.sources[0]
	if !a.cfg.Raw || a.cfg.Cache != "" && a.cfg.Cache != onDevice || first.device == nil {
		return
	}
	for _, own := range first.columns {
		all := !slices.ContainsFunc(a.sources, func(src *source) bool {
			c := src.imageColumn(own.key)
			return c == nil || src.device != first.device || c.still || c.spec.Pixel != video.RGB8 || c.norm != nil ||
				c.aug != nil && c.raw == nil
		})
		for _, src := range a.sources {
			if all {
				src.imageColumn(own.key).device, a.device = first.device, first.device
			}
		}
	}
}

// Check compares a frame's time in its file with its row's, where that is asked for.
func (c *imageColumn) Check() func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
	if c.src.tolerance == nil || c.src.starts == nil || c.time != nil || !c.isVideo() {
		return nil
	}
	return func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
		return checkTime(w.Ctx(), to.(*target).p, c.column, f, k, ordinal)
	}
}

func sizeError(c *imageColumn, width, height int) error {
	return robocache.Malformed("loader", robocache.Where{"stream": c.key}, "frames of another size").
		Expected(dimensions(c.width, c.height), dimensions(width, height)).
		WithHint("%s brings all to one size", robocache.Option("image_size"))
}

func dimensions(width, height int) string { return fmt.Sprintf("%d×%d", width, height) }

// target is where the frames of a column go in one part of a batch.
type target struct {
	p *part
	c *imageColumn
}

// Seq is the batch's number in its run.
func (t *target) Seq() int64 { return t.p.u.seq }

// Epoch is the batch's.
func (t *target) Epoch() int64 { return t.p.u.epoch }

// Into is the place itself, or scratch where the frame is augmented on the way.
func (t *target) Into(w *frames.Worker, k int) []byte {
	if t.c.aug == nil || t.c.raw != nil {
		return t.p.frame(t.c.column, k)
	}
	return w.Bytes(t.c.FrameSize())
}

// Put brings a frame to its place.
func (t *target) Put(k int, pixels []byte) { t.p.put(t.c, k, pixels) }

// Done counts frames of the batch.
func (t *target) Done(n int) { t.p.u.finish(int64(n)) }

// errMasked says that a row holds no frame, and may.
var errMasked = errors.New("a row without a frame")

// Lose notes that the frame of a place will not come.
func (t *target) Lose(k int, path string, ordinal int, err error) {
	p, c := t.p, t.c
	if err == errMasked {
		p.masked(c, k)
		return
	}
	r := robocache.Row{Episode: p.rows[0][k/c.steps].Episode, Index: -1}
	if c.time == nil {
		r = p.rows[c.window][k]
	}
	if !c.isVideo() {
		r.Index = ordinal
	}
	where := p.src.where(c.column, r)
	if c.isVideo() {
		where["file"], where["frame"] = path, ordinal
	}
	p.blame(r.Episode, robocache.At(err, where))
	p.u.finish(1)
}

// blank writes the frame of a place that has none: zero, and masked.
func (p *part) blank(c *imageColumn, k int) {
	if c.device == nil {
		clear(p.frame(c.column, k))
	} else if err := c.device.Clear(p.frame(c.column, k)); err != nil {
		p.u.fail(err)
	}
	if c.raw != nil {
		c.raw.blank(p, c.column, k)
	}
	p.src.blanks.Add(1)
	p.u.finish(1)
}

// masked is blank for a place whose row may hold no frame, and holds none.
func (p *part) masked(c *imageColumn, k int) {
	p.data(c.mask)[p.at(c.column, k)] = 1
	p.blank(c, k)
}

// frameRefs finds out where the frames of rows lie. Of rows with none (index -1) they mean nothing.
func (w *reader) frameRefs(c *imageColumn, rows []robocache.Row) ([]robocache.FrameRef, []robocache.Row, error) {
	w.refs = append(w.refs[:0], make([]robocache.FrameRef, len(rows))...)
	asked := rows
	if c.time != nil {
		asked = append(w.rows[:0], rows...)
		for i := range asked {
			asked[i].Index = max(asked[i].Index, 0)
		}
		w.rows = asked
	}
	return w.refs, asked, frameRefs(w.Ctx(), c.src.ds, c.key, asked, w.refs)
}

// locate finds out where the frames of a column lie, for all batches of a horizon, and asks the store for them.
func (w *reader) locate(parts []*part, c *imageColumn) {
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
		mask, masked := p.rowsInto(c.mask)
		rows, err := w.rowsOf(p, c.column, mask)
		masked()
		if err != nil {
			p.failAt(err)
			p.u.finish(int64(p.size() * c.steps))
			continue
		}
		refs, err := w.located(p, c, rows)
		if err != nil {
			p.u.finish(int64(len(rows)))
			continue
		}
		for i := range refs {
			r := &refs[i]
			switch {
			case noRow(rows[i]):
				p.blank(c, i)
				continue
			case r.Missing && c.feature.Masked:
				p.masked(c, i)
				continue
			case r.Missing || r.Path == "":
				p.blame(rows[i].Episode, c.src.missing(c.column, rows[i], r))
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
	}
	clear(w.refs)
	w.Want(c, targets, wants, paths)
}

// located is where the frames of rows lie, stills by their rows. Where that cannot be said episodes are blamed.
func (w *reader) located(p *part, c *imageColumn, rows []robocache.Row) ([]robocache.FrameRef, error) {
	if !c.isVideo() {
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
	refs, asked, err := w.frameRefs(c, rows)
	if err != nil {
		p.isolate(asked, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			return frameRefs(w.Ctx(), c.src.ds, c.key, sub, make([]robocache.FrameRef, len(sub)))
		})
		return nil, err
	}
	c.src.checkTimestamps(w.Ctx(), p, c.column, rows)
	return refs, nil
}

// openFiles finds the files and makes the decoder pool, which keeps at most budget bytes of idle ones, where a column needs them.
func (src *source) openFiles(budget int64) error {
	for c := range src.imageColumns() {
		switch {
		case c.still:
			c.files = stillFiles{c: c}
			continue
		case src.files != nil:
			c.files = src.files
			continue
		}
		ds := base(src.ds)
		if fake, ok := ds.(interface{ Files() frames.Files }); ok { // of tests, which need no codec
			src.files = fake.Files()
		} else {
			lib := video.LibraryOf(ds)
			if lib == nil {
				return robocache.Unsupported("loader", robocache.Where{"stream": c.key}, "the format %s gives no video files", ds.Info().Format).
					WithHint("%s without the video keys", robocache.Option("keys"))
			}
			if _, err := video.ActiveBackend(); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.key})
			}
			own := frames.NewLibrary(lib, budget)
			src.files = own
			if err := src.openDevice(own); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.key})
			}
		}
		c.files = src.files
	}
	return nil
}

// deviceDecoders is what idle decoders may hold of a device's memory.
const deviceDecoders = 2 << 30

// openDevice has a device decode too, where that is asked for.
func (src *source) openDevice(files *frames.Library) error {
	cfg := &src.cfg
	if cfg.Decode == DecodeCPU {
		return nil
	}
	b, err := video.OpenDevice(cfg.DecodeDevice)
	switch {
	case err != nil && cfg.Decode == DecodeGPU:
		return err
	case err != nil:
		src.report.notes = append(src.report.notes, "video is decoded on the CPU: "+err.Error())
		return nil
	}
	src.device, _ = b.(video.DeviceMemory)
	src.engines = files.Split(b, deviceDecoders, cfg.Decode == DecodeGPU, src.core)
	return nil
}

// probes bounds how many episodes are asked for a first frame.
const probes = 8

// probe finds the true size of each frame column from its first frame: what metadata declare may lie.
func (src *source) probe(ctx context.Context) error {
	for c := range src.imageColumns() {
		if c.spec.Width != 0 {
			continue
		}
		width, height, err := src.firstSize(ctx, c)
		switch {
		case width > 0 && height > 0:
			c.resized(height, width)
		case c.width > 0 && c.height > 0:
			// No frame could be looked at: what is declared holds until one comes, and each is checked against it.
		case err != nil:
			return robocache.At(err, robocache.Where{"stream": c.key})
		default:
			return robocache.Malformed("loader", robocache.Where{"stream": c.key}, "nothing says the size of the frames").
				WithHint("Pass %s", robocache.Option("image_size"))
		}
		if c.width > 1<<15 || c.height > 1<<15 {
			return robocache.ResourceLimit("loader", robocache.Where{"stream": c.key}, "").
				Expected("frames of at most 32768×32768", sizeError(c, c.width, c.height).Error())
		}
	}
	return nil
}

func (src *source) firstSize(ctx context.Context, c *imageColumn) (width, height int, err error) {
	tried := 0
	for i := range src.table.Len() {
		if from, to := src.table.Span(i); from == to {
			continue
		}
		if tried++; tried > probes {
			break
		}
		ref := make([]robocache.FrameRef, 1)
		if err = src.ds.Frames(ctx, c.key, []robocache.Row{{Episode: src.table.Episode(i)}}, ref); err != nil || ref[0].Missing {
			continue
		}
		if !c.isVideo() {
			var info video.StillInfo
			if info, err = video.ImageSize(&ref[0]); err != nil {
				continue
			}
			if info.DType != robocache.Uint8 && c.out == robocache.Uint8 { // sixteen bits or floats that nobody declared as depth
				chooseDepth(c, &src.cfg, c.spec.Depth)
				if src.cfg.DepthUnit == "code" && info.DType == robocache.Uint16 {
					c.spec.Pixel, c.out, c.unit = video.Gray16, robocache.Uint16, ""
				}
			}
			return info.Width, info.Height, nil
		}
		var r frames.File
		if r, err = src.files.Open(ctx, ref[0].Path); err != nil {
			continue
		}
		defer r.Release()
		width, height = r.Size()
		return width, height, nil
	}
	return 0, 0, err
}
