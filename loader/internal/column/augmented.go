package column

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// KeyNumber returns a number that separates the random draws of different keys: the FNV-1a hash of
// the dataset's own key. It is never 0, which is the number of the draws of flips.
func KeyNumber(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return max(h.Sum32(), 1)
}

// ImageAugment augments the decoded images of a column. The input is a uint8 image of the column's
// height and width.
type ImageAugment struct {
	kernel.ImageAugment
	OutHeight, OutWidth int
	Form                kernel.ImageForm
	Norm                *Affine // normalization of a float32 result, which Form.Table contains
}

// Mirror changes a row of numbers when the images of its sample are flipped. It negates and swaps
// elements.
type Mirror struct {
	Negate []int
	Swap   [][2]int
}

// Check rejects a Mirror that does not fit the rows of c.
func (m *Mirror) Check(c *Column) error {
	const name = "augment: hflip: "
	if c.Table() == nil {
		keep := robocache.Option("augment", "hflip", "keep", []string{c.Key})
		return robocache.Unsupported("loader", nil, "%snegate and swap are for rows of numbers "+
			"of one length", name).
			WithHint("%s, or %s without it", keep, robocache.Option("keys"))
	}
	seen := map[int]bool{}
	bad := func(option string, i int) error {
		want := fmt.Sprintf("elements 0 to %d, each once", c.Elements-1)
		return options.Misuse(name+option+" of "+c.Key, want, fmt.Sprint(i))
	}
	for _, i := range m.Negate {
		if i < 0 || i >= c.Elements || seen[i] {
			return bad("negate", i)
		}
		seen[i] = true
	}
	switch c.StoredDType {
	case robocache.Bool, robocache.Uint8, robocache.Uint16, robocache.Uint32, robocache.Uint64:
		if len(m.Negate) > 0 {
			return options.Misuse(
				name+"negate of "+c.Key,
				"numbers with a sign",
				c.StoredDType.String(),
			)
		}
	}
	clear(seen)
	for _, p := range m.Swap {
		for _, i := range p {
			if i < 0 || i >= c.Elements || seen[i] {
				return bad("swap", i)
			}
			seen[i] = true
		}
	}
	return nil
}

// sampleNumber returns the number that identifies a sample in random draws. It depends only on the
// sample's row in the dataset, not on the batch or the selection.
func sampleNumber(r robocache.Row) int64 { return int64(r.Episode)<<32 + int64(r.Index) }

// sampleEpoch returns the epoch of sample i in its source. It is 0 for a Map.
func (p *Part) sampleEpoch(i int) uint64 {
	if len(p.Build.Epochs) == 0 {
		return 0
	}
	return uint64(p.Build.Epochs[p.batchSlot(i)])
}

// drawAugment returns the random draw for the k-th frame of a column.
func (p *Part) drawAugment(c *ImageColumn, k int) kernel.ImageDraw {
	a := c.Augment.ImageAugment
	a.Epoch = p.sampleEpoch(k / c.Steps)
	return a.Draw(sampleNumber(p.anchors[k/c.Steps]), c.Height, c.Width, k%c.Steps)
}

// putFrame writes rendered pixels to the k-th frame of a column. It augments them, unless a device
// augments the raw batch later.
func (p *Part) putFrame(c *ImageColumn, k int, pixels []byte) {
	dst := p.frameData(c.Column, k)
	switch {
	case c.Augment != nil && c.Deferred == nil:
		d := p.drawAugment(c, k)
		sizes := [4]int{c.Height, c.Width, c.Augment.OutHeight, c.Augment.OutWidth}
		c.Augment.Form.AugmentImage(dst, pixels, &d, sizes)
	case len(dst) == 0 || &dst[0] == &pixels[0]: // already rendered into the batch
	case c.FrameDevice == nil:
		video.CopyPixels(dst, pixels)
	default:
		if err := c.FrameDevice.Copy([][]byte{dst}, [][]byte{pixels}); err != nil {
			p.Build.Fail(err)
		}
	}
}

// isFlipped reports whether the images of sample i are mirrored.
func (p *Part) isFlipped(i int) bool {
	a := kernel.ImageAugment{
		Seed:  uint64(p.Source.Seed),
		Epoch: p.sampleEpoch(i),
		Flip:  p.Source.Flip,
	}
	return a.Flips(sampleNumber(p.anchors[i]))
}

