package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel/resize"
)

// ImageAugment is a seeded augmentation of color images (kernel.K22). It states which changes may
// be drawn for the images of one sample and camera. A nil range draws nothing.
type ImageAugment struct {
	Seed, Epoch uint64
	// Camera is the number of the camera. Each camera has its own draws, except for the flip, which
	// all cameras of a sample share.
	Camera        uint32
	Shared        bool        // all draws but those of noise are shared by the cameras of a sample
	Height, Width int         // size of the crop; 0: the size of the image
	Scale         ImageScale  // scales the crop
	Rotation      *[2]float64 // degrees counterclockwise, -180 to 180
	Pad           int         // number of pixels by which each edge is repeated before the crop
	Brightness    *[2]float64 // factors, 0 to 4
	Contrast      *[2]float64
	Saturation    *[2]float64
	Hue           *[2]float64 // fraction of a turn of the color circle, -0.5 to 0.5
	Flip          float64     // probability
	Noise         float64     // standard deviation, as a fraction of full scale
}

// ImageDraw holds the values that were drawn for one image. A row of ImagePart.Draws stores its
// words in this order.
type ImageDraw struct {
	// first pixel of the crop in the image; the edges are repeated outside the image
	Y, X   int32
	Flip   int32    // 1: columns are in reverse order
	Blank  int32    // 1: there is no image, and the result is zeros
	Matrix [9]int32 // for red, green and blue, with 12 fractional bits
	Offset int32    // added to each channel, with 12 fractional bits
	// Noise is the factor from the sum of four random bytes to the noise of a pixel value, with 16
	// fractional bits.
	Noise    int32
	Key      [2]uint32
	Sample   [2]uint32
	Row      int32 // 3 × the position of the image in its window
	Coloured int32 // 1: Matrix and Offset change the image
	Rotated  int32 // 1: Cos and Sin rotate the image
	Cos, Sin int32 // with 16 fractional bits
}

// ImageDrawWords is the number of int32 words in an ImageDraw.
const ImageDrawWords = int(unsafe.Sizeof(ImageDraw{}) / 4)

const (
	drawImage           uint32 = 3 << 30 // purpose of draws for the geometry and color of an image
	colourShift                = 12
	colourOne                  = 1 << colourShift
	maxFactor                  = 4
	luma0, luma1, luma2        = 0.299, 0.587, 0.114
)

// hueTurn is the part of a hue rotation that is multiplied by the sine. It rotates the chroma plane
// of NTSC's YIQ, rounded to three decimals, and each row sums to 0.
var hueTurn = [3][3]float64{{-0.168, -0.329, 0.497}, {0.328, -0.035, -0.293}, {-1.25, 1.046, 0.204}}

// sharedCamera is the camera number for draws that all cameras of a sample share. Flips use camera
// 0 instead.
const sharedCamera = math.MaxUint32

// drawKey returns the Philox key for the draws of a camera. Flips use camera 0.
func (a *ImageAugment) drawKey(camera uint32) [2]uint32 {
	k := Augment{Seed: a.Seed, Epoch: a.Epoch, Op: camera}
	return k.Key()
}

// Flips reports whether the images of a sample are flipped. The result is the same for all its
// cameras. A caller that also mirrors numbers of the sample, such as states, uses the same result.
func (a *ImageAugment) Flips(sample int64) bool {
	if !(a.Flip > 0) {
		return false
	}
	words := drawWords(a.drawKey(0), uint64(sample), drawImage, 0, 0)
	return uniformFloat(words[0]) < float32(a.Flip)
}

// Size returns the size of the result for images of the given size.
func (a *ImageAugment) Size(height, width int) (h, w int) {
	if a.Height == 0 {
		return height, width
	}
	return a.Height, a.Width
}

