package plan

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// openFiles sets the files of image columns. If a column needs videos, it opens a decoder pool that
// keeps at most budget bytes of idle decoders.
func (src *Source) openFiles(budget int64) error {
	for c := range src.ImageColumns() {
		switch {
		case c.IsStill:
			c.FrameFiles = column.StillFiles{Images: c}
			continue
		case src.Files != nil:
			c.FrameFiles = src.Files
			continue
		}
		ds := withoutRenaming(src.Dataset)
		if _, ok := ds.(column.PlaneSource); ok {
			continue // there are no files
		}
		if fake, ok := ds.(interface{ Files() frames.Files }); ok { // tests need no codec
			src.Files = fake.Files()
		} else {
			lib := video.LibraryOf(ds)
			if lib == nil {
				return robocache.Unsupported("loader", robocache.Where{"stream": c.Key},
					"the format %s gives no video files", ds.Info().Format).
					WithHint("%s without the video keys", robocache.Option("keys"))
			}
			if _, err := video.ActiveBackend(); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.Key})
			}
			library := frames.NewLibrary(lib, budget)
			src.Files = library
			if err := src.openDevice(library); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.Key})
			}
		}
		c.FrameFiles = src.Files
	}
	return nil
}

// deviceDecoders is the device memory that idle decoders may hold, in bytes.
const deviceDecoders = 2 << 30

// openDevice adds a device that decodes, if decode is configured.
func (src *Source) openDevice(files *frames.Library) error {
	cfg := &src.Config
	if cfg.Decode == options.DecodeCPU {
		return nil
	}
	b, err := video.OpenDevice(cfg.DecodeDevice)
	switch {
	case err != nil && cfg.Decode == options.DecodeGPU:
		return err
	case err != nil:
		src.report.Notes = append(src.report.Notes, "video is decoded on the CPU: "+err.Error())
		return nil
	}
	src.decodeDevice, _ = b.(video.DeviceMemory)
	// Resources.TakeCore is set later, so do not copy it.
	takeCore := func() func() { return src.Resources.TakeCore() }
	src.deviceWorkers = files.Split(b, deviceDecoders, cfg.Decode == options.DecodeGPU, takeCore)
	return nil
}

// maxProbes bounds how many episodes are searched for a first frame.
const maxProbes = 8

// anySide is the side of a recorded image of which nothing is known, when the size of the result
// does not depend on it.
const anySide = 4096

// probeSizes reads the size of each image column from its first frame, because declared sizes may
// be wrong.
func (src *Source) probeSizes(ctx context.Context) error {
	for c := range src.ImageColumns() {
		if c.Spec.Width != 0 {
			continue
		}
		width, height, err := src.firstSize(ctx, c)
		switch {
		case width > 0 && height > 0 && c.Spec.Width == 0:
			if err := c.SetSourceSize(height, width); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.Key})
			}
		case width > 0 && height > 0: // it is depth, which has another size
			c.SetSize(c.Height, c.Width)
		case c.Width > 0 && c.Height > 0:
			// No frame could be read. Assume the declared size; each frame is checked against it.
			if err := c.SetSourceSize(c.Height, c.Width); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.Key})
			}
		case err != nil:
			return robocache.At(err, robocache.Where{"stream": c.Key})
		case c.Transform != nil && !src.Config.DependsOnSize():
			if err := c.SetSourceSize(anySide, anySide); err != nil {
				return robocache.At(err, robocache.Where{"stream": c.Key})
			}
			c.SourceHeight, c.SourceWidth = 0, 0
		default:
			return robocache.Malformed("loader", robocache.Where{"stream": c.Key},
				"nothing says the size of the frames").
				WithHint("Pass %s", robocache.Option("image_size"))
		}
		if c.Width > 1<<15 || c.Height > 1<<15 {
			return robocache.ResourceLimit("loader", robocache.Where{"stream": c.Key}, "").
				Expected(
					"frames of at most 32768×32768",
					column.SizeError(c, c.Width, c.Height).Error(),
				)
		}
	}
	return nil
}

// firstSize returns the size of the first frame that can be read.
func (src *Source) firstSize(
	ctx context.Context,
	c *column.ImageColumn,
) (width, height int, err error) {
	tried := 0
	for i := range src.Table.Len() {
		if from, to := src.Table.Span(i); from == to {
			continue
		}
		tried++
		if tried > maxProbes {
			break
		}
		ref := make([]robocache.FrameRef, 1)
		rows := []robocache.Row{{Episode: src.Table.Episode(i)}}
		if err = src.Dataset.Frames(ctx, c.StreamKey(), rows, ref); err != nil || ref[0].Missing {
			continue
		}
		if !c.IsVideo() {
			var info video.StillInfo
			if info, err = video.ImageSize(&ref[0]); err != nil {
				continue
			}
			// An image with another dtype than declared is depth.
			if info.DType != robocache.Uint8 && c.OutDType == robocache.Uint8 {
				chooseDepth(c, &src.Config, c.Spec.Depth)
				if src.Config.DepthUnit == "code" && info.DType == robocache.Uint16 {
					c.Spec.Pixel, c.OutDType, c.Unit = video.Gray16, robocache.Uint16, ""
				}
				chooseSize(c, &src.Config)
			}
			return info.Width, info.Height, nil
		}
		var r frames.File
		if r, err = src.Files.Open(ctx, ref[0].Path); err != nil {
			continue
		}
		defer r.Release()
		width, height = r.Size()
		return width, height, nil
	}
	return 0, 0, err
}
