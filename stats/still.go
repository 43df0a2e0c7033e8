package stats

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Still decodes the still image of a row into buf, which grows if necessary.
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

// AddStill counts the still image of a row: as RGB for any colors, like lerobot, or as 16-bit
// depth. Depth in float32 is ErrUnsupported, because its levels cannot be counted.
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
	if p.isDepth() {
		spec.Pixel = video.Gray16
	}
	pic, err := Still(ref, spec, p.buf)
	if err != nil {
		return err
	}
	p.buf = pic
	if p.isDepth() {
		p.Add16(pic, info.Width)
	} else {
		p.Add8(pic, info.Width)
	}
	return nil
}

func (p *Pixels) isDepth() bool { return len(p.value) > 256 }

// Images returns the counter for the images of a feature. It counts every pixel if all frames are
// counted, and otherwise only some pixels of large images.
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