// Check rejects settings that cannot be applied to images of the given size.
func (a *ImageAugment) Check(height, width int) error {
	const op = "augment"
	h, w := a.Size(height, width)
	if a.Pad < 0 || a.Pad > 1<<15 {
		return misuseError(op, "random_crop: pad", "0 to 32768 pixels", fmt.Sprint(a.Pad))
	}
	if h < 1 || w < 1 || h > height+2*a.Pad || w > width+2*a.Pad {
		return misuseError(
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
	}{
		{"color_jitter: brightness", a.Brightness, 0, maxFactor},
		{"color_jitter: contrast", a.Contrast, 0, maxFactor},
		{"color_jitter: saturation", a.Saturation, 0, maxFactor},
		{"color_jitter: hue", a.Hue, -0.5, 0.5},
		{"rotation", a.Rotation, -180, 180},
	} {
		if r.v != nil && !(r.lo <= r.v[0] && r.v[0] <= r.v[1] && r.v[1] <= r.hi) {
			return misuseError(
				op,
				r.name,
				fmt.Sprintf("a range inside %v to %v", r.lo, r.hi),
				fmt.Sprint(*r.v),
			)
		}
	}
	if a.Scale.Filter != "" {
		if _, err := resize.New(a.Scale.Filter, h, w, a.Scale.Height, a.Scale.Width); err != nil {
			return err
		}
	}
	if !(a.Flip >= 0 && a.Flip <= 1) {
		return misuseError(op, "hflip: p", "a probability", fmt.Sprint(a.Flip))
	}
	if !(a.Noise >= 0 && a.Noise <= 1) {
		return misuseError(
			op,
			"noise: std of images",
			"0 to 1, a part of full scale",
			fmt.Sprint(a.Noise),
		)
	}
	return nil
}

// Draw returns the random draw for an image of a sample (kernel.K22). step is the position of the
// image in its window; only noise depends on it.
func (a *ImageAugment) Draw(sample int64, height, width, step int) ImageDraw {
	key := a.drawKey(a.Camera)
	h, w := a.Size(height, width)
	noiseKey := key
	if a.Shared {
		key = a.drawKey(sharedCamera)
	}
	d := ImageDraw{
		Key:    noiseKey,
		Sample: [2]uint32{uint32(sample), uint32(uint64(sample) >> 32)},
		Row:    int32(3 * step),
		Matrix: [9]int32{
			0: colourOne,
			4: colourOne,
			8: colourOne,
		},
		// 21845 is the variance of the sum of four uniform bytes.
		Noise: int32(math.RoundToEven(a.Noise * 255 * 65536 / math.Sqrt(21845))),
	}
	x := drawWords(key, uint64(sample), drawImage, 0, 0)
	y := [4]uint32{} // words of n = 1; they are drawn only if they are used
	d.Y = int32(uint64(x[0])*uint64(height+2*a.Pad-h+1)>>32) - int32(a.Pad)
	d.X = int32(uint64(x[1])*uint64(width+2*a.Pad-w+1)>>32) - int32(a.Pad)
	if a.Flips(sample) {
		d.Flip = 1
	}
	if a.Saturation != nil || a.Hue != nil || a.Rotation != nil {
		y = drawWords(key, uint64(sample), drawImage, 0, 4)
	}
	if a.Brightness != nil || a.Contrast != nil || a.Saturation != nil || a.Hue != nil {
		d.setColour(
			drawBetween(a.Brightness, 1, x[2]),
			drawBetween(a.Contrast, 1, x[3]),
			drawBetween(a.Saturation, 1, y[0]),
			drawBetween(a.Hue, 0, y[1]),
		)
	}
	if a.Rotation != nil {
		d.setRotation(drawBetween(a.Rotation, 0, y[2]))
	}
	return d
}

// drawBetween returns a random number in the range r, or none if r is nil.
func drawBetween(r *[2]float64, none float64, word uint32) float64 {
	if r == nil {
		return none
	}
	return r[0] + float64(float64(r[1]-r[0])*float64(uniformFloat(word)))
}

// setColour sets the matrix and offset that combine brightness, contrast about mid-gray, saturation
// and hue, in this order. Each product is rounded explicitly, so that no compiler fuses it into a
// sum.
func (d *ImageDraw) setColour(brightness, contrast, saturation, hue float64) {
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

// Append appends the words of d to b, as ImagePart.Draws stores them.
func (d *ImageDraw) Append(b []byte) []byte {
	for _, v := range (*[ImageDrawWords]uint32)(unsafe.Pointer(d)) {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// ParseImageDraw reads a draw that Append stored.
func ParseImageDraw(b []byte) (d ImageDraw) {
	w := (*[ImageDrawWords]uint32)(unsafe.Pointer(&d))
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return d
}

// imageRows is reusable scratch memory for one row of an image.
type imageRows struct {
	pixels [3][]byte
	noise  []int32
	images [3][]byte // cropped, scaled, rotated
}

var imageRowPool = sync.Pool{New: func() any { return new(imageRows) }}

// AugmentImage computes one image of h × w pixels from one image [3, H, W] by the draw d
// (kernel.K23). size is H, W, h, w. With a table, the result is float32 in little-endian order.
func (f *ImageForm) AugmentImage(dst, src []byte, d *ImageDraw, size [4]int) {
	if d.Blank != 0 {
		clear(dst)
		return
	}
	scratch := imageRowPool.Get().(*imageRows)
	defer imageRowPool.Put(scratch)
	if f.Scale.Filter != "" || f.Rotates && d.Rotated != 0 {
		src = f.transformImage(scratch, src, d, size)
		uncropped := *d // transformImage has cropped the image
		uncropped.Y, uncropped.X = 0, 0
		d, size[0], size[1] = &uncropped, size[2], size[3]
	}
	H, W, h, w := size[0], size[1], size[2], size[3]
	for c := range scratch.pixels {
		scratch.pixels[c] = slices.Grow(scratch.pixels[c][:0], w)[:w]
	}
	scratch.noise = slices.Grow(scratch.noise[:0], 3*w)[:3*w]
	for y := range h {
		sy := min(max(int(d.Y)+y, 0), H-1) // source row, with repeated edges
		for c := range 3 {
			cropRow(scratch.pixels[c], src[(c*H+sy)*W:][:W], int(d.X), d.Flip != 0)
		}
		if d.Noise != 0 {
			for c := range 3 {
				d.noiseRow(scratch.noise[c*w:(c+1)*w], c, y, h)
			}
		}
		if d.Coloured != 0 || d.Noise != 0 {
			d.colourRow(scratch)
		}
		if f.ChannelsLast {
			f.storeInterleaved(dst, scratch, y)
			continue
		}
		for c, row := range scratch.pixels {
			at := (c*h + y) * w
			if f.Table == nil {
				copy(dst[at:], row)
				continue
			}
			t := (*[256]float32)(f.Table[256*c:])
			out := dst[4*at:][:4*w]
			for x, v := range row {
				binary.LittleEndian.PutUint32(out[4*x:], math.Float32bits(t[v]))
			}
		}
	}
}

// storeInterleaved stores row y of the result with the channels of a pixel next to each other.
func (f *ImageForm) storeInterleaved(dst []byte, scratch *imageRows, y int) {
	r, g, b := scratch.pixels[0], scratch.pixels[1], scratch.pixels[2]
	g, b = g[:len(r)], b[:len(r)]
	at := 3 * y * len(r)
	if f.Table == nil {
		out := dst[at:][:3*len(r)]
		for x := range r {
			pixel := (*[3]byte)(out[3*x:])
			pixel[0], pixel[1], pixel[2] = r[x], g[x], b[x]
		}
		return
	}
	for x := range r {
		out := dst[4*(at+3*x):][:12]
		for c, v := range [3]byte{r[x], g[x], b[x]} {
			binary.LittleEndian.PutUint32(out[4*c:], math.Float32bits(f.Table[256*c+int(v)]))
		}
	}
}

// cropRow copies a row of the crop: the columns from x0 on, with repeated edges, in reverse order
// if flip is set.
func cropRow(dst, src []byte, x0 int, flip bool) {
	w, W := len(dst), len(src)
	from := min(max(-x0, 0), w)
	to := max(min(W-x0, w), 0)
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

// noiseRow computes the noise of a row of a channel, with 12 fractional bits, from Philox. It
// computes two counters at a time, so that their multiplications can overlap.
func (d *ImageDraw) noiseRow(out []int32, channel, y, h int) {
	row := (uint32(d.Row)+uint32(channel))*uint32(h) + uint32(y)
	for x := 0; x < len(out); x += 8 {
		k0, k1 := d.Key[0], d.Key[1]
		a0 := uint32(x >> 2)
		a1 := row
		a2 := d.Sample[0]
		a3 := d.Sample[1]
		b0 := a0 + 1
		b1 := row
		b2 := a2
		b3 := a3
		for range 10 { // the rounds of Philox4x32-10, for counters a and b
			p, q := uint64(a0)*philoxFactor0, uint64(a2)*philoxFactor2
			r, s := uint64(b0)*philoxFactor0, uint64(b2)*philoxFactor2
			a0 = uint32(q>>32) ^ a1 ^ k0
			a1 = uint32(q)
			a2 = uint32(p>>32) ^ a3 ^ k1
			a3 = uint32(p)
			b0 = uint32(s>>32) ^ b1 ^ k0
			b1 = uint32(s)
			b2 = uint32(r>>32) ^ b3 ^ k1
			b3 = uint32(r)
			k0 += philoxStep0
			k1 += philoxStep1
		}
		eight := [8]int32{
			d.bellNoise(a0),
			d.bellNoise(a1),
			d.bellNoise(a2),
			d.bellNoise(a3),
			d.bellNoise(b0),
			d.bellNoise(b1),
			d.bellNoise(b2),
			d.bellNoise(b3),
		}
		copy(out[x:], eight[:])
	}
}

// bellNoise returns the noise of a word: the scaled sum of its bytes, minus the mean.
func (d *ImageDraw) bellNoise(v uint32) int32 {
	// Each half of pairs holds the sum of two bytes. 510 is the mean of the sum of four.
	pairs := (v & 0x00ff00ff) + (v >> 8 & 0x00ff00ff)
	sum := int32(pairs&0xffff + pairs>>16)
	return (sum - 510) * d.Noise >> 4
}

// colourRow applies the matrix, the offset and the noise to the pixels of a row. It rounds by
// adding half of a unit (colourOne) and clips to bytes.
func (d *ImageDraw) colourRow(scratch *imageRows) {
	m := d.Matrix
	offset := d.Offset + colourOne/2
	r, g, b := scratch.pixels[0], scratch.pixels[1], scratch.pixels[2]
	g, b = g[:len(r)], b[:len(r)]
	if d.Noise == 0 {
		for x := range r {
			R, G, B := int32(r[x]), int32(g[x]), int32(b[x])
			r[x] = clipByte((m[0]*R + m[1]*G + m[2]*B + offset) >> colourShift)
			g[x] = clipByte((m[3]*R + m[4]*G + m[5]*B + offset) >> colourShift)
			b[x] = clipByte((m[6]*R + m[7]*G + m[8]*B + offset) >> colourShift)
		}
		return
	}
	n := len(r)
	nr := scratch.noise[:n]
	ng := scratch.noise[n : 2*n]
	nb := scratch.noise[2*n : 3*n]
	for x := range r {
		R, G, B := int32(r[x]), int32(g[x]), int32(b[x])
		r[x] = clipByte((m[0]*R + m[1]*G + m[2]*B + offset + nr[x]) >> colourShift)
		g[x] = clipByte((m[3]*R + m[4]*G + m[5]*B + offset + ng[x]) >> colourShift)
		b[x] = clipByte((m[6]*R + m[7]*G + m[8]*B + offset + nb[x]) >> colourShift)
	}
}

// clipByte returns the byte nearest to v.
func clipByte(v int32) byte { return byte(min(max(v, 0), 255)) }
