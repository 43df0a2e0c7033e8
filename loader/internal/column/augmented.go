package column

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// KeyNumber tells the draws of keys apart: FNV-1a of the dataset's own key, and never 0, which the flips have.
func KeyNumber(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return max(h.Sum32(), 1)
}

// ImageAugment is what is done to the images of a column after they are decoded: always as bytes, at the column's height and width.
type ImageAugment struct {
	kernel.ImageAugment
	Height, Width int       // of the result
	Norm          *Affine   // of a float32 result
	Table         []float32 // what each byte of a channel becomes there; nil: bytes
}

// Mirror is what a flip does to a row of numbers.
type Mirror struct {
	Negate []int
	Swap   [][2]int
}

func (m *Mirror) Check(c *Column) error {
	const name = "augment: hflip: "
	if c.Table() == nil {
		return robocache.Unsupported("loader", nil, "%snegate and swap are for rows of numbers of one length", name).
			WithHint("%s, or %s without it", robocache.Option("augment", "hflip", "keep", []string{c.Key}), robocache.Option("keys"))
	}
	seen := map[int]bool{}
	bad := func(option string, i int) error {
		return options.Misuse(name+option+" of "+c.Key, fmt.Sprintf("elements 0 to %d, each once", c.Elements-1), fmt.Sprint(i))
	}
	for _, i := range m.Negate {
		if i < 0 || i >= c.Elements || seen[i] {
			return bad("negate", i)
		}
		seen[i] = true
	}
	if len(m.Negate) > 0 && (c.StoredDType == robocache.Bool || c.StoredDType == robocache.Uint8 || c.StoredDType == robocache.Uint16 || c.StoredDType == robocache.Uint32 || c.StoredDType == robocache.Uint64) {
		return options.Misuse(name+"negate of "+c.Key, "numbers with a sign", c.StoredDType.String())
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

// sampleNumber names a sample by its place in the dataset, for draws: not by its place in a batch or a selection.
func sampleNumber(r robocache.Row) int64 { return int64(r.Episode)<<32 | int64(r.Index) }

// epoch is the one that sample i of the part is drawn in: of a mixture, its source's own.
func (p *Part) epoch(i int) uint64 {
	if len(p.Build.Epochs) == 0 {
		return 0
	}
	return uint64(p.Build.Epochs[p.slot(i)])
}

// draw draws for the k-th frame of a column.
func (p *Part) draw(c *ImageColumn, k int) kernel.ImageDraw {
	a := c.Augment.ImageAugment
	a.Epoch = p.epoch(k / c.Steps)
	return a.Draw(sampleNumber(p.rows[0][k/c.Steps]), c.Height, c.Width, k%c.Steps)
}

// put brings a frame that was made to place k.
func (p *Part) put(c *ImageColumn, k int, pixels []byte) {
	dst := p.frame(c.Column, k)
	switch {
	case c.Augment != nil && c.Deferred == nil:
		d := p.draw(c, k)
		kernel.AugmentImage(dst, pixels, &d, [4]int{c.Height, c.Width, c.Augment.Height, c.Augment.Width}, c.Augment.Table)
	case len(dst) == 0 || &dst[0] == &pixels[0]:
	case c.FrameDevice == nil:
		video.CopyPixels(dst, pixels)
	default:
		if err := c.FrameDevice.Copy([][]byte{dst}, [][]byte{pixels}); err != nil {
			p.Build.Fail(err)
		}
	}
}

// flips says of each sample of a part whether its images are mirrored.
func (p *Part) flips(i int) bool {
	a := kernel.ImageAugment{Seed: uint64(p.Source.Seed), Epoch: p.epoch(i), Flip: p.Source.Flip}
	return a.Flips(sampleNumber(p.rows[0][i]))
}

// reflect does to the stored rows of a column, steps a sample, what a flip of the sample's images does.
func (p *Part) reflect(c *TableColumn, rows []byte, dtype robocache.DType) {
	m, size := c.Mirror, dtype.Size()
	if m == nil {
		return
	}
	var spare [8]byte
	for i := range p.size() {
		if !p.flips(i) {
			continue
		}
		for k := i * c.Steps; k < (i+1)*c.Steps; k++ {
			row := rows[k*c.Elements*size : (k+1)*c.Elements*size]
			for _, s := range m.Swap {
				a, b := row[s[0]*size:][:size], row[s[1]*size:][:size]
				copy(spare[:], a)
				copy(a, b)
				copy(b, spare[:size])
			}
			for _, j := range m.Negate {
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
func (p *Part) noisy(c *TableColumn, dst, src []byte, from robocache.DType, plan *kernel.Plan) error {
	in, out := c.Elements*from.Size()*c.Steps, c.Elements*c.OutDType.Size()*c.Steps
	for lo := 0; lo < p.size(); {
		hi := lo + 1
		for hi < p.size() && p.epoch(hi) == p.epoch(lo) {
			hi++
		}
		e := c.Normalization().Epilogue(0)
		if c.NoiseDeviation > 0 {
			samples := make([]int64, hi-lo)
			for i := range samples {
				samples[i] = sampleNumber(p.rows[0][lo+i])
			}
			e.Augment = &kernel.Augment{Seed: uint64(p.Source.Seed), Epoch: p.epoch(lo), Op: KeyNumber(p.Source.DatasetKey(c.Key)), Noise: c.NoiseDeviation,
				Samples: &kernel.Tensor{DType: robocache.Int64, Shape: []int{len(samples)}, Data: AsBytes(samples)}}
		}
		x := Applies.Get().(*Applied)
		part := x.Part(dst[lo*out:hi*out], c.OutDType, src[lo*in:hi*in], from, c.Elements, e)
		if plan != nil {
			n := (hi - lo) * c.Steps
			one := &kernel.Plan{Sources: n, Kind: slices.Clone(plan.Kind[lo*c.Steps : hi*c.Steps]), Left: make([]int32, n), Right: make([]int32, n), Weight: make([]float64, n), Valid: make([]uint8, n)}
			for i := range n {
				one.Left[i], one.Right[i] = int32(i), int32(i)
				if one.Kind[i] != kernel.Zero {
					one.Kind[i] = kernel.Copy
				}
			}
			part.Rule.Mode = kernel.Previous
			x.planned(one, one.Valid)
		}
		if err := x.Run(); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// gatherMirrored brings rows onto the timeline that a flip or noise changes: interpolated as they are stored, mirrored, then normalised.
func (p *Part) gatherMirrored(c *TableColumn, plan *kernel.Plan, src, dst, mask []byte) error {
	dtype := c.StoredDType // integers that are only chosen among
	if c.OutDType.Float() && dtype != robocache.Float64 {
		dtype = robocache.Float32
	}
	rows := AsBytes(make([]uint64, (plan.Len()*c.Elements*dtype.Size()+7)/8))[:plan.Len()*c.Elements*dtype.Size()]
	if err := resample(rows, dtype, src, c.Column, plan, kernel.Epilogue{}, mask); err != nil {
		return err
	}
	pads(mask, mask)
	p.reflect(c, rows, dtype)
	if !c.OutDType.Float() {
		return Convert(dst, c.OutDType, rows, dtype, c.Elements, nil)
	}
	return p.noisy(c, dst, rows, dtype, plan)
}
