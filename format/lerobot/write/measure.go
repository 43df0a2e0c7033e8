package write

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// measureCameras reads the size of each camera's images from its first file, or from the first
// still image. Declared sizes can be wrong.
func (c *conversion) measureCameras(ctx context.Context) error {
	for i := range c.features {
		f := &c.features[i]
		isStill := f.fromStills || f.Kind == robocache.KindImage && (f.Width == 0 || f.Height == 0)
		if !isStill && (f.Kind != robocache.KindVideo || c.library == nil) {
			continue
		}
		ref := make([]robocache.FrameRef, 1)
		for _, e := range c.options.Episodes {
			measured, err := c.measureEpisode(ctx, f, e, isStill, ref)
			if err != nil {
				return err
			}
			if measured {
				break
			}
		}
	}
	return nil
}

// measureEpisode reports whether an episode determines the size of a camera's images.
func (c *conversion) measureEpisode(
	ctx context.Context,
	f *feature,
	e int,
	isStill bool,
	ref []robocache.FrameRef,
) (bool, error) {
	n := c.src.Len(e)
	if n == 0 {
		return false, nil
	}
	rows := []int{0, n / 2, n - 1} // a row can lack its still image
	if !isStill {
		rows = rows[:1]
	}
	for _, k := range rows {
		err := c.src.Frames(ctx, f.source, []robocache.Row{{Episode: e, Index: k}}, ref)
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err != nil || ref[0].Missing {
			continue // The error is reported when the episode is converted.
		}
		if isStill && f.measureStill(&ref[0]) || !isStill && c.measureVideo(ctx, f, ref[0].Path) {
			return true, nil
		}
	}
	return false, nil
}

// measureVideo reads the size of a camera's images from a file. It returns false if this fails.
func (c *conversion) measureVideo(ctx context.Context, f *feature, path string) bool {
	if path == "" {
		return false
	}
	w, h, err := c.displaySize(ctx, path)
	if err != nil {
		return false
	}
	if f.Width != 0 && (f.Width != w || f.Height != h) {
		c.addFinding(
			robocache.SeverityWarning,
			"size-corrected",
			robocache.Where{"stream": f.source, "file": path},
			fmt.Sprintf("declared %d×%d, the images are %d×%d", f.Width, f.Height, w, h),
		)
	}
	f.Width, f.Height = w, h
	return true
}

// displaySize returns the size at which the images of a file are shown.
func (c *conversion) displaySize(ctx context.Context, path string) (w, h int, err error) {
	defer crash.Recover("convert", &err)
	file, err := c.library.Acquire(ctx, path)
	if err != nil {
		return w, h, err
	}
	defer file.Release()
	entry := file.Index.Entries()[0]
	if entry.Rotation%180 != 0 {
		return entry.Height, entry.Width, nil
	}
	return entry.Width, entry.Height, nil
}

// measureStill reads the size of a stream of still images from an image. It returns false if this
// fails.
func (f *feature) measureStill(ref *robocache.FrameRef) bool {
	info, err := video.ImageSize(ref)
	if err != nil {
		return false
	}
	f.Width, f.Height = info.Width, info.Height
	if f.fromStills {
		f.Channels = 3
	} else if f.Channels == 0 {
		f.Channels = info.Channels
	}
	if !f.fromStills && f.Depth == nil && info.Channels == 1 {
		f.DType = info.DType // the source may declare bytes but store 16-bit depth
	}
	f.Shape = []int{f.Height, f.Width, f.Channels}
	f.Names = json.RawMessage(`["height","width","channels"]`)
	return true
}
