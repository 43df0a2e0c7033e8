package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// augmentError returns Misuse of an augment option that names a key.
func augmentError(key, msg, hint string) error {
	e := robocache.Misuse("loader", nil, "augment: %s", msg).WithHint("%s", hint)
	if key != "" {
		e.Where = robocache.Where{"stream": key}
	}
	return e
}

// imageDraws returns the random changes of a camera's images, without noise.
func imageDraws(a *options.Augment, seed int64, key string) (out kernel.ImageAugment, err error) {
	out = kernel.ImageAugment{Seed: uint64(seed), Camera: column.KeyNumber(key)}
	if c := a.Crop; c != nil {
		out.Pad = c.Pad
		switch {
		case c.Size == nil:
		case len(c.Size) != 2 || c.Size[0] < 1 || c.Size[1] < 1:
			return out, options.Misuse(
				"augment: random_crop: size",
				"[height, width], each 1 or more",
				fmt.Sprint(c.Size),
			)
		default:
			out.Height, out.Width = c.Size[0], c.Size[1]
		}
	}
	if j := a.Jitter; j != nil {
		for _, x := range []struct {
			name   string
			s      options.Spread
			middle float64
			to     **[2]float64
		}{
			{"color_jitter: brightness", j.Brightness, 1, &out.Brightness},
			{"color_jitter: contrast", j.Contrast, 1, &out.Contrast},
			{"color_jitter: saturation", j.Saturation, 1, &out.Saturation},
			{"color_jitter: hue", j.Hue, 0, &out.Hue},
		} {
			if *x.to, err = x.s.Around(x.name, x.middle); err != nil {
				return out, err
			}
		}
	}
	if out.Rotation, err = a.Rotation.Around("rotation", 0); err != nil {
		return out, err
	}
	if a.Flip != nil {
		out.Flip = a.Flip.P
	}
	out.Shared = a.OneDraw
	return out, nil
}

// applyAugment applies the augment option and the random steps of image_transform to the columns of
// a source. Their sizes must be known.
func (src *Source) applyAugment() error {
	a := src.Config.Augment
	cameras, err := src.augmentedCameras()
	if err != nil {
		return err
	}
	if a != nil && a.IsMixed && len(cameras) == 0 {
		a = &options.Augment{Noise: a.Noise, IsMixed: true}
	}
	_, random := src.Config.Steps()
	if err := src.checkMovedDepth(random); err != nil {
		return err
	}
	for c := range src.ImageColumns() {
		used := &options.Augment{}
		switch {
		case column.Channels(c.Spec.Pixel) != 3:
			continue
		case slices.Contains(cameras, c.Key):
			used = a
		case len(random) == 0 && !c.IsChannelsLast:
			continue
		}
		if err := src.augmentImages(used, random, c); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.Key})
		}
	}
	if a == nil {
		return nil
	}
	if err := src.checkVectorAugment(a); err != nil {
		return err
	}
	if err := src.checkCrop(a, cameras); err != nil {
		return err
	}
	if err := src.setMirrors(a, cameras); err != nil {
		return err
	}
	return src.setNoise(a, cameras)
}

// augmentedCameras returns the keys of the cameras that the augment option changes. It rejects
// other keys and depth.
func (src *Source) augmentedCameras() (cameras []string, err error) {
	a := src.Config.Augment
	if a == nil {
		return nil, nil
	}
	colour := func(c *column.Column) bool {
		return c.Image() != nil && column.Channels(c.Image().Spec.Pixel) == 3
	}
	for _, c := range src.Columns {
		if colour(c) && (a.Cameras == nil || slices.Contains(a.Cameras, c.Key)) {
			cameras = append(cameras, c.Key)
		}
	}
	for _, k := range a.Cameras {
		c := src.Column(k)
		switch {
		case c == nil && slices.Contains(src.known, k):
			return nil, augmentError(k, "keys leaves out this camera", "")
		case c == nil:
			nearest := robocache.Nearest(k, src.columnKeys())
			return nil, augmentError(k, "no camera of that key", nearest)
		case c.Image() != nil && !colour(c):
			return nil, augmentError(
				k,
				"depth is not augmented",
				"colour cameras only; leave cameras out for all of them",
			)
		case !colour(c):
			return nil, augmentError(k, "not a camera", "colour cameras only")
		}
	}
	changes := a.Crop != nil || a.Jitter != nil || a.Flip != nil || a.Rotation != nil
	if len(cameras) == 0 && !a.IsMixed && changes {
		return nil, augmentError(
			"",
			"no colour camera is delivered",
			robocache.Option("keys")+" with one, or noise of numbers alone",
		)
	}
	return cameras, nil
}

