package loader

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// openFiles finds the files and makes the decoder pool, which keeps at most budget bytes of idle ones, where a column needs them.
func (src *source) openFiles(budget int64) error {
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo {
			continue
		}
		ds := base(src.ds)
		if fake, ok := ds.(interface{ files() frames.Files }); ok { // of tests, which need no codec
			src.files = fake.files()
			return nil
		}
		lib := video.LibraryOf(ds)
		if lib == nil {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "the format " + ds.Info().Format + " gives no video files", Hint: "keys= without the video keys"}
		}
		if _, err := video.ActiveBackend(); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.key})
		}
		src.files = frames.NewLibrary(lib, budget)
		return nil
	}
	return nil
}

// probes bounds how many episodes are asked for a first frame.
const probes = 8

// probe finds the true size of each frame column from its first frame: what metadata declare may lie.
func (src *source) probe(ctx context.Context) error {
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo && c.source != fromStills || c.spec.Width != 0 {
			continue
		}
		width, height, err := src.firstSize(ctx, c)
		switch {
		case width > 0 && height > 0:
			src.layout.resize(i, height, width)
		case c.width > 0 && c.height > 0:
			// No frame could be looked at: what is declared holds until one comes, and each is checked against it.
		case err != nil:
			return robocache.At(err, robocache.Where{"stream": c.key})
		default:
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "nothing says the size of the frames", Hint: "image_size=[h, w]"}
		}
		if c.width > 1<<15 || c.height > 1<<15 {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Where: robocache.Where{"stream": c.key}, Want: "frames of at most 32768×32768", Got: sizeError(c, c.width, c.height).Error()}
		}
	}
	return nil
}

func (src *source) firstSize(ctx context.Context, c *column) (width, height int, err error) {
	tried := 0
	for i := range src.table.Len() {
		if from, to := src.table.Span(i); from == to {
			continue
		}
		if tried++; tried > probes {
			break
		}
		row := []robocache.Row{{Episode: src.table.Episode(i), Index: 0}}
		ref := make([]robocache.FrameRef, 1)
		if err = src.ds.Frames(ctx, c.key, row, ref); err != nil || ref[0].Missing {
			continue
		}
		if c.source == fromStills {
			var info video.StillInfo
			if info, err = video.ImageSize(&ref[0]); err != nil {
				continue
			}
			if info.DType != robocache.Uint8 && c.out == robocache.Uint8 {
				// Sixteen bits or floats that nobody declared as depth.
				src.depthStills(c, info.DType)
			}
			return info.Width, info.Height, nil
		}
		var r frames.File
		if r, err = src.files.Open(ctx, ref[0].Path); err != nil {
			continue
		}
		width, height = r.Size()
		r.Release()
		return width, height, nil
	}
	return 0, 0, err
}

// depthStills makes a column of stills one of depth images.
func (src *source) depthStills(c *column, stored robocache.DType) {
	c.spec.Pixel, c.unit = src.cfg.depth()
	c.out = robocache.Float32
	if src.cfg.DepthUnit == "code" && stored == robocache.Uint16 {
		c.spec.Pixel, c.out, c.unit = video.Gray16, robocache.Uint16, ""
	}
	t := &src.layout.tensors[c.entry]
	t.dtype = c.out
	t.shape[len(t.shape)-3] = 1 // shared with the field
	for k := range src.layout.fields {
		if f := &src.layout.fields[k]; f.Key == c.key && !f.Mask {
			f.DType, f.Unit = c.out, c.unit
		}
	}
}
