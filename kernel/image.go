package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// ImageAugment is a seeded augmentation of colour images (K22): what may be drawn for the images of
// one sample and camera. Nil ranges draw nothing.
type ImageAugment struct {
	Seed, Epoch   uint64
	Camera        uint32      // whose draws are its own; those of flips are the sample's
	Height, Width int         // of the crop; 0: as the image
	Pad           int         // pixels by which the edges are repeated on each side before the crop
	Brightness    *[2]float64 // factors, 0 to 4
	Contrast      *[2]float64
	Saturation    *[2]float64
	Hue           *[2]float64 // turns of the colour circle, -0.5 to 0.5
	Flip          float64     // probability
	Noise         float64     // standard deviation, as a part of full scale
}

// ImageDraw is what was drawn for one image. A row of ImagePart.Draws has its words in this order.
type ImageDraw struct {
	Y, X     int32    // the crop's first pixel in the image; outside of it the edge is repeated
	Flip     int32    // 1: columns in reverse order
	Blank    int32    // 1: there is no image, the result is zeros
	Matrix   [9]int32 // of red, green and blue, 12 bits behind the point
	Offset   int32    // of each, 12 bits behind the point
	Noise    int32    // of one step of the sum of four bytes, 16 bits behind the point
	Key      [2]uint32
	Sample   [2]uint32
	Row      int32 // 3 × the image's place in its window
	Coloured int32 // 1: Matrix and Offset are not those of no change
	_        [3]int32
}

// ImageDrawWords is how many int32 an ImageDraw is.
const ImageDrawWords = int(unsafe.Sizeof(ImageDraw{}) / 4)

const (
	drawImage           uint32 = 3 << 30 // purpose of the draws of an image's geometry and colour
	colourOne                  = 1 << 12
	maxFactor                  = 4
	luma0, luma1, luma2        = 0.299, 0.587, 0.114
)

// hueTurn is the part of the turn of hues that goes with the sine: that of the chroma plane of
// NTSC's YIQ, to three places, its rows' sums 0.
var hueTurn = [3][3]float64{{-0.168, -0.329, 0.497}, {0.328, -0.035, -0.293}, {-1.25, 1.046, 0.204}}

// Key is the Philox key of a camera's draws; of flips that of camera 0.
func (a *ImageAugment) key(camera uint32) [2]uint32 {
	k := Augment{Seed: a.Seed, Epoch: a.Epoch, Op: camera}
	return k.Key()
}

// Flips says whether the images of a sample are flipped: all of its cameras, and what goes with
// them.
func (a *ImageAugment) Flips(sample int64) bool {
	return a.Flip > 0 &&
		uniform(draw(a.key(0), uint64(sample), drawImage, 0, 0)[0]) < float32(a.Flip)
}

// Size is that of the result of images of a size.
func (a *ImageAugment) Size(height, width int) (h, w int) {
	if a.Height == 0 {
		return height, width
	}
	return a.Height, a.Width
}

// Check refuses what cannot be drawn for images of a size.
func (a *ImageAugment) Check(height, width int) error {
	const op = "augment"
	h, w := a.Size(height, width)
	if a.Pad < 0 || a.Pad > 1<<15 {
		return misuse(op, "random_crop: pad", "0 to 32768 pixels", fmt.Sprint(a.Pad))
	}
	if h < 1 || w < 1 || h > height+2*a.Pad || w > width+2*a.Pad {
		return misuse(
			op,
			"random_crop: size",
			fmt.Sprintf(
				"[height, width] of at most %d×%d (the image, and pad on each side)",
				height+2*a.Pad,
				width+2*a.Pad,
			),
			fmt.Sprintf("%d×%d", h, w),
		)
	}
	for _, r := range []struct {
		name   string
		v      *[2]float64
		lo, hi float64
	}{{"brightness", a.Brightness, 0, maxFactor}, {"contrast", a.Contrast, 0, maxFactor}, {"saturation", a.Saturation, 0, maxFactor}, {"hue", a.Hue, -0.5, 0.5}} {
		if r.v != nil && !(r.lo <= r.v[0] && r.v[0] <= r.v[1] && r.v[1] <= r.hi) {
			return misuse(
				op,
				"color_jitter: "+r.name,
				fmt.Sprintf("a range inside %v to %v", r.lo, r.hi),
				fmt.Sprint(*r.v),
			)
		}
	}
	if !(a.Flip >= 0 && a.Flip <= 1) {
		return misuse(op, "hflip: p", "a probability", fmt.Sprint(a.Flip))
	}
	if !(a.Noise >= 0 && a.Noise <= 1) {
		return misuse(
			op,
			"noise: std of images",
			"0 to 1, a part of full scale",
			fmt.Sprint(a.Noise),
		)
	}
	return nil
}

