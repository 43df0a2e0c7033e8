// Package stills gives the images of any dataset one by one as still images, for writers of formats
// that have no video.
//
// # Contract
//
//	S1  Still images come as the dataset has them, encoded or raw. Video images come decoded: Raw, RGB of uint8, or metres of float32 for depth.
//	S2  Images come in the order of the rows; what was given is valid during the call.
//	S3  One goroutine at a time.
package stills

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Reader reads images of one dataset.
type Reader struct {
	ds   robocache.Dataset
	pool *video.Pool
	refs []robocache.FrameRef
	buf  []byte
}

// New makes a reader, which decodes video by a pool that stays the caller's.
func New(ds robocache.Dataset, pool *video.Pool) *Reader { return &Reader{ds: ds, pool: pool} }

// Each calls fn with the image of every row. A row without one has Missing.
func (r *Reader) Each(
	ctx context.Context,
	f *robocache.Feature,
	rows []robocache.Row,
	fn func(i int, ref *robocache.FrameRef) error,
) error {
	r.refs = slices.Grow(r.refs[:0], len(rows))[:len(rows)]
	clear(r.refs)
	if err := r.ds.Frames(ctx, f.Key, rows, r.refs); err != nil {
		return err
	}
	spec := &video.Spec{Pixel: video.RGB8}
	raw := robocache.Raw{Channels: 3, DType: robocache.Uint8}
	switch {
	case f.Depth != nil: // the code's levels are no millimetres
		spec = &video.Spec{Pixel: video.DepthM, Depth: f.Depth}
		raw = robocache.Raw{Channels: 1, DType: robocache.Float32}
	case f.DType == robocache.Uint16:
		spec.Pixel = video.Gray16
		raw = robocache.Raw{Channels: 1, DType: robocache.Uint16}
	}
	err := video.EachFrame(
		ctx,
		video.LibraryOf(r.ds),
		r.refs,
		video.Each{Pool: r.pool},
		func(at []int, pic video.Frame) (err error) {
			if pic == nil {
				return fn(at[0], &r.refs[at[0]])
			}
			if r.buf, err = video.ConvertTo(r.buf, pic, spec); err != nil {
				return err
			}
			raw.Width, raw.Height = pic.Size()
			raw.Pix = r.buf
			for _, i := range at {
				one := raw
				if err := fn(i, &robocache.FrameRef{Raw: &one}); err != nil {
					return err
				}
			}
			return nil
		},
	)
	return robocache.At(err, robocache.Where{"stream": f.Key})
}