// addSteps adds the random steps of image_transform to the changes of a camera's images.
func addSteps(own *kernel.ImageAugment, steps []options.ImageStep, c *column.ImageColumn) error {
	var a options.Augment
	width, height := c.Width, c.Height
	for i := range steps {
		s := &steps[i]
		switch {
		case s.RandomCrop != nil:
			if own.Height != 0 || own.Pad != 0 {
				return augmentError("", "random_crop, and one in image_transform", "one of them")
			}
			if width, height = s.RandomCrop.PixelsOf(width, height); width > c.Width ||
				height > c.Height {
				want := fmt.Sprintf("at most the image, %d×%d", c.Width, c.Height)
				got := fmt.Sprintf("%d×%d", width, height)
				return options.Misuse("image_transform: random_crop", want, got)
			}
			own.Height, own.Width = height, width
		case s.Rotation != nil:
			a.Rotation = s.Rotation
		case s.Jitter != nil:
			a.Jitter = s.Jitter
		default:
			w, h, err := column.StepSize(s, width, height)
			if err != nil {
				return err
			}
			own.Scale = kernel.ImageScale{Filter: s.Filter, Height: h, Width: w}
		}
	}
	more, err := imageDraws(&a, 0, "")
	if err != nil {
		return err
	}
	hasColors := func(x *kernel.ImageAugment) bool {
		return x.Brightness != nil || x.Contrast != nil || x.Saturation != nil || x.Hue != nil
	}
	if more.Rotation != nil && own.Rotation != nil || hasColors(&more) && hasColors(own) {
		return augmentError(
			"",
			"rotation or color_jitter, and one in image_transform",
			"one of them",
		)
	}
	if more.Rotation != nil {
		own.Rotation = more.Rotation
	}
	if hasColors(&more) {
		own.Brightness, own.Contrast = more.Brightness, more.Contrast
		own.Saturation, own.Hue = more.Saturation, more.Hue
	}
	own.Shared = own.Shared || len(steps) > 0
	return nil
}

// augmentImages sets a column to decode bytes that are augmented afterwards. Its tensor gets the
// size of the result.
func (src *Source) augmentImages(
	a *options.Augment, steps []options.ImageStep, c *column.ImageColumn,
) error {
	own, err := imageDraws(a, src.Config.Seed, src.DatasetKey(c.Key))
	if err != nil {
		return err
	}
	if err := addSteps(&own, steps, c); err != nil {
		return err
	}
	if n := a.Noise; n != nil {
		std, named := n.Std[c.Key]
		if !named {
			std = n.Std[""]
		}
		own.Noise = std
	}
	if err := own.Check(c.Height, c.Width); err != nil {
		return err
	}
	x := &column.ImageAugment{ImageAugment: own, Norm: c.Norm, Form: own.Form(c.Height, c.Width)}
	x.OutHeight, x.OutWidth = own.ResultSize(c.Height, c.Width)
	x.Form.ChannelsLast = c.IsChannelsLast
	if c.OutDType == robocache.Float32 {
		if x.Form.Table, err = pixelTable(c.Norm); err != nil {
			return err
		}
	}
	c.Augment, c.Norm, c.Spec.Pixel = x, nil, video.RGB8
	c.Elements = 3 * x.OutHeight * x.OutWidth
	c.SetDType(c.OutDType)
	return nil
}

// pixelTable returns the float32 value of each byte, for each of three channels. norm may be nil.
func pixelTable(norm *column.Affine) ([]float32, error) {
	const values = 256 // of a byte
	const entries = 3 * values
	bytes := make([]byte, entries)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	table := make([]float32, entries)
	plane := values
	if norm != nil && len(norm.A) == 1 {
		plane = entries // one number for all channels
	}
	e := norm.Epilogue(plane)
	e.Unit = true
	apply := column.Applies.Get().(*column.Applied)
	apply.Part(column.AsBytes(table), robocache.Float32, bytes, robocache.Uint8, entries, e)
	return table, apply.Run()
}

// checkCrop rejects a random crop if the source delivers depth that keep does not name. A depth
// image that is aligned with a color camera would keep its pixels where the colors move.
func (src *Source) checkCrop(a *options.Augment, cameras []string) error {
	if a.Crop == nil {
		return nil
	}
	for _, k := range a.Crop.Keep {
		switch {
		case !slices.Contains(src.known, k):
			return augmentError(k, "random_crop: no key "+k, robocache.Nearest(k, src.columnKeys()))
		case slices.Contains(cameras, k):
			return augmentError(
				k,
				"random_crop: a camera that is cropped cannot be in keep",
				robocache.Option("augment", "cameras", []string{"KEY"})+" leaves other cameras out",
			)
		}
	}
	for c := range src.ImageColumns() {
		if column.Channels(c.Spec.Pixel) != 3 && !slices.Contains(a.Crop.Keep, c.Key) {
			return augmentError(
				c.Key,
				"random_crop moves the colour images, and depth is not augmented",
				fmt.Sprintf(
					"if it is not aligned with a cropped camera: %s; else leave the key out of %s",
					robocache.Option("augment", "random_crop", "keep", []string{c.Key}),
					robocache.Option("keys"),
				),
			)
		}
	}
	return nil
}

