package edit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// resampleSource returns a view of a source at the rate hz.
func resampleSource(
	ctx context.Context,
	ds robocache.Dataset,
	hz robocache.Rate,
) (robocache.Dataset, error) {
	if err := robocache.CheckGrid(ctx, ds, hz); err != nil {
		return nil, err
	}
	view, err := align.View(
		ctx,
		ds,
		align.Config{HZ: hz},
		align.ViewOptions{Rhythm: true, Own: true},
	)
	if err != nil {
		return nil, err
	}
	return view, nil
}

// mergeSources plans the merged sources. The episodes of each source follow those of the previous
// one. Features are matched by key, and tasks by text.
func (e *editor) mergeSources(ctx context.Context, v *Verb) error {
	if v.Keys != "" && !slices.Contains([]string{"strict", "intersection", "union"}, v.Keys) {
		return misuse(nil, "merge: keys "+v.Keys, "strict, intersection or union")
	}
	if v.HZ != "" {
		if err := e.resampleSources(ctx, v.HZ); err != nil {
			return err
		}
	}
	if err := e.checkMergeable(); err != nil {
		return err
	}
	order := e.sourceKeys()
	if err := e.mergeKeys(v, order); err != nil {
		return err
	}
	// The result has the mask column of a stream if some source has it. Set Ones for both, so that
	// sources without the mask column get values in it.
	keys := e.plan.Keys
	for i := range keys {
		key := keys[i].Key
		base, isMask := strings.CutSuffix(key, robocache.ValidSuffix)
		masksStream := isMask && slices.Contains(order, base)
		hasMask := slices.Contains(order, key+robocache.ValidSuffix)
		keys[i].Ones = masksStream || hasMask
	}
	return nil
}

// resampleSources replaces the sources by views at one rate, and the plan by a plan of these views.
func (e *editor) resampleSources(ctx context.Context, rate string) error {
	hz, err := robocache.RateOf(rate)
	if err != nil {
		return misuse(nil, "merge: hz: "+err.Error(), "")
	}
	old := e.plan
	for i, ds := range e.srcs {
		grid, err := resampleSource(ctx, ds, hz)
		if err != nil {
			return err
		}
		e.srcs[i] = grid
	}
	if e.plan, err = newPlan(ctx, e.srcs); err != nil {
		return err
	}
	e.plan.Verbs = old.Verbs
	e.plan.Cut = old.Cut
	for i := range e.plan.Sources {
		e.plan.Sources[i].Fingerprint = old.Sources[i].Fingerprint
		e.plan.Sources[i].HZ = hz
	}
	return nil
}

// checkMergeable returns an error if two sources are the same dataset or have different rates. If
// the robot types differ, it adds a note to the plan.
func (e *editor) checkMergeable() error {
	p := e.plan
	first := e.srcs[0].Info()
	for i, ds := range e.srcs {
		for j := range i {
			if p.Sources[i].Fingerprint == p.Sources[j].Fingerprint {
				return misuse(
					robocache.Where{"dataset": p.Sources[i].URI},
					"merge: the same dataset twice, as "+p.Sources[j].URI,
					"name each once",
				)
			}
		}
		info := ds.Info()
		if info.FPS != first.FPS {
			return misuse(
				robocache.Where{"dataset": info.URI},
				fmt.Sprintf(
					"merge: %s rows per second, but %s has %s",
					info.FPS,
					first.URI,
					first.FPS,
				),
				robocache.Option("hz")+" brings all to one rate",
			)
		}
		if info.Robot != first.Robot {
			p.Notes = append(
				p.Notes,
				fmt.Sprintf("robot types differ: %q and %q", first.Robot, info.Robot),
			)
		}
	}
	return nil
}

// sourceKeys returns the keys of all sources in the order of their first use.
func (e *editor) sourceKeys() (order []string) {
	for _, ds := range e.srcs {
		for _, f := range ds.Info().Features {
			if !f.Default && !slices.Contains(order, f.Key) {
				order = append(order, f.Key)
			}
		}
	}
	return order
}

// mergeKeys sets the keys of the plan. order lists the keys of all sources.
func (e *editor) mergeKeys(v *Verb, order []string) error {
	e.plan.Keys = nil
	for _, key := range order {
		k, err := e.mergeKey(v, key)
		if err != nil {
			return err
		}
		if k != nil {
			e.plan.Keys = append(e.plan.Keys, *k)
		}
	}
	if len(e.plan.Keys) == 0 {
		return misuse(
			nil,
			"merge: the datasets have no feature in common",
			"rename them first, or keys union",
		)
	}
	return nil
}

// squeezedShape returns the shape of a row without axes of length 1.
func squeezedShape(f *robocache.Feature) []int {
	return slices.DeleteFunc(slices.Clone(f.Shape), func(n int) bool { return n == 1 })
}

