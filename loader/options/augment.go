package options

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// Augment states how samples are changed at random. Each change is a pure function of seed, epoch,
// the sample's row in its dataset, and camera (kernel.K22, K23). It does not depend on batch,
// thread, rank, cache or device. Augmentation follows decoding and image_size, and precedes
// image_dtype and normalize.
type Augment struct {
	Cameras []string     `json:"cameras,omitempty"` // nil: all delivered color cameras
	Crop    *RandomCrop  `json:"random_crop,omitempty"`
	Jitter  *ColorJitter `json:"color_jitter,omitempty"`
	// Rotation is [v] for an angle between -v and v, or [low, high]. The unit is degrees
	// counterclockwise, from -180 to 180. Images are mirrored at their edges.
	Rotation Spread `json:"rotation,omitempty"`
	Flip     *HFlip `json:"hflip,omitempty"`
	Noise    *Noise `json:"noise,omitempty"`
	// OneDraw gives all cameras of a sample the same draws, except those of noise.
	OneDraw bool `json:"shared,omitempty"`

	IsMixed bool `json:"-"` // set for all sources of a mixture, of which some may have no camera
}

// RandomCrop crops each image. All images of one sample and camera are cropped at the same
// position.
type RandomCrop struct {
	Size []int `json:"size,omitempty"` // [height, width]; nil: the size of the image
	// pixels by which the edges are extended first, by repetition
	Pad int `json:"pad,omitempty"`
	// Keep lists the depth cameras that are not aligned with a cropped camera. They are not
	// cropped.
	Keep []string `json:"keep,omitempty"`
}

// ColorJitter changes colors, in this order: factors of brightness, of contrast around mid-gray and
// of saturation, and a rotation of the hue.
type ColorJitter struct {
	// Brightness is [v] for a factor between max(0, 1-v) and 1+v, or [low, high] for a factor in
	// between. Factors are at most 4. Contrast and Saturation are alike.
	Brightness Spread `json:"brightness,omitempty"`
	Contrast   Spread `json:"contrast,omitempty"`
	Saturation Spread `json:"saturation,omitempty"`
	// Hue is [v] for a rotation between -v and v, or [low, high]. The unit is turns of the color
	// circle, from -0.5 to 0.5.
	Hue Spread `json:"hue,omitempty"`
}

// HFlip mirrors all cameras of a sample. For every other delivered key it must state whether
// numbers change sign or position, or stay.
type HFlip struct {
	P float64 `json:"p"`
	// elements of a row that change sign, after the swaps
	Negate map[string][]int    `json:"negate,omitempty"`
	Swap   map[string][][2]int `json:"swap,omitempty"` // pairs of elements that are exchanged
	Keep   []string            `json:"keep,omitempty"` // keys that a flip leaves as they are
}

// Noise adds normal noise. For images its deviation is a fraction of full scale. For numbers it has
// the unit in which they are delivered, after normalize.
type Noise struct {
	Std Amounts `json:"std"`
}

// Spread is one number or two. JSON may contain a number instead of a list.
type Spread []float64

// UnmarshalJSON reads v or [low, high].
func (s *Spread) UnmarshalJSON(b []byte) error {
	var v float64
	if json.Unmarshal(b, &v) == nil {
		*s = Spread{v}
		return nil
	}
	if json.Unmarshal(b, (*[]float64)(s)) != nil {
		return Misuse("augment: color_jitter", "a number, or [low, high]", jsonmeta.Words(b))
	}
	return nil
}

// Amounts holds a number per key. The key "" stands for all color cameras. JSON may contain its
// number instead of an object.
type Amounts map[string]float64

// UnmarshalJSON reads v or {key: v}.
func (a *Amounts) UnmarshalJSON(b []byte) error {
	var v float64
	if json.Unmarshal(b, &v) == nil {
		*a = Amounts{"": v}
		return nil
	}
	if json.Unmarshal(b, (*map[string]float64)(a)) != nil {
		return Misuse("augment: noise: std", "a number, or an object of numbers", jsonmeta.Words(b))
	}
	return nil
}

