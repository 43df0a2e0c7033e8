package stats

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Still decodes the still image of a row into buf, grown as needed.
func Still(ref *robocache.FrameRef, spec *video.Spec, buf []byte) (_ []byte, err error) {
	info, err := video.ImageSize(ref)
	if err != nil {
		return nil, err
	}
	n, err := video.StillBytes(info, spec)
	if err != nil {
		return nil, err
	}
	buf = slices.Grow(buf[:0], n)[:n]
	return buf, video.DecodeImage(ref, spec, buf)
}

// AddStill counts the still image of a row: RGB whatever its colours, as the reference does, or
// 16-bit depth. ErrUnsupported for depth in float32, whose levels cannot be counted.
func (p *Pixels) AddStill(ref *robocache.FrameRef) (err error) {
	spec := &video.Spec{Pixel: video.RGB8}
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.DType == robocache.Float32 {
		return robocache.Unsupported(
			"statistics",
			nil,
			"depth images in float32 have no statistics",
		)
	}
	if p.deep() {
		spec.Pixel = video.Gray16
	}
	pic, err := Still(ref, spec, p.buf)
	if err != nil {
		return err
	}
	p.buf = pic
	if p.deep() {
		p.Add16(pic, info.Width)
	} else {
		p.Add8(pic, info.Width)
	}
	return nil
}

func (p *Pixels) deep() bool { return len(p.value) > 256 }

// Images makes the counter that fits the images of a feature: of every pixel where all frames are
// looked at, else of every few of large images.
func (p FramePolicy) Images(f *robocache.Feature) *Pixels {
	out := NewPixels(3)
	switch {
	case f.Kind == robocache.KindVideo && f.Depth != nil:
		out = NewDepth(f.Depth)
	case f.Depth != nil, f.Kind == robocache.KindImage && f.DType == robocache.Uint16:
		out = NewDepth(nil)
	}
	out.thin = p != AllFrames
	return out
}