// Draw draws for the images of a sample (K22). step is the image's place in its window: noise alone
// depends on it.
func (a *ImageAugment) Draw(sample int64, height, width, step int) ImageDraw {
	key := a.key(a.Camera)
	h, w := a.Size(height, width)
	d := ImageDraw{
		Key:    key,
		Sample: [2]uint32{uint32(sample), uint32(uint64(sample) >> 32)},
		Row:    int32(3 * step),
		Matrix: [9]int32{
			0: colourOne,
			4: colourOne,
			8: colourOne,
		},
		Noise: int32(math.RoundToEven(a.Noise * 255 * 65536 / math.Sqrt(21845))),
	}
	x, y := draw(key, uint64(sample), drawImage, 0, 0), [4]uint32{}
	d.Y = int32(uint64(x[0])*uint64(height+2*a.Pad-h+1)>>32) - int32(a.Pad)
	d.X = int32(uint64(x[1])*uint64(width+2*a.Pad-w+1)>>32) - int32(a.Pad)
	if a.Flips(sample) {
		d.Flip = 1
	}
	if a.Saturation != nil || a.Hue != nil {
		y = draw(key, uint64(sample), drawImage, 0, 4)
	}
	if a.Brightness != nil || a.Contrast != nil || a.Saturation != nil || a.Hue != nil {
		d.colour(
			between(a.Brightness, 1, x[2]),
			between(a.Contrast, 1, x[3]),
			between(a.Saturation, 1, y[0]),
			between(a.Hue, 0, y[1]),
		)
	}
	return d
}

// between is a draw of a range; none where there is no range.
func between(r *[2]float64, none float64, word uint32) float64 {
	if r == nil {
		return none
	}
	return r[0] + float64(float64(r[1]-r[0])*float64(uniform(word)))
}

// colour makes one matrix of brightness, contrast about mid-grey, saturation and hue, in this
// order. Products are rounded each: no machine fuses them.
func (d *ImageDraw) colour(brightness, contrast, saturation, hue float64) {
	sin, cos := math.Sincos(2 * math.Pi * hue)
	luma := [3]float64{luma0, luma1, luma2}
	for i := range 3 {
		for j := range 3 {
			e := 0.0
			if i == j {
				e = 1
			}
			chroma := float64(cos*(e-luma[j])) + float64(sin*hueTurn[i][j])
			m := float64(float64(brightness*contrast) * (luma[j] + float64(saturation*chroma)))
			d.Matrix[3*i+j] = int32(math.RoundToEven(m * colourOne))
		}
	}
	d.Offset = int32(math.RoundToEven(float64((1-contrast)*127.5) * colourOne))
	d.Coloured = 1
}

// ImageOp augments images by what was drawn for them (K23).
type ImageOp struct{ Parts []ImagePart }

// ImagePart is the images of one camera. All tensors lie in C order without gaps.
type ImagePart struct {
	Name  string    // for errors
	Src   Tensor    // uint8 [N, 3, H, W]
	Draws Tensor    // int32 [N, ImageDrawWords]: ImageDraw
	Out   Tensor    // uint8 or float32 [N, 3, h, w]
	Table []float32 // 3 × 256: what a byte of each channel becomes; with a float32 Out
}

// Tensors are the op's: see Op.
func (op *ImageOp) Tensors() []*Tensor { return tensors(op.named()) }

