// Package stills returns the images of any dataset one by one as still images. Writers of formats
// without video use it.
//
// # Contract
//
//	stills.S1  Still images are returned as stored, encoded or raw. Video images are decoded to
//	           Raw: RGB of uint8, or meters of float32 for depth.
//	stills.S2  Images are returned in the order of the rows. An image is valid during the call.
//	stills.S3  A Reader is not safe for concurrent use.
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

// New returns a reader that decodes video with pool. The caller owns the pool.
func New(ds robocache.Dataset, pool *video.Pool) *Reader { return &Reader{ds: ds, pool: pool} }

// Each calls fn with the image of every row. A row without an image has Missing set.
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
	case f.Depth != nil: // the stored levels are not millimeters
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
