// Package raster returns the images of a stream as pixels, independent of their form in the source.
// Writers of array formats use it.
//
// # Contract
//
//	raster.X1  All images of a stream have the form of its first image: uint8 × 3 or × 1. Depth is
//	           uint16 as stored, or float32 (meters for video). An image of another size or kind,
//	           or a row without an image, is an error that names the row.
//	raster.X2  Images are decoded in the requested number of threads. The result does not depend
//	           on it.
package raster

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Source is a stream of images.
type Source struct {
	DType                   robocache.DType
	Height, Width, Channels int

	ds      robocache.Dataset
	key     string
	spec    video.Spec
	grey    bool // only the first of R, G, B is kept
	threads int
	lib     *video.Library
	pool    *video.Pool
}

// Open determines the form of the stream from the first image among the rows first.
func Open(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	first []robocache.Row,
	threads int,
) (*Source, error) {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	s := &Source{ds: ds, key: f.Key, lib: video.LibraryOf(ds), threads: threads}
	for _, row := range first {
		var ref [1]robocache.FrameRef
		err := ds.Frames(ctx, f.Key, []robocache.Row{row}, ref[:])
		if err != nil || ref[0].Missing {
			continue
		}
		if err := s.detectForm(ctx, f, &ref[0]); err != nil {
			return nil, robocache.At(err, rowLocation(ds, f.Key, row))
		}
		return s, nil
	}
	return nil, robocache.Malformed("images", robocache.Where{"stream": f.Key}, "no image is here")
}

func rowLocation(ds robocache.Dataset, key string, row robocache.Row) robocache.Where {
	return robocache.Where{
		"stream":  key,
		"episode": ds.Info().EpisodeIndex(row.Episode),
		"row":     row.Index,
	}
}

func (s *Source) detectForm(
	ctx context.Context,
	f *robocache.Feature,
	ref *robocache.FrameRef,
) (err error) {
	s.DType, s.Channels = robocache.Uint8, 3
	if ref.Path != "" {
		s.pool = video.NewPool(0)
		if f.Depth != nil {
			s.DType, s.Channels = robocache.Float32, 1
			s.spec.Pixel, s.spec.Depth = video.DepthM, f.Depth
		}
		return video.EachFrame(
			ctx,
			s.lib,
			[]robocache.FrameRef{*ref},
			video.Each{Pool: s.pool},
			func(_ []int, pic video.Frame) error {
				s.Width, s.Height = pic.Size()
				n, err := pic.Bytes(&s.spec)
				if err == nil && n != s.RowBytes() {
					err = robocache.Unsupported(
						"images",
						nil,
						"%d bytes for %d×%d pixels",
						n,
						s.Width,
						s.Height,
					)
				}
				return err
			},
		)
	}
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	s.Height, s.Width = info.Height, info.Width
	switch {
	case info.DType == robocache.Uint16:
		s.DType, s.Channels, s.spec.Pixel = robocache.Uint16, 1, video.Gray16
	case info.DType == robocache.Float32:
		// float32 is depth in meters unless the stream has another unit
		s.DType, s.Channels = robocache.Float32, 1
		s.spec.Pixel = video.DepthM
		s.spec.Depth = &robocache.Depth{Unit: cmp.Or(f.DepthUnit(), "m")}
	case info.Channels == 1 && f.Channels == 1:
		s.Channels, s.grey = 1, true
	}
	return nil
}

// RowBytes returns the size of one image.
func (s *Source) RowBytes() int { return s.Height * s.Width * s.Channels * s.DType.Size() }

// Read decodes the images of rows into dst, in order.
func (s *Source) Read(ctx context.Context, rows []robocache.Row, dst []byte) error {
	size := s.RowBytes()
	if len(dst) != len(rows)*size {
		return robocache.Misuse("images", nil, "").
			Expected(fmt.Sprint(len(rows)*size, " bytes"), fmt.Sprint(len(dst)))
	}
	refs := make([]robocache.FrameRef, len(rows))
	if err := s.ds.Frames(ctx, s.key, rows, refs); err != nil {
		return robocache.At(err, robocache.Where{"stream": s.key})
	}
	for i := range refs {
		if refs[i].Missing {
			return robocache.Malformed(
				"images",
				rowLocation(s.ds, s.key, rows[i]),
				"the row has no image",
			).
				WithHint("leave the episode out")
		}
		if refs[i].Path != "" && s.pool == nil {
			return robocache.Malformed(
				"images",
				rowLocation(s.ds, s.key, rows[i]),
				"an image in a video among stills",
			)
		}
	}
	err := video.EachFrame(
		ctx,
		s.lib,
		refs,
		video.Each{Pool: s.pool, Threads: s.threads},
		func(at []int, pic video.Frame) error {
			first := dst[at[0]*size:][:size]
			if pic == nil {
				return robocache.At(
					s.decodeStill(&refs[at[0]], first),
					rowLocation(s.ds, s.key, rows[at[0]]),
				)
			}
			if w, h := pic.Size(); w != s.Width || h != s.Height {
				return s.sizeError(w, h)
			}
			if err := pic.Convert(&s.spec, first); err != nil {
				return err
			}
			for _, i := range at[1:] {
				copy(dst[i*size:][:size], first)
			}
			return nil
		},
	)
	return robocache.At(err, robocache.Where{"stream": s.key})
}

func (s *Source) decodeStill(ref *robocache.FrameRef, dst []byte) (err error) {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.Width != s.Width || info.Height != s.Height {
		return s.sizeError(info.Width, info.Height)
	}
	if !s.grey {
		return video.DecodeImage(ref, &s.spec, dst)
	}
	if info.Channels != 1 {
		return robocache.Malformed("images", nil, "a colour image among grey ones")
	}
	rgb := make([]byte, 3*len(dst))
	if err := video.DecodeImage(ref, &s.spec, rgb); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = rgb[3*i]
	}
	return nil
}

func (s *Source) sizeError(w, h int) error {
	return robocache.Malformed("images", nil, "an image of another size").
		Expected(fmt.Sprintf("%d×%d", s.Width, s.Height), fmt.Sprintf("%d×%d", w, h))
}

// Close releases the decoders.
func (s *Source) Close() {
	if s.pool != nil {
		_ = s.pool.Close()
	}
}