// Check proves everything that can be seen without looking at memory.
func (op *ImageOp) Check() error {
	const name = "augment"
	for i := range op.Parts {
		p := &op.Parts[i]
		where := func(err error) error { return robocache.At(err, robocache.Where{"part": i}) }
		s, o := p.Src.Shape, p.Out.Shape
		switch {
		case p.Src.DType != robocache.Uint8 || len(s) != 4 || s[1] != 3:
			return where(
				misuse(name, "images", "uint8 [N, 3, H, W]", fmt.Sprint(p.Src.DType, " ", s)),
			)
		case p.Out.DType != robocache.Uint8 && p.Out.DType != robocache.Float32 || len(o) != 4 || o[1] != 3 || o[0] != s[0]:
			return where(
				misuse(
					name,
					"result",
					fmt.Sprintf("uint8 or float32 [%d, 3, h, w]", s[0]),
					fmt.Sprint(p.Out.DType, " ", o),
				),
			)
		case p.Draws.DType != robocache.Int32 || !slices.Equal(p.Draws.Shape, []int{s[0], ImageDrawWords}):
			return where(
				misuse(
					name,
					"draws",
					fmt.Sprintf("int32 [%d, %d]", s[0], ImageDrawWords),
					fmt.Sprint(p.Draws.DType, " ", p.Draws.Shape),
				),
			)
		case (p.Table != nil) != (p.Out.DType == robocache.Float32):
			return where(
				misuse(
					name,
					"table",
					"one for a float32 result, none for uint8",
					fmt.Sprint(p.Table != nil),
				),
			)
		case p.Table != nil && len(p.Table) != 768:
			return where(misuse(name, "table", "3 × 256 numbers", fmt.Sprint(len(p.Table))))
		case s[0] > 0 && p.Out.Len() > 0 && (s[2] == 0 || s[3] == 0):
			return where(misuse(name, "images", "at least one pixel", fmt.Sprint(s)))
		case max(s[2], s[3]) > 1<<20 || max(o[2], o[3]) > 1<<20:
			return where(
				misuse(name, "images", "at most 2^20 rows and columns", fmt.Sprint(s, " to ", o)),
			)
		}
		for k, t := range []*Tensor{&p.Src, &p.Draws, &p.Out} {
			if err := t.Check(name, [3]string{"images", "draws", "result"}[k]); err != nil {
				return where(err)
			}
			if t.Base != 0 || !t.Contiguous() {
				return where(misuse(name, "strides", "C order without gaps", fmt.Sprint(t.Stride)))
			}
		}
	}
	return checkTensors(op)
}

func (op *ImageOp) name() string { return "augment" }

func (op *ImageOp) named() (out []named) {
	for i := range op.Parts {
		p := &op.Parts[i]
		out = append(
			out,
			input("images", &p.Src),
			input("draws", &p.Draws),
			result("result", &p.Out),
		)
	}
	return out
}

// Rows is how many images there are.
func (op *ImageOp) Rows() (n, pixels int) {
	for i := range op.Parts {
		p := &op.Parts[i]
		n, pixels = n+p.Src.Shape[0], max(pixels, p.Out.Shape[2]*p.Out.Shape[3])
	}
	return n, pixels
}

// Row makes one image, on the host.
func (op *ImageOp) Row(n int) {
	p := &op.Parts[0]
	for i := 1; n >= p.Src.Shape[0]; i++ {
		n, p = n-p.Src.Shape[0], &op.Parts[i]
	}
	s, o := p.Src.Shape, p.Out.Shape
	in, out, row := 3*s[2]*s[3], 3*o[2]*o[3]*p.Out.DType.Size(), 4*ImageDrawWords
	d := ParseImageDraw(p.Draws.Data[n*row:])
	AugmentImage(
		p.Out.Data[n*out:(n+1)*out],
		p.Src.Data[n*in:(n+1)*in],
		&d,
		[4]int{s[2], s[3], o[2], o[3]},
		p.Table,
	)
}

