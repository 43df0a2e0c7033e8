package loader

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// augmentError is Misuse that names a key.
func augmentError(key, msg, hint string) error {
	e := robocache.Misuse("loader", nil, "augment: %s", msg).WithHint("%s", hint)
	if key != "" {
		e.Where = robocache.Where{"stream": key}
	}
	return e
}

// imageDraws is what is drawn for a camera, but for its noise.
func imageDraws(a *Augment, seed int64, key string) (out kernel.ImageAugment, err error) {
	out = kernel.ImageAugment{Seed: uint64(seed), Camera: keyNumber(key)}
	if c := a.Crop; c != nil {
		out.Pad = c.Pad
		switch {
		case c.Size == nil:
		case len(c.Size) != 2 || c.Size[0] < 1 || c.Size[1] < 1:
			return out, options.Misuse("augment: random_crop: size", "[height, width], each 1 or more", fmt.Sprint(c.Size))
		default:
			out.Height, out.Width = c.Size[0], c.Size[1]
		}
	}
	if j := a.Jitter; j != nil {
		for _, x := range []struct {
			name   string
			s      Spread
			middle float64
			to     **[2]float64
		}{{"brightness", j.Brightness, 1, &out.Brightness}, {"contrast", j.Contrast, 1, &out.Contrast}, {"saturation", j.Saturation, 1, &out.Saturation}, {"hue", j.Hue, 0, &out.Hue}} {
			if *x.to, err = x.s.Around(x.name, x.middle); err != nil {
				return out, err
			}
		}
	}
	if a.Flip != nil {
		out.Flip = a.Flip.P
	}
	return out, nil
}

// keyNumber tells the draws of keys apart: FNV-1a of the dataset's own key, and never 0, which the flips have.
func keyNumber(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return max(h.Sum32(), 1)
}

// imageAug is what is done to the images of a column after they are decoded: always as bytes, at the column's height and width.
type imageAug struct {
	kernel.ImageAugment
	h, w  int       // of the result
	norm  *affine   // of a float32 result
	table []float32 // what each byte of a channel becomes there; nil: bytes
}

// mirror is what a flip does to a row of numbers.
type mirror struct {
	negate []int
	swap   [][2]int
}

// augments settles augment= for the columns of a source, when their sizes are known.
func (src *source) augments() error {
	a := src.cfg.Augment
	if a == nil {
		return nil
	}
	colour := func(c *column) bool { return c.image() != nil && channels(c.image().spec.Pixel) == 3 }
	var cameras []string
	for _, c := range src.columns {
		if colour(c) && (a.Cameras == nil || slices.Contains(a.Cameras, c.key)) {
			cameras = append(cameras, c.key)
		}
	}
	for _, k := range a.Cameras {
		c := src.column(k)
		switch {
		case c == nil && slices.Contains(src.known, k):
			return augmentError(k, "keys leaves out this camera", "")
		case c == nil:
			return augmentError(k, "no camera of that key", robocache.Nearest(k, src.keys()))
		case c.image() != nil && !colour(c):
			return augmentError(k, "depth is not augmented", "colour cameras only; leave cameras out for all of them")
		case !colour(c):
			return augmentError(k, "not a camera", "colour cameras only")
		}
	}
	if len(cameras) == 0 && a.Shared {
		a = &Augment{Noise: a.Noise, Shared: true}
	}
	if len(cameras) == 0 && (a.Crop != nil || a.Jitter != nil || a.Flip != nil) {
		return augmentError("", "no colour camera is delivered", robocache.Option("keys")+" with one, or noise of numbers alone")
	}
	for _, k := range cameras {
		if err := src.augmentImages(a, src.imageColumn(k)); err != nil {
			return robocache.At(err, robocache.Where{"stream": k})
		}
	}
	if err := src.checkCrop(a, cameras); err != nil {
		return err
	}
	if err := src.mirrors(a, cameras); err != nil {
		return err
	}
	return src.noises(a, cameras)
}

// augmentImages makes a column's frames bytes until they are augmented, and its tensor of the result's size.
func (src *source) augmentImages(a *Augment, c *imageColumn) error {
	own, err := imageDraws(a, src.cfg.Seed, src.ownKey(c.key))
	if err != nil {
		return err
	}
	if n := a.Noise; n != nil {
		std, named := n.Std[c.key]
		if !named {
			std = n.Std[""]
		}
		own.Noise = std
	}
	if err := own.Check(c.height, c.width); err != nil {
		return err
	}
	x := &imageAug{ImageAugment: own, norm: c.norm}
	x.h, x.w = own.Size(c.height, c.width)
	if c.out == robocache.Float32 {
		bytes := make([]byte, 768)
		for i := range bytes {
			bytes[i] = byte(i)
		}
		x.table = make([]float32, 768)
		plane := 256
		if c.norm != nil && len(c.norm.A) == 1 {
			plane = 768
		}
		e := c.norm.epilogue(plane)
		e.Unit = true
		apply := applies.Get().(*applied)
		apply.part(bytesOf(x.table), robocache.Float32, bytes, robocache.Uint8, 768, e)
		if err := apply.run(); err != nil {
			return err
		}
	}
	c.aug, c.norm, c.spec.Pixel = x, nil, video.RGB8
	c.elems = 3 * x.h * x.w
	c.cast(c.out)
	return nil
}

