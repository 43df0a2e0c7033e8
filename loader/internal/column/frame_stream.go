package column

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// FrameStream returns the column as the frame store uses it. The source must be compiled. Safe for
// concurrent use.
func (c *ImageColumn) FrameStream() *frames.Stream {
	c.makeStream.Do(func() {
		if c.shared != nil {
			c.stream = c.shared.FrameStream()
			return
		}
		c.stream = c.newFrameStream()
	})
	return c.stream
}

// ShareFrames makes the column use the decoded frames of another column of the same camera, if they
// have the same pixels before augmentation. The source must be compiled.
func (c *ImageColumn) ShareFrames(other *ImageColumn) {
	hasEqualPixels := c.IsVideo() && other.IsVideo() && c.Source.Tolerance == nil &&
		c.pixelRecipe() == other.pixelRecipe() && c.frameSize() == other.frameSize() &&
		c.FrameDevice == other.FrameDevice && (c.Augment == nil) == (other.Augment == nil)
	if hasEqualPixels {
		c.shared = other
	}
}

// newFrameStream returns a new FrameStream of a column that shares no frames.
func (c *ImageColumn) newFrameStream() *frames.Stream {
	s := &frames.Stream{
		ID:        int32(c.Source.Index<<16 | c.Number),
		Files:     c.FrameFiles,
		FrameSize: c.frameSize(),
		Recipe:    c.pixelRecipe(),
		Renderer:  hostRenderer{c},
		Check:     c.timeCheck(),
	}
	if c.FrameDevice != nil {
		device := deviceRenderer{hostRenderer{c}, c.FrameDevice}
		s.Renderer, s.Device = device, device
	}
	return s
}

// frameSize returns the bytes of a frame before augmentation.
func (c *ImageColumn) frameSize() int {
	if c.Augment == nil {
		return c.OutBytes
	}
	return 3 * c.Height * c.Width
}

// pixelRecipe returns a text of everything that determines a frame's pixels. It is part of the
// frame's key in a cache directory and must not change. It is empty for stills, which are not
// cached there.
func (c *ImageColumn) pixelRecipe() string {
	if !c.IsVideo() {
		return ""
	}
	spec := &c.Spec
	s := fmt.Sprintf("pixels 1 %d %d %d %t %s %+v",
		c.Height, c.Width, spec.Pixel, spec.ChannelsFirst, c.OutDType, spec.Depth)
	if c.Resize != options.Stretch {
		s += fmt.Sprint(" ", c.Resize)
	}
	if c.Transform != nil {
		steps, _ := json.Marshal(c.Transform)
		s += " " + string(steps)
	}
	if c.Norm != nil {
		s += fmt.Sprintf(" %v %v %v %t", c.Norm.Kind, c.Norm.A, c.Norm.B, c.Norm.Clip)
	}
	return s
}

// timeCheck returns a function that compares a frame's time in its file with its row's time. It
// returns nil if no tolerance is configured.
func (c *ImageColumn) timeCheck() func(
	w *frames.Worker, f frames.File, to frames.Target, k, ordinal int,
) error {
	if c.Source.Tolerance == nil || c.Source.VideoStart == nil || c.Time != nil || !c.IsVideo() {
		return nil
	}
	return func(w *frames.Worker, f frames.File, to frames.Target, k, ordinal int) error {
		return checkTime(w.Ctx(), to.(*target).part, c.Column, f, k, ordinal)
	}
}

// hostRenderer renders the pixels of a column on the host, before augmentation.
type hostRenderer struct{ column *ImageColumn }

// Render writes the pixels of a decoded frame to dst.
func (r hostRenderer) Render(f video.Frame, dst []byte) error {
	w, h := f.Size()
	return r.convertScaled(w, h, dst, f.Convert)
}

// RenderPlanes writes the pixels of stored planes to dst.
func (r hostRenderer) RenderPlanes(info video.PlaneInfo, planes, dst []byte) error {
	shape := info.Shape()
	convert := func(spec *video.Spec, into []byte) error {
		return video.ConvertPlanes(info, planes, spec, into)
	}
	return r.convertScaled(shape.Width, shape.Height, dst, convert)
}