// Append stores a draw as ImagePart.Draws holds it.
func (d *ImageDraw) Append(b []byte) []byte {
	for _, v := range (*[ImageDrawWords]uint32)(unsafe.Pointer(d)) {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// ParseImageDraw reads what Append stored.
func ParseImageDraw(b []byte) (d ImageDraw) {
	w := (*[ImageDrawWords]uint32)(unsafe.Pointer(&d))
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return d
}

// imageRows is the room of one row of an image, used again.
type imageRows struct {
	pixels [3][]byte
	noise  []int32
}

var imageRoom = sync.Pool{New: func() any { return new(imageRows) }}

// AugmentImage makes one image [3, h, w] of one [3, H, W] by what was drawn (K23). size is H, W, h,
// w; with a table of 768 the result is float32, in the host's order, which is little-endian.
func AugmentImage(dst, src []byte, d *ImageDraw, size [4]int, table []float32) {
	if d.Blank != 0 {
		clear(dst)
		return
	}
	H, W, h, w := size[0], size[1], size[2], size[3]
	room := imageRoom.Get().(*imageRows)
	defer imageRoom.Put(room)
	for c := range room.pixels {
		room.pixels[c] = slices.Grow(room.pixels[c][:0], w)[:w]
	}
	room.noise = slices.Grow(room.noise[:0], 3*w)[:3*w]
	for y := range h {
		sy := min(max(int(d.Y)+y, 0), H-1)
		for c := range 3 {
			takeRow(room.pixels[c], src[(c*H+sy)*W:][:W], int(d.X), d.Flip != 0)
		}
		if d.Noise != 0 {
			for c := range 3 {
				d.noiseRow(room.noise[c*w:(c+1)*w], c, y, h)
			}
		}
		if d.Coloured != 0 || d.Noise != 0 {
			d.colourRow(room)
		}
		for c, row := range room.pixels {
			at := (c*h + y) * w
			if table == nil {
				copy(dst[at:], row)
				continue
			}
			t := (*[256]float32)(table[256*c:])
			out := dst[4*at:][:4*w]
			for x, v := range row {
				binary.LittleEndian.PutUint32(out[4*x:], math.Float32bits(t[v]))
			}
		}
	}
}

// takeRow is a row of the crop: columns from x0 on, the edges repeated, in reverse order where it
// is flipped.
func takeRow(dst, src []byte, x0 int, flip bool) {
	w, W := len(dst), len(src)
	from, to := min(max(-x0, 0), w), max(min(W-x0, w), 0)
	for i := range dst[:from] {
		dst[i] = src[0]
	}
	if from < to {
		copy(dst[from:to], src[x0+from:x0+to])
	}
	for i := max(from, to); i < w; i++ {
		dst[i] = src[W-1]
	}
	if flip {
		slices.Reverse(dst)
	}
}

// noiseRow is the noise of a row of a channel, 12 bits behind the point: what Philox gives, two
// counters at a time, so that one's products do not wait for the other's.
func (d *ImageDraw) noiseRow(out []int32, channel, y, h int) {
	row := (uint32(d.Row)+uint32(channel))*uint32(h) + uint32(y)
	for x := 0; x < len(out); x += 8 {
		k0, k1 := d.Key[0], d.Key[1]
		a0, a1, a2, a3 := uint32(x>>2), row, d.Sample[0], d.Sample[1]
		b0, b1, b2, b3 := a0+1, row, a2, a3
		for range 10 {
			p, q := uint64(a0)*0xD2511F53, uint64(a2)*0xCD9E8D57
			r, s := uint64(b0)*0xD2511F53, uint64(b2)*0xCD9E8D57
			a0, a1, a2, a3 = uint32(q>>32)^a1^k0, uint32(q), uint32(p>>32)^a3^k1, uint32(p)
			b0, b1, b2, b3 = uint32(s>>32)^b1^k0, uint32(s), uint32(r>>32)^b3^k1, uint32(r)
			k0, k1 = k0+0x9E3779B9, k1+0xBB67AE85
		}
		eight := [8]int32{
			d.bell(a0),
			d.bell(a1),
			d.bell(a2),
			d.bell(a3),
			d.bell(b0),
			d.bell(b1),
			d.bell(b2),
			d.bell(b3),
		}
		copy(out[x:], eight[:])
	}
}

// bell is the noise of a word: the sum of its bytes about its mean.
func (d *ImageDraw) bell(v uint32) int32 {
	v = v&0x00ff00ff + v>>8&0x00ff00ff
	return (int32(v&0xffff+v>>16) - 510) * d.Noise >> 4
}

func (d *ImageDraw) colourRow(room *imageRows) {
	m, offset := d.Matrix, d.Offset+colourOne/2
	r, g, b := room.pixels[0], room.pixels[1], room.pixels[2]
	g, b = g[:len(r)], b[:len(r)]
	if d.Noise == 0 {
		for x := range r {
			R, G, B := int32(r[x]), int32(g[x]), int32(b[x])
			r[x] = clip8((m[0]*R + m[1]*G + m[2]*B + offset) >> 12)
			g[x] = clip8((m[3]*R + m[4]*G + m[5]*B + offset) >> 12)
			b[x] = clip8((m[6]*R + m[7]*G + m[8]*B + offset) >> 12)
		}
		return
	}
	n := len(r)
	nr, ng, nb := room.noise[:n], room.noise[n:2*n], room.noise[2*n:3*n]
	for x := range r {
		R, G, B := int32(r[x]), int32(g[x]), int32(b[x])
		r[x] = clip8((m[0]*R + m[1]*G + m[2]*B + offset + nr[x]) >> 12)
		g[x] = clip8((m[3]*R + m[4]*G + m[5]*B + offset + ng[x]) >> 12)
		b[x] = clip8((m[6]*R + m[7]*G + m[8]*B + offset + nb[x]) >> 12)
	}
}

func clip8(v int32) byte { return byte(min(max(v, 0), 255)) }
