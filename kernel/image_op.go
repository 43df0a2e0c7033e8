package kernel

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// ImageOp augments images by the values drawn for them (kernel.K23).
type ImageOp struct{ Parts []ImagePart }

// ImagePart is the images of one camera. All tensors are in C order without gaps.
type ImagePart struct {
	Name  string // for errors
	Src   Tensor // uint8 [N, 3, H, W]
	Draws Tensor // int32 [N, ImageDrawWords]: one ImageDraw per image
	Out   Tensor // uint8 or float32 [N, 3, h, w], or [N, h, w, 3] with ChannelsLast
	ImageForm
}

// ImageForm states what is done to images besides what their draws state.
type ImageForm struct {
	Scale        ImageScale
	Crop         [2]int // height and width of the crop that Scale scales
	Rotates      bool   // draws may rotate images; without it their rotations are ignored
	ChannelsLast bool
	Table        []float32 // 3 × 256: float32 value of each byte, per channel, for a float32 result
}

// Tensors implements Op.
func (op *ImageOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

// Check rejects everything that can be detected without reading memory.
func (op *ImageOp) Check() error {
	for i := range op.Parts {
		p := &op.Parts[i]
		err := p.checkShapes()
		if err == nil {
			err = p.checkLayout()
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"part": i})
		}
	}
	return checkTensors(op)
}

// checkShapes rejects images, draws, results and tables that do not fit each other.
func (p *ImagePart) checkShapes() error {
	from, to := p.Src.Shape, p.Out.Shape
	isFloat := p.Out.DType == robocache.Float32
	hasChannels := func(shape []int, axis int) bool { return len(shape) == 4 && shape[axis] == 3 }
	if p.Src.DType != robocache.Uint8 || !hasChannels(from, 1) {
		return p.partError("images", "uint8 [N, 3, H, W]", p.Src.DType, " ", from)
	}
	axis, want := 1, "uint8 or float32 [%d, 3, h, w]"
	if p.ChannelsLast {
		axis, want = 3, "uint8 or float32 [%d, h, w, 3]"
	}
	isResult := hasChannels(to, axis) && to[0] == from[0]
	if !isResult || !isFloat && p.Out.DType != robocache.Uint8 {
		want := fmt.Sprintf(want, from[0])
		return p.partError("result", want, p.Out.DType, " ", to)
	}
	draws := []int{from[0], ImageDrawWords}
	const limit = 1 << 20
	switch {
	case p.Draws.DType != robocache.Int32 || !slices.Equal(p.Draws.Shape, draws):
		want := fmt.Sprintf("int32 [%d, %d]", draws[0], draws[1])
		return p.partError("draws", want, p.Draws.DType, " ", p.Draws.Shape)
	case (p.Table != nil) != isFloat:
		return p.partError("table", "one for a float32 result, none for uint8", p.Table != nil)
	case p.Table != nil && len(p.Table) != 3*256:
		return p.partError("table", "3 × 256 numbers", len(p.Table))
	case from[0] > 0 && p.Out.Len() > 0 && (from[2] == 0 || from[3] == 0):
		return p.partError("images", "at least one pixel", from)
	case max(from[2], from[3]) > limit || slices.Max(to) > limit:
		return p.partError("images", "at most 2^20 rows and columns", from, " to ", to)
	}
	if p.Scale.Filter == "" || p.Out.Len() == 0 {
		return nil
	}
	h, w := p.OutSize()
	_, err := resize.New(p.Scale.Filter, p.Crop[0], p.Crop[1], h, w)
	return err
}

// checkLayout rejects tensors that are not in C order.
func (p *ImagePart) checkLayout() error {
	for _, t := range []struct {
		name string
		*Tensor
	}{{"images", &p.Src}, {"draws", &p.Draws}, {"result", &p.Out}} {
		if err := t.Check("augment", t.name); err != nil {
			return err
		}
		if t.Base != 0 || !t.Contiguous() {
			return p.partError("strides", "C order without gaps", t.Stride)
		}
	}
	return nil
}

// partError returns an error about a part. got is formatted as by fmt.Sprint.
func (p *ImagePart) partError(msg, want string, got ...any) error {
	return misuseError("augment", msg, want, fmt.Sprint(got...))
}

// opName implements Op.
func (op *ImageOp) opName() string { return "augment" }

// namedTensors implements Op.
func (op *ImageOp) namedTensors() (out []namedTensor) {
	for i := range op.Parts {
		p := &op.Parts[i]
		out = append(
			out,
			inputTensor("images", &p.Src),
			inputTensor("draws", &p.Draws),
			resultTensor("result", &p.Out),
		)
	}
	return out
}

// Rows returns the number of images, and the pixel count of the largest result.
func (op *ImageOp) Rows() (n, pixels int) {
	for i := range op.Parts {
		p := &op.Parts[i]
		n += p.Src.Shape[0]
		h, w := p.OutSize()
		pixels = max(pixels, h*w)
	}
	return n, pixels
}

// OutSize returns the size of the results.
func (p *ImagePart) OutSize() (height, width int) {
	if p.ChannelsLast {
		return p.Out.Shape[1], p.Out.Shape[2]
	}
	return p.Out.Shape[2], p.Out.Shape[3]
}

// Row augments image n on the host. Images are numbered over all parts.
func (op *ImageOp) Row(n int) {
	p := &op.Parts[0]
	for i := 1; n >= p.Src.Shape[0]; i++ {
		n -= p.Src.Shape[0]
		p = &op.Parts[i]
	}
	srcHeight, srcWidth := p.Src.Shape[2], p.Src.Shape[3]
	outHeight, outWidth := p.OutSize()
	srcBytes := 3 * srcHeight * srcWidth
	outBytes := 3 * outHeight * outWidth * p.Out.DType.Size()
	d := ParseImageDraw(p.Draws.Data[n*4*ImageDrawWords:])
	p.AugmentImage(
		p.Out.Data[n*outBytes:(n+1)*outBytes],
		p.Src.Data[n*srcBytes:(n+1)*srcBytes],
		&d,
		[4]int{srcHeight, srcWidth, outHeight, outWidth},
	)
}
