package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// transformAxis mirrors Axis of src/images.cu.
type transformAxis struct {
	first     uintptr // the table of axisTable
	to, shift int32
}

// transformPart mirrors TransformPart of src/images.cu, which documents the fields.
type transformPart struct {
	src, draws, out, table                                      uintptr
	work                                                        int64
	x, y                                                        transformAxis
	gain, bias                                                  float32
	fromHeight, fromWidth, cropHeight, cropWidth, height, width int32
	tiles, arithmetic, rotates, channelsLast                    int32
}

// maxTransforms is the maximal number of cameras in one launch.
const maxTransforms = 30

// transformParams mirrors Transforms of src/images.cu.
type transformParams struct {
	work     int64
	parts, _ int32
	s        [maxTransforms]transformPart
}

// notScaled is kNone of src/images.cu.
const notScaled = 3

// addTransforms adds launches for parts that are scaled, rotated or interleaved.
func (l *Launch) addTransforms(op *kernel.ImageOp, parts []int, table func(i int) uintptr) error {
	var p *transformParams
	n := 0
	for _, i := range parts {
		part := &op.Parts[i]
		height, width := part.OutSize()
		if height*width > math.MaxInt32-imageQuads {
			return tooLargeError("augment", "pixels of an image", height*width)
		}
		if p == nil || p.parts == maxTransforms {
			p = &transformParams{}
			n = l.addCall(transformsCall(p))
		}
		x := &p.s[p.parts]
		*x = transformPart{
			table:        table(i),
			work:         p.work,
			fromHeight:   int32(part.Src.Shape[2]),
			fromWidth:    int32(part.Src.Shape[3]),
			height:       int32(height),
			width:        int32(width),
			tiles:        int32(ceilDiv(int64(height)*int64(width), imageQuads)),
			arithmetic:   notScaled,
			rotates:      flagOf(part.Rotates),
			channelsLast: flagOf(part.ChannelsLast),
		}
		if err := l.setScaler(x, part); err != nil {
			return err
		}
		p.work += int64(part.Src.Shape[0]) * int64(x.tiles)
		l.bind(n, &x.src, &part.Src)
		l.bind(n, &x.draws, &part.Draws)
		l.bind(n, &x.out, &part.Out)
		p.parts++
		l.calls[n].grid = uint32(min(p.work, 1<<30))
	}
	return nil
}

// transformsCall returns the call that transforms the images of some parts.
func transformsCall(p *transformParams) call {
	return call{
		kernel: "transform_images",
		block:  256,
		early:  true,
		params: paramsOf(p),
		args:   func() string { return fmt.Sprintf("parts %d, blocks %d", p.parts, p.work) },
	}
}

// flagOf returns 1 for true, as an int32 field of a kernel's parameters.
func flagOf(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// setScaler uploads the tables of the part's scaler and sets the fields of x that describe it. It
// does nothing if the part is not scaled.
func (l *Launch) setScaler(x *transformPart, part *kernel.ImagePart) error {
	if part.Scale.Filter == "" {
		return nil
	}
	x.cropHeight, x.cropWidth = int32(part.Crop[0]), int32(part.Crop[1])
	s, err := resize.New(
		part.Scale.Filter, part.Crop[0], part.Crop[1], int(x.height), int(x.width))
	if err != nil {
		return err
	}
	x.arithmetic, x.gain, x.bias = int32(s.Arithmetic), s.Gain, s.Bias
	for _, a := range []struct {
		from *resize.Axis
		to   *transformAxis
	}{{s.X, &x.x}, {s.Y, &x.y}} {
		a.to.to, a.to.shift = int32(a.from.To), a.from.Shift
		if a.to.first, err = l.uploadTable(axisTable(a.from)); err != nil {
			return err
		}
	}
	return nil
}

// axisTable returns an axis as Axis of src/images.cu stores it.
func axisTable(a *resize.Axis) (out []byte) {
	for _, list := range [][]int32{a.First, a.Start, a.Weights} {
		for _, v := range list {
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		}
	}
	for _, v := range a.Floats {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