// mirrorRows applies c.Mirror to the stored rows of the samples whose images are flipped.
func (p *Part) mirrorRows(c *TableColumn, rows []byte, dtype robocache.DType) {
	m, size := c.Mirror, dtype.Size()
	if m == nil {
		return
	}
	var tmp [8]byte
	for i := range p.sampleCount() {
		if !p.isFlipped(i) {
			continue
		}
		for k := i * c.Steps; k < (i+1)*c.Steps; k++ {
			row := rows[k*c.Elements*size : (k+1)*c.Elements*size]
			for _, s := range m.Swap {
				first, second := row[s[0]*size:][:size], row[s[1]*size:][:size]
				copy(tmp[:], first)
				copy(first, second)
				copy(second, tmp[:size])
			}
			for _, j := range m.Negate {
				negateNumber(row[j*size:][:size], dtype)
			}
		}
	}
}

// negateNumber changes the sign of one number in place. The least integer stays unchanged.
func negateNumber(b []byte, dtype robocache.DType) {
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

// convertWithNoise casts and normalizes rows like Convert and adds noise. Each kernel call covers
// consecutive samples of one epoch. If plan is not nil, rows without a value in it become zeros.
func (p *Part) convertWithNoise(
	c *TableColumn, dst, src []byte, from robocache.DType, plan *kernel.Plan,
) error {
	inBytes := c.Steps * c.Elements * from.Size() // of a sample
	outBytes := c.Steps * c.Elements * c.OutDType.Size()
	for lo := 0; lo < p.sampleCount(); {
		hi := lo + 1
		for hi < p.sampleCount() && p.sampleEpoch(hi) == p.sampleEpoch(lo) {
			hi++
		}
		e := c.Normalization().Epilogue(0)
		if c.NoiseDeviation > 0 {
			samples := make([]int64, hi-lo)
			for i := range samples {
				samples[i] = sampleNumber(p.anchors[lo+i])
			}
			e.Augment = &kernel.Augment{
				Seed:  uint64(p.Source.Seed),
				Epoch: p.sampleEpoch(lo),
				Op:    KeyNumber(p.Source.DatasetKey(c.Key)),
				Noise: c.NoiseDeviation,
				Samples: &kernel.Tensor{
					DType: robocache.Int64,
					Shape: []int{len(samples)},
					Data:  AsBytes(samples),
				},
			}
		}
		x := Applies.Get().(*Applied)
		part := x.Part(
			dst[lo*outBytes:hi*outBytes],
			c.OutDType,
			src[lo*inBytes:hi*inBytes],
			from,
			c.Elements,
			e,
		)
		if plan != nil {
			// The rows are resampled already, so this plan copies each row that has a value.
			n := (hi - lo) * c.Steps
			copyPlan := &kernel.Plan{
				Sources: n,
				Kind:    slices.Clone(plan.Kind[lo*c.Steps : hi*c.Steps]),
				Left:    make([]int32, n),
				Right:   make([]int32, n),
				Weight:  make([]float64, n),
				Valid:   make([]uint8, n),
			}
			for i := range n {
				copyPlan.Left[i], copyPlan.Right[i] = int32(i), int32(i)
				if copyPlan.Kind[i] != kernel.Zero {
					copyPlan.Kind[i] = kernel.Copy
				}
			}
			part.Rule.Mode = kernel.Previous
			x.setPlan(copyPlan, copyPlan.Valid)
		}
		if err := x.Run(); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// gatherMirrored resamples rows that a flip or noise changes. Rows are interpolated as stored, then
// mirrored, then normalized.
func (p *Part) gatherMirrored(
	c *TableColumn, plan *kernel.Plan, src, dst, mask []byte,
) error {
	dtype := c.StoredDType // integers are selected, never interpolated
	if c.OutDType.Float() && dtype != robocache.Float64 {
		dtype = robocache.Float32
	}
	size := plan.Len() * c.Elements * dtype.Size()
	rows := AsBytes(make([]uint64, (size+7)/8))[:size]
	if err := resample(rows, dtype, src, c.Column, plan, kernel.Epilogue{}, mask); err != nil {
		return err
	}
	writePadMask(mask, mask)
	p.mirrorRows(c, rows, dtype)
	if !c.OutDType.Float() {
		return Convert(dst, c.OutDType, rows, dtype, c.Elements, nil)
	}
	return p.convertWithNoise(c, dst, rows, dtype, plan)
}
