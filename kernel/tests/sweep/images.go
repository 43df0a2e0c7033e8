package sweep

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// Images runs n random operations on two back ends and compares the results.
func Images(a, b kernel.Backend, seed uint64, n int) error {
	for i := range n {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var ops [2]kernel.ImageOp
		for range 1 + r.IntN(4) {
			p := randomImages(r)
			for k := range ops {
				q := p
				q.Out.Data = bytes.Repeat([]byte{conform.Poison}, q.Out.Len()*q.Out.DType.Size())
				ops[k].Parts = append(ops[k].Parts, q)
			}
		}
		if err := a.Run(&ops[0]); err != nil {
			return fmt.Errorf("images %d: %w", i, err)
		}
		if err := b.Run(&ops[1]); err != nil {
			return fmt.Errorf("images %d: %w", i, err)
		}
		for k := range ops[0].Parts {
			if !bytes.Equal(ops[0].Parts[k].Out.Data, ops[1].Parts[k].Out.Data) {
				return fmt.Errorf(
					"images %d: part %d, %v to %v: other pixels",
					i,
					k,
					ops[0].Parts[k].Src.Shape,
					ops[0].Parts[k].Out.Shape,
				)
			}
		}
	}
	return nil
}

// randomImages returns a random part of an ImageOp. Its result has no memory yet.
func randomImages(r *rand.Rand) (p kernel.ImagePart) {
	images, H, W, pad := r.IntN(4), 1+r.IntN(70), 1+r.IntN(90), r.IntN(6)
	a := kernel.ImageAugment{
		Seed:   r.Uint64(),
		Epoch:  r.Uint64N(9),
		Camera: r.Uint32(),
		Height: 1 + r.IntN(H+2*pad),
		Width:  1 + r.IntN(W+2*pad),
		Pad:    pad,
		Flip:   0.5,
	}
	if r.IntN(2) == 0 && W > 4 {
		a.Width = min(a.Width, W) &^ 3
		a.Width = max(a.Width, 4)
	}
	if r.IntN(2) == 0 {
		a.Brightness = &[2]float64{0.5, 2}
		a.Contrast = &[2]float64{0, 4}
		a.Saturation = &[2]float64{0, 1.5}
		a.Hue = &[2]float64{-0.5, 0.5}
	}
	if r.IntN(2) == 0 {
		a.Noise = r.Float64()
	}
	if r.IntN(2) == 0 {
		a.Scale = kernel.ImageScale{
			Filter: resize.Filters[r.IntN(len(resize.Filters))],
			Height: 1 + r.IntN(60),
			Width:  1 + r.IntN(70),
		}
		if r.IntN(3) == 0 { // cells of whole pixels
			n := 1 + r.IntN(3)
			a.Scale.Height, a.Scale.Width = max(a.Height/n, 1), max(a.Width/n, 1)
			a.Height, a.Width = min(n*a.Scale.Height, a.Height), min(n*a.Scale.Width, a.Width)
		}
	}
	if r.IntN(3) == 0 {
		a.Rotation = &[2]float64{-180, 180}
	}
	p.Src = kernel.Tensor{
		DType: robocache.Uint8,
		Shape: []int{images, 3, H, W},
		Data:  make([]byte, images*3*H*W),
	}
	for i := range p.Src.Data {
		p.Src.Data[i] = byte(r.Uint32())
	}
	for i := range images {
		d := a.Draw(int64(r.Uint64()>>1), H, W, i)
		if r.IntN(5) == 0 {
			d.Blank = 1
		}
		p.Draws.Data = d.Append(p.Draws.Data)
	}
	p.Draws.DType, p.Draws.Shape = robocache.Int32, []int{images, kernel.ImageDrawWords}
	h, w := a.ResultSize(H, W)
	p.ImageForm = a.Form(H, W)
	p.Out = kernel.Tensor{DType: robocache.Uint8, Shape: []int{images, 3, h, w}}
	if r.IntN(3) == 0 {
		p.ChannelsLast, p.Out.Shape = true, []int{images, h, w, 3}
	}
	if r.IntN(2) == 0 {
		p.Out.DType, p.Table = robocache.Float32, make([]float32, 768)
		for i := range p.Table {
			p.Table[i] = r.Float32()
		}
	}
	return p
}