// mergeKey returns the key of the result that is called key in the sources, or nil if the result
// leaves it out.
func (e *editor) mergeKey(v *Verb, key string) (*Key, error) {
	merged := &Key{Key: key, Order: make([][]int, len(e.srcs))}
	var first *robocache.Feature
	var lacks []string // URIs of the sources without the key
	reordered := false
	for i, ds := range e.srcs {
		f := ds.Info().Feature(key)
		if f == nil {
			merged.From = append(merged.From, "")
			lacks = append(lacks, ds.Info().URI)
			continue
		}
		merged.From = append(merged.From, key)
		if first == nil {
			first = f
			continue
		}
		where := robocache.Where{"dataset": ds.Info().URI, "stream": key}
		if err := checkCompatible(first, f, where); err != nil {
			return nil, err
		}
		order, err := channelOrder(first, f, where)
		if err != nil {
			return nil, err
		}
		if order == nil {
			continue
		}
		merged.Order[i] = order
		reordered = true
		e.plan.Notes = append(
			e.plan.Notes,
			fmt.Sprintf(
				"%s: the channels of %s are put in the order of the first dataset",
				key,
				ds.Info().URI,
			),
		)
	}
	if !reordered {
		merged.Order = nil
	}
	if len(lacks) == 0 {
		return merged, nil
	}
	keep, err := e.keepsPartialKey(v, first, lacks)
	if err != nil || !keep {
		return nil, err
	}
	return merged, nil
}

// isCamera reports whether a feature holds frames.
func isCamera(f *robocache.Feature) bool {
	return f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage
}

// checkCompatible returns an error if the values of f and first, features with the same key in two
// sources, cannot be in one feature. where is the location of f.
func checkCompatible(first, f *robocache.Feature, where robocache.Where) error {
	camera := isCamera(f)
	sameSize := f.Width == first.Width && f.Height == first.Height
	sameDepth := (f.Depth == nil) == (first.Depth == nil)
	switch {
	case f.Kind != first.Kind, f.DType != first.DType && !camera:
		return misuse(
			where,
			fmt.Sprintf(
				"merge: %s of %v, elsewhere %s of %v",
				f.Kind,
				f.DType,
				first.Kind,
				first.DType,
			),
			"remove or rename the feature in one of them",
		)
	case camera && (!sameSize || !sameDepth):
		return misuse(
			where,
			fmt.Sprintf(
				"merge: images of %d×%d, elsewhere of %d×%d",
				f.Width,
				f.Height,
				first.Width,
				first.Height,
			),
			robocache.Command("edit resize SRC %dx%d DST", first.Width, first.Height),
		)
	case camera && f.Depth != nil && *f.Depth != *first.Depth:
		return misuse(where, "merge: the depth is encoded differently", "convert one of them")
	case !camera && !slices.Equal(squeezedShape(f), squeezedShape(first)):
		return misuse(
			where,
			fmt.Sprintf("merge: rows of shape %v, elsewhere %v", f.Shape, first.Shape),
			"remove or rename the feature in one of them",
		)
	}
	return nil
}

// channelOrder returns the index in f of each channel of first, or nil if the order is the same or
// the channels have no names.
func channelOrder(first, f *robocache.Feature, where robocache.Where) (order []int, err error) {
	want := first.ChannelNames()
	have := f.ChannelNames()
	if isCamera(f) || want == nil || have == nil || slices.Equal(want, have) {
		return nil, nil
	}
	for _, name := range want {
		i := slices.Index(have, name)
		if slices.Contains(order, i) {
			i = -1 // two channels have the same name
		}
		order = append(order, i)
	}
	if slices.Contains(order, -1) {
		return nil, misuse(
			where,
			fmt.Sprintf("merge: its channels are %v, elsewhere %v", have, want),
			"rename the feature in one of them",
		)
	}
	return order, nil
}

// keepsPartialKey reports whether the result keeps the key of first, which some sources lack. It
// adds a note about the decision to the plan.
func (e *editor) keepsPartialKey(v *Verb, first *robocache.Feature, lacks []string) (bool, error) {
	key := first.Key
	where := robocache.Where{"dataset": lacks[0], "stream": key}
	switch v.Keys {
	case "intersection":
		e.plan.Notes = append(
			e.plan.Notes,
			key+" is left out: "+strings.Join(lacks, ", ")+" lacks it",
		)
		return false, nil
	case "union":
		if isCamera(first) && !v.Black {
			return false, misuse(where, "merge: the dataset does not have the camera",
				robocache.Option("black", true)+
					" fills in black frames; keys intersection leaves the camera out")
		}
		e.plan.Notes = append(e.plan.Notes, key+" is not in "+strings.Join(lacks, ", ")+
			": its rows are zeros there, and "+key+robocache.ValidSuffix+" is false")
		return true, nil
	}
	return false, misuse(
		where,
		"merge: the dataset does not have the feature",
		"keys intersection leaves it out, keys union fills it with zeros",
	)
}
