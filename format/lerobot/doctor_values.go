package lerobot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Numbers of rows that the doctor reads at once.
const (
	valueBlock = 4096
	imageBlock = 16
)

// maxFeatureErrors is the number of errors of one feature after which its remaining episodes are
// skipped.
const maxFeatureErrors = 20

// eachBlock calls read for blocks of rows of every requested episode without a finding so far. An
// error becomes a finding, and the rest of its episode is skipped.
func (doc *doctor) eachBlock(
	ctx context.Context, f *robocache.Feature, step int, read func(rows []robocache.Row) error,
) {
	failures := 0
	for e := range doc.dataset.episodes.count() {
		if !doc.isRequested(e) || doc.unreadable[e] {
			continue
		}
		for first := 0; first < doc.dataset.Len(e) && doc.failed == nil; first += step {
			rows := robocache.RowsOf(e, first, min(step, doc.dataset.Len(e)-first))
			if err := read(rows); err != nil {
				doc.recordRowError(ctx, err, f, e)
				failures++
				break
			}
		}
		if failures >= maxFeatureErrors || doc.failed != nil {
			return
		}
	}
}

// recordRowError records an error about rows of a feature. A value that does not fit the declared
// type is a finding of its own; reportError records any other error.
func (doc *doctor) recordRowError(ctx context.Context, err error, f *robocache.Feature, e int) {
	where := robocache.Where{"stream": f.Key, "episode": doc.dataset.episodes.indexAt(e)}
	var typed *robocache.Error
	if ctx.Err() != nil || !errors.As(err, &typed) || !strings.HasPrefix(typed.Want, wantFit) {
		doc.reportError(ctx, err, where)
		return
	}
	for k, v := range typed.Where {
		if _, ok := where[k]; !ok {
			where[k] = v
		}
	}
	doc.addFinding(fmt.Sprint("stored-value\x00", f.Key, "\x00", e), robocache.Finding{
		Severity: robocache.SeverityError, Code: "stored-value", Where: where, Count: 1,
		Message: fmt.Sprintf("expected %s, as info.json declares; found %s", typed.Want, typed.Got),
		Hint:    "declare the type that is stored in " + infoPath + ", or write values that fit",
	})
}

// wantFit is the prefix of errors about values that do not fit the declared type.
const wantFit = "a value that fits"

// checkNumbers reads every value of a numeric feature. It finds values that do not fit the declared
// type, and values of each episode that are NaN or infinite.
func (doc *doctor) checkNumbers(ctx context.Context, f *robocache.Feature) {
	size := f.RowBytes()
	raw := make([]byte, valueBlock*size)
	doc.eachBlock(ctx, f, valueBlock, func(rows []robocache.Row) error {
		b := raw[:len(rows)*size]
		if err := doc.dataset.Gather(ctx, f.Key, rows, b); err != nil {
			return err
		}
		if robocache.NotFinite(f.DType, b) > 0 {
			doc.recordNonFinite(f, rows, robocache.Float64s(nil, f.DType, b))
		}
		return nil
	})
}

// recordNonFinite records values that are NaN or infinite, in one finding per episode with the
// first location.
func (doc *doctor) recordNonFinite(f *robocache.Feature, rows []robocache.Row, values []float64) {
	names := f.ChannelNames()
	for i, v := range values {
		isFinite := v-v == 0 // NaN and ±Inf give NaN
		if isFinite {
			continue
		}
		element := i % f.Elements()
		r := rows[i/f.Elements()]
		what := fmt.Sprintf("element %d", element)
		if len(names) == f.Elements() {
			what += fmt.Sprintf(" (%s)", names[element])
		}
		doc.addFinding(fmt.Sprint("not-finite\x00", f.Key, "\x00", r.Episode), robocache.Finding{
			Severity: robocache.SeverityError, Code: "not-finite", Count: 1,
			Where: robocache.Where{
				"stream":  f.Key,
				"column":  f.Key,
				"episode": doc.dataset.episodes.indexAt(r.Episode),
				"row":     r.Index,
				"index":   element,
			},
			Message: fmt.Sprintf("%s is %v", what, v),
			Hint: "write a number, or leave the episode out: " +
				robocache.Command("doctor --fix --in-place --drop-bad") + " does",
		})
	}
}

