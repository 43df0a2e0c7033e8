package options

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// ImageStep is one step of image_transform. Exactly one of its fields, other than Fit and Filter,
// is set.
type ImageStep struct {
	Letterbox    bool  `json:"letterbox,omitempty"`     // pad to a square with zeros, centered
	SmallestSide int   `json:"smallest_side,omitempty"` // scale the smaller side to this number
	Resize       []int `json:"resize,omitempty"`        // [height, width]
	// the part of each side that is kept, or [height, width] in pixels
	CenterCrop Extent `json:"center_crop,omitempty"`
	// RandomCrop is CenterCrop at a random position. Rotation and Jitter are those of Augment. The
	// draws of these three are shared by all cameras of a sample.
	RandomCrop Extent       `json:"random_crop,omitempty"`
	Rotation   Spread       `json:"rotation,omitempty"`
	Jitter     *ColorJitter `json:"color_jitter,omitempty"`

	Fit    Resize        `json:"fit,omitempty"`    // of Resize
	Filter resize.Filter `json:"filter,omitempty"` // of SmallestSide and Resize; default: cv2-area
}

// UnmarshalJSON reads a step. An unknown name is Misuse.
func (s *ImageStep) UnmarshalJSON(b []byte) error {
	type plain ImageStep
	return jsonmeta.Option("loader", "image_transform", b, (*plain)(s))
}

// IsRandom reports whether the step draws random numbers.
func (s *ImageStep) IsRandom() bool {
	return s.RandomCrop != nil || s.Rotation != nil || s.Jitter != nil
}

// Extent is a fraction of each side, or a height and a width. JSON may contain a number instead of
// a list.
type Extent []float64

// UnmarshalJSON reads a fraction or [height, width].
func (e *Extent) UnmarshalJSON(b []byte) error { return (*Spread)(e).UnmarshalJSON(b) }

// PixelsOf returns the size in pixels of this extent of a w × h image. Fractions are rounded down.
func (e Extent) PixelsOf(w, h int) (width, height int) {
	if len(e) == 1 {
		return max(1, int(float64(w)*e[0])), max(1, int(float64(h)*e[0]))
	}
	return int(e[1]), int(e[0])
}

// isExtent reports whether e is a fraction, or two numbers of pixels.
func (e Extent) isExtent() bool {
	if len(e) == 1 {
		return e[0] > 0 && e[0] <= 1
	}
	isSide := func(v float64) bool { return v == math.Trunc(v) && v >= 1 && v <= resize.MaxSide }
	return len(e) == 2 && isSide(e[0]) && isSide(e[1])
}

// isScale reports whether the step scales the image.
func (s *ImageStep) isScale() bool { return s.SmallestSide != 0 || s.Resize != nil }

// checkStep rejects a step that is not exactly one valid change.
func (s *ImageStep) checkStep() error {
	set := 0
	for _, isSet := range []bool{
		s.Letterbox, s.SmallestSide != 0, s.Resize != nil, s.CenterCrop != nil,
		s.RandomCrop != nil, s.Rotation != nil, s.Jitter != nil,
	} {
		if isSet {
			set++
		}
	}
	const option = "image_transform"
	switch {
	case set != 1:
		return Misuse(
			option,
			"one change per step: letterbox, smallest_side, resize, center_crop, "+
				"random_crop, rotation or color_jitter",
			fmt.Sprint(set),
		)
	case s.SmallestSide < 0 || s.SmallestSide > resize.MaxSide:
		want := fmt.Sprintf("smallest_side: 1 to %d pixels", resize.MaxSide)
		return Misuse(option, want, fmt.Sprint(s.SmallestSide))
	case s.CenterCrop != nil && !s.CenterCrop.isExtent():
		return Misuse(option, "center_crop: a fraction above 0, or [height, width]",
			fmt.Sprint([]float64(s.CenterCrop)))
	case s.RandomCrop != nil && !s.RandomCrop.isExtent():
		return Misuse(option, "random_crop: a fraction above 0, or [height, width]",
			fmt.Sprint([]float64(s.RandomCrop)))
	case (s.Fit != Stretch) && (s.Resize == nil || s.Fit != Letterbox && s.Fit != Crop):
		return Misuse(option, `fit: "letterbox" or "crop" of resize`, string(s.Fit))
	case s.Filter != "" && !s.isScale():
		return Misuse(option, "a filter of resize or smallest_side", string(s.Filter))
	case s.Resize == nil:
		return checkFilter(option, s.Filter)
	}
	if err := checkSize(option, s.Resize); err != nil || len(s.Resize) != 2 {
		return cmp.Or(err, Misuse(option, "resize: [height, width]", fmt.Sprint(s.Resize)))
	}
	return checkFilter(option, s.Filter)
}