// checkCrop rejects a crop beside depth that the caller does not name: a depth image that is aligned with a
// colour camera would keep its pixels where the colours move.
func (src *source) checkCrop(a *Augment, cameras []string) error {
	if a.Crop == nil {
		return nil
	}
	for _, k := range a.Crop.Keep {
		switch {
		case !slices.Contains(src.known, k):
			return augmentError(k, "random_crop: no key "+k, robocache.Nearest(k, src.keys()))
		case slices.Contains(cameras, k):
			return augmentError(k, "random_crop: a camera that is cropped cannot be in keep", "cameras=[…] leaves cameras out")
		}
	}
	for c := range src.imageColumns() {
		if channels(c.spec.Pixel) != 3 && !slices.Contains(a.Crop.Keep, c.key) {
			return augmentError(c.key, "random_crop moves the colour images, and depth is not augmented",
				fmt.Sprintf(`if it is not aligned with a cropped camera: "random_crop": {"keep": [%q]}; else leave the key out of %s`, c.key, robocache.Option("keys")))
		}
	}
	return nil
}

// mirrors settles what a flip does to every key that is delivered, and refuses one of which nobody said it.
func (src *source) mirrors(a *Augment, cameras []string) error {
	f := a.Flip
	if f == nil || f.P == 0 {
		return nil
	}
	named := slices.Concat(options.Keys(f.Negate), options.Keys(f.Swap), f.Keep)
	for _, k := range named {
		switch {
		case !slices.Contains(src.known, k):
			return augmentError(k, "hflip: no key "+k, robocache.Nearest(k, src.keys()))
		case slices.Contains(cameras, k):
			return augmentError(k, "hflip: a camera is mirrored, and takes no negate, swap or keep", "cameras=[…] leaves cameras out")
		case slices.Contains(f.Keep, k) && (f.Negate[k] != nil || f.Swap[k] != nil):
			return augmentError(k, "hflip: keep, and negate or swap", "one of them")
		}
	}
	var silent []string
	for _, c := range src.columns {
		if c.feature == nil || is[*timesColumn](c) || c.feature.Default || is[*textColumn](c) || slices.Contains(cameras, c.key) || slices.Contains(f.Keep, c.key) {
			continue
		}
		if f.Negate[c.key] == nil && f.Swap[c.key] == nil {
			if !slices.Contains(silent, c.key) {
				silent = append(silent, c.key)
			}
			continue
		}
		m := &mirror{negate: f.Negate[c.key], swap: f.Swap[c.key]}
		if err := m.check(c); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.key})
		}
		c.table().mirror = m
	}
	if len(silent) > 0 {
		list, _ := json.Marshal(silent)
		return augmentError(silent[0], "hflip: nothing says what a flip of the images does to "+strings.Join(silent, ", "),
			fmt.Sprintf(`"negate": {key: [elements that change sign]}, "swap": {key: [[i, j], …]}, or "keep": %s; or %s without them`, list, robocache.Option("keys")))
	}
	for _, t := range src.ds.Info().Tasks {
		if words := strings.Fields(strings.ToLower(t.Text)); slices.Contains(words, "left") || slices.Contains(words, "right") {
			src.report.warn("augment: hflip mirrors images of tasks that name a side, and leaves their texts: " + options.Clip(t.Text))
			break
		}
	}
	return nil
}

func (m *mirror) check(c *column) error {
	const name = "augment: hflip: "
	if c.table() == nil {
		return robocache.Unsupported("loader", nil, "%snegate and swap are for rows of numbers of one length", name).
			WithHint(`"keep", or %s without it`, robocache.Option("keys"))
	}
	seen := map[int]bool{}
	bad := func(option string, i int) error {
		return options.Misuse(name+option+" of "+c.key, fmt.Sprintf("elements 0 to %d, each once", c.elems-1), fmt.Sprint(i))
	}
	for _, i := range m.negate {
		if i < 0 || i >= c.elems || seen[i] {
			return bad("negate", i)
		}
		seen[i] = true
	}
	if len(m.negate) > 0 && (c.stored == robocache.Bool || c.stored == robocache.Uint8 || c.stored == robocache.Uint16 || c.stored == robocache.Uint32 || c.stored == robocache.Uint64) {
		return options.Misuse(name+"negate of "+c.key, "numbers with a sign", c.stored.String())
	}
	clear(seen)
	for _, p := range m.swap {
		for _, i := range p {
			if i < 0 || i >= c.elems || seen[i] {
				return bad("swap", i)
			}
			seen[i] = true
		}
	}
	return nil
}

// noises settles the noise of numbers.
func (src *source) noises(a *Augment, cameras []string) error {
	if a.Noise == nil {
		return nil
	}
	if a.Noise.Std == nil {
		return options.Misuse("augment: noise", "std: a number for all cameras, or {key: number}", "none")
	}
	if _, all := a.Noise.Std[""]; all && len(cameras) == 0 && !a.Shared {
		return augmentError("", "noise: no colour camera is delivered", `"std": {key: number} for numbers`)
	}
	for _, k := range options.Keys(a.Noise.Std) {
		std, c := a.Noise.Std[k], src.column(k)
		switch {
		case k == "" || slices.Contains(cameras, k):
		case !slices.Contains(src.known, k):
			return augmentError(k, "noise: no key "+k, robocache.Nearest(k, src.keys()))
		case c == nil: // keys leaves it out
		case c.image() != nil:
			return augmentError(k, "noise: depth, or a camera that cameras leaves out", "")
		case c.table() == nil || !c.out.Float():
			return augmentError(k, "noise: for rows of floating-point numbers of one length", "")
		case !(std >= 0) || std > 1e30:
			return options.Misuse("augment: noise: std of "+k, "a number of at least 0", fmt.Sprint(std))
		default:
			c.table().noise = float32(std)
		}
	}
	return nil
}