// checkTexts reads every value of a text or language feature.
func (doc *doctor) checkTexts(ctx context.Context, f *robocache.Feature) {
	doc.eachBlock(ctx, f, valueBlock, func(rows []robocache.Row) error {
		_, err := doc.dataset.Text(ctx, f.Key, rows)
		return err
	})
}

// checkImages reads the header of every still image of a feature. With Decode it also decodes the
// pixels.
func (doc *doctor) checkImages(ctx context.Context, f *robocache.Feature) {
	refs := make([]robocache.FrameRef, imageBlock)
	first := &video.StillInfo{} // size of the first image
	doc.eachBlock(ctx, f, imageBlock, func(rows []robocache.Row) error {
		if err := doc.dataset.Frames(ctx, f.Key, rows, refs[:len(rows)]); err != nil {
			return err
		}
		for i, r := range rows {
			info, err := doc.readImage(&refs[i])
			if robocache.IsFatal(err) {
				return err
			}
			if err != nil {
				key := fmt.Sprint("unreadable-image\x00", f.Key, "\x00", r.Episode)
				doc.addFinding(key, robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-image",
					Where:    doc.imageWhere(f, r),
					Count:    1,
					Message:  err.Error(),
					Hint:     undecodableHint(),
				})
				continue
			}
			doc.checkImageSize(f, r, info, first)
		}
		return nil
	})
}

// imageWhere returns the place of an image.
func (doc *doctor) imageWhere(f *robocache.Feature, r robocache.Row) robocache.Where {
	return robocache.Where{
		"stream":  f.Key,
		"column":  f.Key,
		"episode": doc.dataset.episodes.indexAt(r.Episode),
		"row":     r.Index,
	}
}

// readImage reads the header of an image, and decodes it if the options require it.
func (doc *doctor) readImage(ref *robocache.FrameRef) (video.StillInfo, error) {
	info, err := video.ImageSize(ref)
	if err != nil {
		return info, err
	}
	if isCutPNG(ref.Encoded) {
		return info, malformed(nil, "the end of a PNG image", "a file that is cut")
	}
	if doc.options.Decode {
		return info, decodeStill(ref, info)
	}
	return info, nil
}

// checkImageSize compares the size of an image with the declared size and with the first image. It
// sets the size of the first image.
func (doc *doctor) checkImageSize(
	f *robocache.Feature,
	r robocache.Row,
	info video.StillInfo,
	first *video.StillInfo,
) {
	isFirst := first.Width == 0
	isDeclared := info.Width == f.Width && info.Height == f.Height
	if isFirst && f.Height > 0 && !isDeclared {
		doc.recordFault(
			robocache.SeverityWarning,
			"size-lies",
			doc.imageWhere(f, r),
			"fix the shape in info.json",
			"info.json says %d×%d (height × width), the image is %d×%d",
			f.Height,
			f.Width,
			info.Height,
			info.Width,
		)
	}
	first.Width = cmp.Or(first.Width, info.Width)
	first.Height = cmp.Or(first.Height, info.Height)
	if info.Width != first.Width || info.Height != first.Height {
		key := fmt.Sprint("image-size\x00", f.Key, "\x00", r.Episode)
		doc.addFinding(key, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "image-size",
			Where:    doc.imageWhere(f, r),
			Count:    1,
			Message: fmt.Sprintf("expected %d×%d (height × width), found %d×%d",
				first.Height, first.Width, info.Height, info.Width),
			Hint: "read them at one size with " +
				robocache.Option("image_size") + ", or write images of one size",
		})
	}
}

// isCutPNG reports whether b begins as a PNG and lacks its last chunk.
func isCutPNG(b []byte) bool {
	const maxTrailer = 64
	isPNG := bytes.HasPrefix(b, []byte("\x89PNG"))
	trailer := b[max(0, len(b)-maxTrailer):]
	return isPNG && !bytes.Contains(trailer, []byte("IEND"))
}

// decodeStill decodes a still image and discards the pixels.
func decodeStill(ref *robocache.FrameRef, info video.StillInfo) error {
	spec := info.Own()
	if spec == nil {
		spec = &video.Spec{Pixel: video.RGB8}
	}
	n, err := video.StillBytes(info, spec)
	if err != nil {
		return err
	}
	return video.DecodeImage(ref, spec, make([]byte, n))
}