// checkFilter rejects unknown filters. An empty filter is valid.
func checkFilter(option string, f resize.Filter) error {
	if f == "" || slices.Contains(resize.Filters, f) {
		return nil
	}
	return Misuse(option, fmt.Sprint(resize.Filters), string(f))
}

// checkSteps rejects invalid filters and steps. Random steps must follow all other steps, in the
// order crop, scaling of the crop, rotation, colors.
func (i *Images) checkSteps() error {
	if err := checkFilter("image_filter", i.ImageFilter); err != nil || len(i.Transform) == 0 {
		return err
	}
	if len(i.ImageSize) > 0 || i.ImageResize != Stretch {
		return Misuse("image_transform", "in place of "+robocache.Option("image_size")+
			" and "+robocache.Option("image_resize"), "both")
	}
	lastStage := 0
	for k := range i.Transform {
		s := &i.Transform[k]
		if err := s.checkStep(); err != nil {
			return err
		}
		stage := 0 // position in the order of random steps; 0: not random
		switch {
		case s.RandomCrop != nil:
			stage = 1
		case s.isScale() && s.Fit == Stretch && lastStage == 1:
			stage = 2
		case s.Rotation != nil:
			stage = 3
		case s.Jitter != nil:
			stage = 4
		}
		if stage <= lastStage && lastStage > 0 {
			e := robocache.Unsupported("loader", nil, "image_transform: step %d after a random one",
				k)
			return e.WithHint("Order the steps: those that are not random; random_crop; a resize " +
				"or smallest_side of the crop; rotation; color_jitter.")
		}
		lastStage = stage
	}
	return nil
}

// HasRandomSteps reports whether the transform draws random numbers.
func (i *Images) HasRandomSteps() bool {
	return slices.ContainsFunc(i.Transform, func(s ImageStep) bool { return s.IsRandom() })
}

// HasFilter reports whether frames are scaled by a named filter or by steps. They are then decoded
// at their full size.
func (i *Images) HasFilter() bool { return i.ImageFilter != "" || len(i.Transform) > 0 }

// Steps returns the steps of every frame: those before the first random one, and the random ones
// with the scaling of their crop. Without a filter or a transform, both are empty.
func (i *Images) Steps() (fixed, random []ImageStep) {
	all := slices.Clone(i.Transform)
	if len(all) == 0 && i.ImageFilter != "" {
		all = []ImageStep{{Resize: i.ImageSize, Fit: i.ImageResize}}
		if i.ImageResize == SmallestSide {
			all = []ImageStep{{SmallestSide: i.ImageSize[0]}}
		}
	}
	for k := range all {
		if all[k].isScale() {
			all[k].Filter = cmp.Or(all[k].Filter, i.ImageFilter, resize.CV2Area)
		}
	}
	n := slices.IndexFunc(all, func(s ImageStep) bool { return s.IsRandom() })
	if n < 0 {
		n = len(all)
	}
	return all[:n:n], all[n:]
}

// Evaluation returns the options without random changes: a random crop becomes a center crop.
func (i Images) Evaluation() Images {
	var steps []ImageStep
	for _, s := range i.Transform {
		if s.RandomCrop != nil {
			s.CenterCrop, s.RandomCrop = s.RandomCrop, nil
		}
		if !s.IsRandom() {
			steps = append(steps, s)
		}
	}
	i.Transform = steps
	return i
}

// DependsOnSize reports whether the size of delivered frames depends on the size of recorded ones.
func (i *Images) DependsOnSize() bool {
	fixed, random := i.Steps()
	depends := len(i.ImageSize) != 2
	isSquare := false
	for _, s := range slices.Concat(fixed, random) {
		switch {
		case s.Letterbox:
			isSquare = true
		case s.SmallestSide != 0 && isSquare, s.Resize != nil:
			depends = false
		case s.SmallestSide != 0:
			depends = true
		case len(s.CenterCrop)+len(s.RandomCrop) == 2:
			depends = false
		}
	}
	return depends
}