// checkMovedDepth rejects random steps of image_transform that crop or rotate if the source also
// delivers depth. These steps move only the color images, so depth would no longer match them.
func (src *Source) checkMovedDepth(random []options.ImageStep) error {
	moves := func(s options.ImageStep) bool { return s.RandomCrop != nil || s.Rotation != nil }
	if !slices.ContainsFunc(random, moves) {
		return nil
	}
	for c := range src.ImageColumns() {
		if column.Channels(c.Spec.Pixel) != 3 {
			return augmentError(
				c.Key,
				"random steps of image_transform move the color images, and depth is not transformed",
				"Leave the key out of "+robocache.Option("keys")+".",
			)
		}
	}
	return nil
}

// setMirrors sets the effect of a flip on every delivered key. It rejects keys for which the
// options state none.
func (src *Source) setMirrors(a *options.Augment, cameras []string) error {
	f := a.Flip
	if f == nil || f.P == 0 {
		return nil
	}
	named := slices.Concat(options.Keys(f.Negate), options.Keys(f.Swap), f.Keep)
	for _, k := range named {
		switch {
		case !slices.Contains(src.known, k):
			return augmentError(k, "hflip: no key "+k, robocache.Nearest(k, src.columnKeys()))
		case slices.Contains(cameras, k):
			return augmentError(
				k,
				"hflip: a camera is mirrored, and takes no negate, swap or keep",
				robocache.Option("augment", "cameras", []string{"KEY"})+" leaves other cameras out",
			)
		case slices.Contains(f.Keep, k) && (f.Negate[k] != nil || f.Swap[k] != nil):
			return augmentError(k, "hflip: keep, and negate or swap", "one of them")
		}
	}
	var silent []string
	for _, c := range src.Columns {
		if c.Feature == nil || column.Is[*column.TimesColumn](c) || c.Feature.Default ||
			column.Is[*column.TextColumn](c) || slices.Contains(cameras, c.Key) ||
			slices.Contains(f.Keep, c.Key) {
			continue
		}
		if f.Negate[c.Key] == nil && f.Swap[c.Key] == nil {
			if !slices.Contains(silent, c.Key) {
				silent = append(silent, c.Key)
			}
			continue
		}
		m := &column.Mirror{Negate: f.Negate[c.Key], Swap: f.Swap[c.Key]}
		if err := m.Check(c); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.Key})
		}
		for _, one := range c.Alternatives() {
			one.Table().Mirror = m
		}
	}
	if len(silent) > 0 {
		return augmentError(
			silent[0],
			"hflip: nothing says what a flip of the images does to "+strings.Join(silent, ", "),
			fmt.Sprintf(
				"Name the elements that change sign: %s, or places: %s, or leave the keys as "+
					"they are: %s; or give %s without them",
				robocache.Option("augment", "hflip", "negate", silent[0], []int{0}),
				robocache.Option("augment", "hflip", "swap", silent[0], [][2]int{{0, 1}}),
				robocache.Option("augment", "hflip", "keep", silent),
				robocache.Option("keys"),
			),
		)
	}
	for _, t := range src.Dataset.Info().Tasks {
		if words := strings.Fields(strings.ToLower(t.Text)); slices.Contains(words, "left") ||
			slices.Contains(words, "right") {
			src.report.Warn(
				"augment: hflip mirrors images of tasks that name a side, and leaves their " +
					"texts: " + options.Clip(t.Text),
			)
			break
		}
	}
	return nil
}

// setNoise sets the noise of numeric columns.
func (src *Source) setNoise(a *options.Augment, cameras []string) error {
	if a.Noise == nil {
		return nil
	}
	if a.Noise.Std == nil {
		return options.Misuse(
			"augment: noise",
			"std: a number for all cameras, or {key: number}",
			"none",
		)
	}
	if _, all := a.Noise.Std[""]; all && len(cameras) == 0 && !a.IsMixed {
		return augmentError(
			"",
			"noise: no colour camera is delivered",
			`"std": {key: number} for numbers`,
		)
	}
	for _, k := range options.Keys(a.Noise.Std) {
		std, c := a.Noise.Std[k], src.Column(k)
		switch {
		case k == "" || slices.Contains(cameras, k):
		case !slices.Contains(src.known, k):
			return augmentError(k, "noise: no key "+k, robocache.Nearest(k, src.columnKeys()))
		case c == nil: // the keys option omits it
		case c.Image() != nil:
			return augmentError(k, "noise: depth, or a camera that cameras leaves out", "")
		case c.Table() == nil || !c.OutDType.Float():
			return augmentError(k, "noise: for rows of floating-point numbers of one length", "")
		case !(std >= 0) || std > 1e30:
			return options.Misuse(
				"augment: noise: std of "+k,
				"a number of at least 0",
				fmt.Sprint(std),
			)
		default:
			for _, one := range c.Alternatives() {
				one.Table().NoiseDeviation = float32(std)
			}
		}
	}
	return nil
}