// augmentNames lists the option names of augment ("") and of its parts.
var augmentNames = map[string][]string{
	"": {
		"cameras", "random_crop", "color_jitter", "rotation", "hflip", "noise", "shared",
	},
	"random_crop":  {"size", "pad", "keep"},
	"color_jitter": {"brightness", "contrast", "saturation", "hue"},
	"hflip":        {"p", "negate", "swap", "keep"},
	"noise":        {"std"},
}

// UnmarshalJSON reads an augment option. An unknown name is Misuse, and the hint is the nearest
// known name.
func (a *Augment) UnmarshalJSON(b []byte) error {
	rejectDuplicates := func(string, json.RawMessage) error { return nil }
	if err := orderedObject(b, "augment", rejectDuplicates); err != nil {
		return err
	}
	type plain Augment
	err := jsonmeta.Option("loader", "augment", b, (*plain)(a))
	var e *robocache.Error
	if errors.As(err, &e) {
		if _, name, unknown := strings.Cut(e.Msg, "unknown name "); unknown {
			part := partWith(b, name)
			if part != "" {
				e.Msg = "augment." + part + ": unknown name " + name
			}
			return e.WithHint("%s", robocache.Nearest(name, augmentNames[part]))
		}
	}
	return err
}

// partWith returns the part of an augment option that contains an unknown name, or "".
func partWith(augment []byte, name string) string {
	var parts map[string]json.RawMessage
	_ = json.Unmarshal(augment, &parts)
	for part, known := range augmentNames {
		var names map[string]json.RawMessage
		if json.Unmarshal(parts[part], &names) == nil && names[name] != nil &&
			!slices.Contains(known, name) {
			return part
		}
	}
	return ""
}

// Named returns the keys that the options name. a may be nil.
func (a *Augment) Named() []string {
	if a == nil {
		return nil
	}
	list := slices.Clone(a.Cameras)
	if a.Crop != nil {
		list = append(list, a.Crop.Keep...)
	}
	if f := a.Flip; f != nil {
		list = slices.Concat(list, Keys(f.Negate), Keys(f.Swap), f.Keep)
	}
	if a.Noise != nil {
		list = append(
			list,
			slices.DeleteFunc(Keys(a.Noise.Std), func(k string) bool { return k == "" })...)
	}
	return list
}

// ForSource returns the options that apply to a source of a mixture. hasKey reports whether the
// source delivers a key.
func (a *Augment) ForSource(hasKey func(k string) bool) *Augment {
	x := *a
	x.IsMixed = true // the source may have no camera, if another one has
	lacks := func(k string) bool { return !hasKey(k) }
	if x.Cameras != nil {
		x.Cameras = slices.DeleteFunc(slices.Clone(x.Cameras), lacks)
	}
	if f := x.Flip; f != nil {
		x.Flip = &HFlip{
			P:      f.P,
			Negate: Only(f.Negate, hasKey),
			Swap:   Only(f.Swap, hasKey),
			Keep:   slices.DeleteFunc(slices.Clone(f.Keep), lacks),
		}
	}
	if n := x.Noise; n != nil {
		x.Noise = &Noise{Std: Only(n.Std, func(k string) bool { return k == "" || hasKey(k) })}
	}
	return &x
}

// Around returns the range that s describes around middle. It returns nil if s is empty.
func (s Spread) Around(name string, middle float64) (*[2]float64, error) {
	switch {
	case len(s) == 0:
		return nil, nil
	case len(s) == 2:
		return &[2]float64{s[0], s[1]}, nil
	case len(s) > 2 || !(s[0] >= 0):
		return nil, Misuse(
			"augment: "+name,
			"a number of at least 0, or [low, high]",
			fmt.Sprint([]float64(s)),
		)
	case middle == 0:
		return &[2]float64{-s[0], s[0]}, nil
	}
	return &[2]float64{max(0, middle-s[0]), middle + s[0]}, nil
}
