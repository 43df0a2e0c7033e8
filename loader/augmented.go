package loader

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// sampleNumber names a sample by its place in the dataset, for draws: not by its place in a batch or a selection.
func sampleNumber(r robocache.Row) int64 { return int64(r.Episode)<<32 | int64(r.Index) }

// epoch is the one that sample i of the part is drawn in: of a mixture, its source's own.
func (p *part) epoch(i int) uint64 {
	if len(p.u.epochs) == 0 {
		return 0
	}
	return uint64(p.u.epochs[p.slot(i)])
}

// draw draws for the k-th frame of a column.
func (p *part) draw(c *imageColumn, k int) kernel.ImageDraw {
	a := c.aug.ImageAugment
	a.Epoch = p.epoch(k / c.steps)
	return a.Draw(sampleNumber(p.rows[0][k/c.steps]), c.height, c.width, k%c.steps)
}

// put brings a frame that was made to place k.
func (p *part) put(c *imageColumn, k int, pixels []byte) {
	dst := p.frame(c.column, k)
	switch {
	case c.aug != nil && c.raw == nil:
		d := p.draw(c, k)
		kernel.AugmentImage(dst, pixels, &d, [4]int{c.height, c.width, c.aug.h, c.aug.w}, c.aug.table)
	case len(dst) == 0 || &dst[0] == &pixels[0]:
	case c.device == nil:
		video.CopyPixels(dst, pixels)
	default:
		if err := c.device.Copy([][]byte{dst}, [][]byte{pixels}); err != nil {
			p.u.fail(err)
		}
	}
}

// flips says of each sample of a part whether its images are mirrored.
func (p *part) flips(i int) bool {
	a := kernel.ImageAugment{Seed: uint64(p.src.seed), Epoch: p.epoch(i), Flip: p.src.flip}
	return a.Flips(sampleNumber(p.rows[0][i]))
}

// reflect does to the stored rows of a column, steps a sample, what a flip of the sample's images does.
func (p *part) reflect(c *tableColumn, rows []byte, dtype robocache.DType) {
	m, size := c.mirror, dtype.Size()
	if m == nil {
		return
	}
	var spare [8]byte
	for i := range p.size() {
		if !p.flips(i) {
			continue
		}
		for k := i * c.steps; k < (i+1)*c.steps; k++ {
			row := rows[k*c.elems*size : (k+1)*c.elems*size]
			for _, s := range m.swap {
				a, b := row[s[0]*size:][:size], row[s[1]*size:][:size]
				copy(spare[:], a)
				copy(a, b)
				copy(b, spare[:size])
			}
			for _, j := range m.negate {
				negate(row[j*size:][:size], dtype)
			}
		}
	}
}

// negate changes the sign of one number; the least integer stays.
func negate(b []byte, dtype robocache.DType) {
	if dtype.Float() {
		b[len(b)-1] ^= 0x80
		return
	}
	carry := byte(1)
	for i := range b {
		b[i] = ^b[i] + carry
		if b[i] != 0 {
			carry = 0
		}
	}
}

// noisy is convert with noise behind the normalisation: a run of samples of one epoch at a time. plan, if any, says which rows are there: the others
// become zeros.
func (p *part) noisy(c *tableColumn, dst, src []byte, from robocache.DType, plan *kernel.Plan) error {
	in, out := c.elems*from.Size()*c.steps, c.elems*c.out.Size()*c.steps
	for lo := 0; lo < p.size(); {
		hi := lo + 1
		for hi < p.size() && p.epoch(hi) == p.epoch(lo) {
			hi++
		}
		e := c.normal().epilogue(0)
		if c.noise > 0 {
			samples := make([]int64, hi-lo)
			for i := range samples {
				samples[i] = sampleNumber(p.rows[0][lo+i])
			}
			e.Augment = &kernel.Augment{Seed: uint64(p.src.seed), Epoch: p.epoch(lo), Op: keyNumber(p.src.ownKey(c.key)), Noise: c.noise,
				Samples: &kernel.Tensor{DType: robocache.Int64, Shape: []int{len(samples)}, Data: bytesOf(samples)}}
		}
		x := applies.Get().(*applied)
		part := x.part(dst[lo*out:hi*out], c.out, src[lo*in:hi*in], from, c.elems, e)
		if plan != nil {
			n := (hi - lo) * c.steps
			one := &kernel.Plan{Sources: n, Kind: slices.Clone(plan.Kind[lo*c.steps : hi*c.steps]), Left: make([]int32, n), Right: make([]int32, n), Weight: make([]float64, n), Valid: make([]uint8, n)}
			for i := range n {
				one.Left[i], one.Right[i] = int32(i), int32(i)
				if one.Kind[i] != kernel.Zero {
					one.Kind[i] = kernel.Copy
				}
			}
			part.Rule.Mode = kernel.Previous
			x.planned(one, one.Valid)
		}
		if err := x.run(); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// gatherMirrored brings rows onto the timeline that a flip or noise changes: interpolated as they are stored, mirrored, then normalised.
func (p *part) gatherMirrored(c *tableColumn, plan *kernel.Plan, src, dst, mask []byte) error {
	dtype := c.stored // integers that are only chosen among
	if c.out.Float() && dtype != robocache.Float64 {
		dtype = robocache.Float32
	}
	rows := bytesOf(make([]uint64, (plan.Len()*c.elems*dtype.Size()+7)/8))[:plan.Len()*c.elems*dtype.Size()]
	if err := resample(rows, dtype, src, c.column, plan, kernel.Epilogue{}, mask); err != nil {
		return err
	}
	pads(mask, mask)
	p.reflect(c, rows, dtype)
	if !c.out.Float() {
		return convert(dst, c.out, rows, dtype, c.elems, nil)
	}
	return p.noisy(c, dst, rows, dtype, plan)
}