// convertScaled writes the pixels of a w × h frame to dst. convert converts the frame as a Spec
// states, and the result is placed in the column's image.
func (r hostRenderer) convertScaled(
	w, h int, dst []byte, convert func(spec *video.Spec, into []byte) error,
) error {
	d, err := r.column.beginDraft(w, h, dst)
	if err != nil {
		return err
	}
	return d.Done(convert(&d.Spec, d.into))
}

// deviceRenderer renders the pixels of a column in device memory. Frames that the device cannot
// convert are rendered on the host and uploaded.
type deviceRenderer struct {
	host   hostRenderer
	memory video.DeviceMemory
}

// Memory returns the memory of the device.
func (r deviceRenderer) Memory() video.DeviceMemory { return r.memory }

// RendersPlanes reports whether the device can render the column's pixels from planes of this
// layout.
func (r deviceRenderer) RendersPlanes(info video.PlaneInfo) bool {
	c, shape := r.host.column, info.Shape()
	w, h, _, _ := c.scaledSize(shape.Width, shape.Height)
	if c.Transform != nil {
		return false // only the host has the filters of Transform
	}
	fits := c.Spec.Width != 0 || shape.Width == c.Width && shape.Height == c.Height
	return w == c.Width && h == c.Height && fits && r.memory.Converts(info, &c.Spec)
}

// Render renders a frame that the device or the host decoded.
func (r deviceRenderer) Render(f video.Frame, dst []byte) error {
	if planar, ok := f.(video.PlanarFrame); ok {
		if info, ok := planar.PlaneInfo(); ok && r.RendersPlanes(info) {
			if frame, ok := f.(video.DeviceFrame); ok {
				return frame.ConvertThere(&r.host.column.Spec, dst)
			}
			planes, release := hostScratch(info.Bytes())
			defer release()
			if err := planar.CopyPlanes(planes); err != nil {
				return err
			}
			return r.uploadPlanes(info, planes, dst)
		}
	}
	return r.uploadPixels(dst, func(pixels []byte) error { return r.host.Render(f, pixels) })
}

// RenderPlanes renders planes that are stored on the host.
func (r deviceRenderer) RenderPlanes(info video.PlaneInfo, planes, dst []byte) error {
	if r.RendersPlanes(info) {
		return r.uploadPlanes(info, planes, dst)
	}
	return r.uploadPixels(
		dst,
		func(pixels []byte) error { return r.host.RenderPlanes(info, planes, pixels) },
	)
}

// RenderKept renders planes that are in device memory.
func (r deviceRenderer) RenderKept(info video.PlaneInfo, planes, dst [][]byte) error {
	return r.memory.ConvertKept(info, planes, &r.host.column.Spec, dst)
}

// uploadPlanes uploads planes and renders them on the device.
func (r deviceRenderer) uploadPlanes(info video.PlaneInfo, planes, dst []byte) error {
	uploaded, err := r.host.column.Source.Resources.DeviceBuffers.Get(len(planes))
	if err != nil {
		return err
	}
	defer uploaded.Unref() // safe at once: the device executes its work in order
	if err := r.memory.UploadPlanes(info, uploaded.Mem[:len(planes)], planes); err != nil {
		return err
	}
	return r.RenderKept(info, [][]byte{uploaded.Mem[:len(planes)]}, [][]byte{dst})
}

// uploadPixels renders on the host and uploads the pixels to dst.
func (r deviceRenderer) uploadPixels(dst []byte, render func(pixels []byte) error) error {
	pixels, release := hostScratch(len(dst))
	defer release()
	if err := render(pixels); err != nil {
		return err
	}
	return r.memory.Upload(dst, pixels)
}

// hostBuffers recycles the memory of hostScratch.
var hostBuffers = sync.Pool{New: func() any { return new([]byte) }}

// hostScratch returns n bytes of host memory for a frame that is uploaded to a device. The caller
// must call release.
func hostScratch(n int) (b []byte, release func()) {
	scratch := hostBuffers.Get().(*[]byte)
	*scratch = slices.Grow((*scratch)[:0], n)[:n]
	return *scratch, func() { hostBuffers.Put(scratch) }
}
