package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache/kernel"
)

// imagePart mirrors ImagePart of src/images.cu, which documents the fields.
type imagePart struct {
	src, draws, out, table               uintptr
	work, bytes                          int64
	fromHeight, fromWidth, height, width int32
	quads, tiles                         int32
}

// maxImageParts is the maximal number of cameras in one launch.
const maxImageParts = 50

// imageParams mirrors Images of src/images.cu.
type imageParams struct {
	work     int64
	parts, _ int32
	s        [maxImageParts]imagePart
}

// imageQuads is kQuads of src/images.cu.
const imageQuads = 1024

// imagesCall returns the call that augments the images of some parts.
func imagesCall(p *imageParams) call {
	return call{
		kernel: "augment_images",
		block:  256,
		shared: 3072,
		early:  true,
		params: paramsOf(p),
		args:   func() string { return fmt.Sprintf("parts %d, blocks %d", p.parts, p.work) },
	}
}

// prepareImages prepares the augmentation of images by their draws. One launch handles all cameras.
func (d *Device) prepareImages(op *kernel.ImageOp) (*Launch, error) {
	l := newLaunch(d.launcher, "augment", op)
	var tables []byte
	for i := range op.Parts {
		for _, v := range op.Parts[i].Table {
			tables = binary.LittleEndian.AppendUint32(tables, math.Float32bits(v))
		}
	}
	table, err := l.uploadTable(tables)
	if err != nil {
		return nil, err
	}
	var plain, transformed []int
	for i := range op.Parts {
		x := &op.Parts[i]
		switch {
		case x.Out.Len() == 0:
		case x.Scale.Filter != "" || x.Rotates || x.ChannelsLast:
			transformed = append(transformed, i)
		default:
			plain = append(plain, i)
		}
	}
	at := func(i int) uintptr { // of the table of part i
		if op.Parts[i].Table == nil {
			return 0
		}
		before := 0
		for k := range i {
			before += len(op.Parts[k].Table)
		}
		return table + 4*uintptr(before)
	}
	if err := l.addPlainImages(op, plain, at); err != nil {
		return nil, err
	}
	if err := l.addTransforms(op, transformed, at); err != nil {
		return nil, err
	}
	return l, nil
}

// addPlainImages adds launches for parts that are neither scaled nor rotated.
func (l *Launch) addPlainImages(
	op *kernel.ImageOp, parts []int, table func(i int) uintptr,
) error {
	var p *imageParams
	n := 0
	for _, i := range parts {
		part := &op.Parts[i]
		s, o := part.Src.Shape, part.Out.Shape
		if o[2]*((o[3]+3)/4) > math.MaxInt32-imageQuads {
			return tooLargeError("augment", "pixels of an image", o[2]*o[3])
		}
		if p == nil || p.parts == maxImageParts {
			p = &imageParams{}
			n = l.addCall(imagesCall(p))
		}
		x := &p.s[p.parts]
		*x = imagePart{
			table:      table(i),
			work:       p.work,
			bytes:      int64(part.Src.Len()),
			fromHeight: int32(s[2]),
			fromWidth:  int32(s[3]),
			height:     int32(o[2]),
			width:      int32(o[3]),
			quads:      int32((o[3] + 3) / 4),
		}
		x.tiles = int32(ceilDiv(int64(x.quads)*int64(x.height), imageQuads))
		p.work += int64(s[0]) * int64(x.tiles)
		l.bind(n, &x.src, &part.Src)
		l.bind(n, &x.draws, &part.Draws)
		l.bind(n, &x.out, &part.Out)
		p.parts++
		l.calls[n].grid = uint32(min(p.work, 1<<30))
	}
	return nil
}
