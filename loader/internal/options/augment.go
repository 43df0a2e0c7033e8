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

// Augment says how samples are changed at random: a pure function of (seed, epoch, the sample's place in its dataset, camera), whatever the batch,
// thread, rank, cache or device (kernel K22, K23). It comes after decoding and image_size, before image_dtype and normalize.
type Augment struct {
	Cameras []string     `json:"cameras,omitempty"` // nil: all colour cameras that are delivered
	Crop    *RandomCrop  `json:"random_crop,omitempty"`
	Jitter  *ColorJitter `json:"color_jitter,omitempty"`
	Flip    *HFlip       `json:"hflip,omitempty"`
	Noise   *Noise       `json:"noise,omitempty"`

	Shared bool `json:"-"` // said for all sources of a mixture, of which one may have no camera
}

// RandomCrop takes a part of each image, one place for all images of a sample and camera.
type RandomCrop struct {
	Size []int `json:"size,omitempty"` // [height, width]; nil: the image's
	Pad  int   `json:"pad,omitempty"`  // pixels by which the edges are repeated on each side before
	// Keep lists the depth cameras that are not aligned with a cropped camera, and stay as they are.
	Keep []string `json:"keep,omitempty"`
}

// ColorJitter changes colours: factors of brightness, contrast about mid-grey and saturation, and turns of the hue, in this order.
type ColorJitter struct {
	Brightness Spread `json:"brightness,omitempty"` // [v]: between max(0, 1-v) and 1+v; [low, high]: a factor between them, at most 4
	Contrast   Spread `json:"contrast,omitempty"`
	Saturation Spread `json:"saturation,omitempty"`
	Hue        Spread `json:"hue,omitempty"` // [v]: between -v and v; turns of the colour circle, -0.5 to 0.5
}

// HFlip mirrors all cameras of a sample, and what goes with them. What every other key does is said: numbers change sign or place, or stay.
type HFlip struct {
	P      float64             `json:"p"`
	Negate map[string][]int    `json:"negate,omitempty"` // elements of a row that change sign, after the swaps
	Swap   map[string][][2]int `json:"swap,omitempty"`   // elements that change places
	Keep   []string            `json:"keep,omitempty"`   // keys that a flip leaves as they are
}

// Noise adds normal noise: to images as a part of full scale, to numbers in the unit in which they are delivered (after normalize).
type Noise struct {
	Std Amounts `json:"std"`
}

// Spread is one number or two; JSON may say a number alone.
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

// Amounts is a number a key; "" stands for all colour cameras, and JSON may say its number alone.
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

// augmentNames are the names that augment= ("") and its parts know.
var augmentNames = map[string][]string{
	"":             {"cameras", "random_crop", "color_jitter", "hflip", "noise"},
	"random_crop":  {"size", "pad", "keep"},
	"color_jitter": {"brightness", "contrast", "saturation", "hue"},
	"hflip":        {"p", "negate", "swap", "keep"},
	"noise":        {"std"},
}

// UnmarshalJSON reads augment=; an unknown name is Misuse with the nearest one.
func (a *Augment) UnmarshalJSON(b []byte) error {
	if err := orderedObject(b, "augment", func(string, json.RawMessage) error { return nil }); err != nil { // each name once
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

// partWith returns the part of augment= that holds an unknown name; "" if no part does.
func partWith(augment []byte, name string) string {
	var parts map[string]json.RawMessage
	_ = json.Unmarshal(augment, &parts)
	for part, known := range augmentNames {
		var names map[string]json.RawMessage
		if json.Unmarshal(parts[part], &names) == nil && names[name] != nil && !slices.Contains(known, name) {
			return part
		}
	}
	return ""
}

// Named lists the keys that it names.
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
		list = append(list, slices.DeleteFunc(Keys(a.Noise.Std), func(k string) bool { return k == "" })...)
	}
	return list
}

// Of is what it says of a source of a mixture that gives some keys.
func (a *Augment) Of(gives func(k string) bool) *Augment {
	x := *a
	x.Shared = true
	lacks := func(k string) bool { return !gives(k) }
	if x.Cameras != nil {
		x.Cameras = slices.DeleteFunc(slices.Clone(x.Cameras), lacks)
	}
	if f := x.Flip; f != nil {
		x.Flip = &HFlip{P: f.P, Negate: Only(f.Negate, gives), Swap: Only(f.Swap, gives), Keep: slices.DeleteFunc(slices.Clone(f.Keep), lacks)}
	}
	if n := x.Noise; n != nil {
		x.Noise = &Noise{Std: Only(n.Std, func(k string) bool { return k == "" || gives(k) })}
	}
	return &x
}

// Around is a range of factors.
func (s Spread) Around(name string, middle float64) (*[2]float64, error) {
	switch {
	case len(s) == 0:
		return nil, nil
	case len(s) == 2:
		return &[2]float64{s[0], s[1]}, nil
	case len(s) > 2 || !(s[0] >= 0):
		return nil, Misuse("augment: color_jitter: "+name, "a number of at least 0, or [low, high]", fmt.Sprint([]float64(s)))
	case middle == 0:
		return &[2]float64{-s[0], s[0]}, nil
	}
	return &[2]float64{max(0, middle-s[0]), middle + s[0]}, nil
}
