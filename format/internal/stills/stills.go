// Package stills gives the images of any dataset one by one as still images, for writers of formats that have no video.
//
// # Contract
//
//	S1  Still images come as the dataset has them, encoded or raw. Video images come decoded: Raw, RGB of uint8, or metres of float32 for depth.
//	S2  Images come in the order of the rows; what was given is valid during the call.
//	S3  One goroutine at a time; Close ends what was opened.
package stills

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// Reader reads images of one dataset.
type Reader struct {
	ds   robocache.Dataset
	pool *video.Pool
	refs []robocache.FrameRef
	buf  []byte
}

// New makes a reader. Decoders are opened when the first video image is asked for.
func New(ds robocache.Dataset) *Reader { return &Reader{ds: ds} }

// Close gives the decoders back.
func (r *Reader) Close() error {
	if r.pool != nil {
		r.pool.Close()
	}
	return nil
}

// Each calls fn with the image of every row. A row without one has Missing.
func (r *Reader) Each(ctx context.Context, f *robocache.Feature, rows []robocache.Row, fn func(i int, ref *robocache.FrameRef) error) error {
	r.refs = slices.Grow(r.refs[:0], len(rows))[:len(rows)]
	clear(r.refs)
	if err := r.ds.Frames(ctx, f.Key, rows, r.refs); err != nil {
		return err
	}
	for i := 0; i < len(rows); {
		if r.refs[i].Path == "" {
			if err := fn(i, &r.refs[i]); err != nil {
				return err
			}
			i++
			continue
		}
		// A run: one file, ordinals that do not go back. An image shown twice is decoded once.
		n := 1
		for i+n < len(rows) && r.refs[i+n].Path == r.refs[i].Path && r.refs[i+n].Ordinal >= r.refs[i+n-1].Ordinal {
			n++
		}
		if err := r.run(ctx, f, i, r.refs[i:i+n], fn); err != nil {
			return robocache.At(err, robocache.Where{"file": r.refs[i].Path, "stream": f.Key})
		}
		i += n
	}
	return nil
}

func (r *Reader) run(ctx context.Context, f *robocache.Feature, first int, refs []robocache.FrameRef, fn func(i int, ref *robocache.FrameRef) error) error {
	src, ok := robocache.As[stats.VideoSource](r.ds)
	if !ok {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "images", Msg: "the dataset does not give its video files"}
	}
	if r.pool == nil {
		r.pool = video.NewPool(256 << 20)
	}
	file, err := src.Video().Acquire(ctx, refs[0].Path)
	if err != nil {
		return err
	}
	defer file.Release()
	spec := &video.Spec{Pixel: video.RGB8}
	raw := robocache.Raw{Channels: 3, DType: robocache.Uint8}
	if f.Depth != nil {
		spec = &video.Spec{Pixel: video.DepthM, Depth: f.Depth}
		raw = robocache.Raw{Channels: 1, DType: robocache.Float32}
	}
	ordinals := make([]int, len(refs))
	for i := range refs {
		ordinals[i] = refs[i].Ordinal
	}
	at := 0
	for _, g := range video.Plan(file.Index, ordinals) {
		err := r.pool.Decode(ctx, file, g, func(ordinal int, pic video.Frame) error {
			if at == len(refs) || refs[at].Ordinal != ordinal {
				return &robocache.Error{Class: robocache.ErrMalformed, Op: "images", Where: robocache.Where{"ordinal": ordinal}, Msg: "an image came out of order"}
			}
			n, err := pic.Bytes(spec)
			if err != nil {
				return err
			}
			r.buf = slices.Grow(r.buf[:0], n)[:n]
			if err := pic.Convert(spec, r.buf); err != nil {
				return err
			}
			raw.Width, raw.Height = pic.Size()
			raw.Pix = r.buf
			for ; at < len(refs) && refs[at].Ordinal == ordinal; at++ {
				one := raw
				if err := fn(first+at, &robocache.FrameRef{Raw: &one}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if at < len(refs) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "images", Where: robocache.Where{"ordinal": refs[at].Ordinal}, Msg: fmt.Sprintf("%d images did not come", len(refs)-at)}
	}
	return nil
}
