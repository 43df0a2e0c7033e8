// Package raster gives the images of a stream as pixels, whatever they are in the source: for
// writers of array formats.
//
// # Contract
//
//	X1  All images of a stream have the form of its first one: uint8 × 3 or × 1; depth is uint16 as stored, or float32 (of video: metres).
//	    An image of another size or kind, and a row without one, is an error that names the row.
//	X2  Images are decoded on as many cores as asked for; what is given does not depend on their number.
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
	grey    bool // of R, G, B only the first is kept
	threads int
	lib     *video.Library
	pool    *video.Pool
}

// Open looks at the first image among some rows: those whose form the stream is given.
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
		if err := ds.Frames(
			ctx,
			f.Key,
			[]robocache.Row{row},
			ref[:],
		); err != nil ||
			ref[0].Missing {
			continue
		}
		if err := s.form(ctx, f, &ref[0]); err != nil {
			return nil, robocache.At(err, where(ds, f.Key, row))
		}
		return s, nil
	}
	return nil, robocache.Malformed("images", robocache.Where{"stream": f.Key}, "no image is here")
}

func where(ds robocache.Dataset, key string, row robocache.Row) robocache.Where {
	return robocache.Where{
		"stream":  key,
		"episode": ds.Info().EpisodeIndex(row.Episode),
		"row":     row.Index,
	}
}

func (s *Source) form(
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
		// metres, which nothing has to say; what is no depth as it is
		s.DType, s.Channels, s.spec.Pixel, s.spec.Depth = robocache.Float32, 1, video.DepthM, &robocache.Depth{
			Unit: cmp.Or(f.DepthUnit(), "m"),
		}
	case info.Channels == 1 && f.Channels == 1:
		s.Channels, s.grey = 1, true
	}
	return nil
}

// RowBytes is the size of one image.
func (s *Source) RowBytes() int { return s.Height * s.Width * s.Channels * s.DType.Size() }

// Read decodes the images of rows into dst, one after the other.
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
			return robocache.Malformed("images", where(s.ds, s.key, rows[i]), "the row has no image").
				WithHint("leave the episode out")
		}
		if refs[i].Path != "" && s.pool == nil {
			return robocache.Malformed(
				"images",
				where(s.ds, s.key, rows[i]),
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
				return robocache.At(s.still(&refs[at[0]], first), where(s.ds, s.key, rows[at[0]]))
			}
			if w, h := pic.Size(); w != s.Width || h != s.Height {
				return s.other(w, h)
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

func (s *Source) still(ref *robocache.FrameRef, dst []byte) (err error) {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.Width != s.Width || info.Height != s.Height {
		return s.other(info.Width, info.Height)
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

func (s *Source) other(w, h int) error {
	return robocache.Malformed("images", nil, "an image of another size").
		Expected(fmt.Sprintf("%d×%d", s.Width, s.Height), fmt.Sprintf("%d×%d", w, h))
}

// Close gives back the decoders.
func (s *Source) Close() {
	if s.pool != nil {
		_ = s.pool.Close()
	}
}
