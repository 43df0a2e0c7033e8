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

// mergeSources joins the sources. Episodes follow each other source by source, features are matched
// by key, and tasks by text.
func (e *editor) mergeSources(ctx context.Context, v *Verb) error {
	if v.Keys != "" && !slices.Contains([]string{"strict", "intersection", "union"}, v.Keys) {
		return misuse(nil, "merge: keys "+v.Keys, "strict, intersection or union")
	}
	if v.HZ != "" {
		hz, err := robocache.RateOf(v.HZ)
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
		e.plan.Verbs, e.plan.Cut = old.Verbs, old.Cut
		for i := range e.plan.Sources {
			e.plan.Sources[i].Fingerprint, e.plan.Sources[i].HZ = old.Sources[i].Fingerprint, hz
		}
	}
	p := e.plan
	for i := range e.srcs {
		for j := range i {
			if p.Sources[i].Fingerprint == p.Sources[j].Fingerprint {
				return misuse(
					robocache.Where{"dataset": p.Sources[i].URI},
					"merge: the same dataset twice, as "+p.Sources[j].URI,
					"name each once",
				)
			}
		}
		if a, b := e.srcs[0].Info(), e.srcs[i].Info(); a.FPS != b.FPS {
			return misuse(
				robocache.Where{"dataset": b.URI},
				fmt.Sprintf("merge: %s rows a second, those of %s have %s", b.FPS, a.URI, a.FPS),
				robocache.Option("hz")+" brings all to one rate",
			)
		} else if a.Robot != b.Robot {
			p.Notes = append(
				p.Notes,
				fmt.Sprintf("robot types differ: %q and %q", a.Robot, b.Robot),
			)
		}
	}
	var order []string
	for _, ds := range e.srcs {
		for _, f := range ds.Info().Features {
			if !f.Default && !slices.Contains(order, f.Key) {
				order = append(order, f.Key)
			}
		}
	}
	p.Keys = nil
	for _, key := range order {
		if k, err := e.commonKey(v, key); err != nil {
			return err
		} else if k != nil {
			p.Keys = append(p.Keys, *k)
		}
	}
	if len(p.Keys) == 0 {
		return misuse(
			nil,
			"merge: the datasets have no feature in common",
			"rename them first, or keys union",
		)
	}
	// If a source has its own mask for a stream, the mask of the result also marks the sources that
	// lack the stream.
	for i := range p.Keys {
		k := &p.Keys[i]
		base, mask := strings.CutSuffix(k.Key, robocache.ValidSuffix)
		k.Ones = mask && slices.Contains(order, base) ||
			slices.Contains(order, k.Key+robocache.ValidSuffix)
	}
	return nil
}

// squeezedShape returns the shape of a row without axes of length 1.
func squeezedShape(f *robocache.Feature) []int {
	return slices.DeleteFunc(slices.Clone(f.Shape), func(n int) bool { return n == 1 })
}

// commonKey returns a key of the result, or nil if the key is left out.
func (e *editor) commonKey(v *Verb, key string) (*Key, error) {
	k := &Key{Key: key, Order: make([][]int, len(e.srcs))}
	var first *robocache.Feature
	var lacks []string
	reordered := false
	for i, ds := range e.srcs {
		f := ds.Info().Feature(key)
		if f == nil {
			k.From = append(k.From, "")
			lacks = append(lacks, ds.Info().URI)
			continue
		}
		k.From = append(k.From, key)
		if first == nil {
			first = f
			continue
		}
		where := robocache.Where{"dataset": ds.Info().URI, "stream": key}
		camera := f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage
		switch {
		case f.Kind != first.Kind, f.DType != first.DType && !camera:
			return nil, misuse(
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
		case camera && (f.Width != first.Width || f.Height != first.Height ||
			(f.Depth == nil) != (first.Depth == nil)):
			return nil, misuse(
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
			return nil, misuse(where, "merge: the depth is coded otherwise", "convert one of them")
		case !camera && !slices.Equal(squeezedShape(f), squeezedShape(first)):
			return nil, misuse(
				where,
				fmt.Sprintf("merge: rows of shape %v, elsewhere %v", f.Shape, first.Shape),
				"remove or rename the feature in one of them",
			)
		}
		a, b := first.ChannelNames(), f.ChannelNames()
		if camera || a == nil || b == nil || slices.Equal(a, b) {
			continue
		}
		for _, name := range a {
			at := slices.Index(b, name)
			if slices.Contains(k.Order[i], at) {
				at = -1 // two channels have the same name
			}
			k.Order[i] = append(k.Order[i], at)
		}
		if slices.Contains(k.Order[i], -1) {
			return nil, misuse(
				where,
				fmt.Sprintf("merge: its channels are %v, elsewhere %v", b, a),
				"rename the feature in one of them",
			)
		}
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
		k.Order = nil
	}
	if len(lacks) == 0 {
		return k, nil
	}
	where := robocache.Where{"dataset": lacks[0], "stream": key}
	switch v.Keys {
	case "intersection":
		e.plan.Notes = append(
			e.plan.Notes,
			key+" is left out: "+strings.Join(lacks, ", ")+" lacks it",
		)
		return nil, nil
	case "union":
		if (first.Kind == robocache.KindVideo || first.Kind == robocache.KindImage) && !v.Black {
			return nil, misuse(where, "merge: the dataset does not have the camera",
				robocache.Option("black", true)+
					" gives it black frames; keys intersection leaves the camera out")
		}
		e.plan.Notes = append(e.plan.Notes, key+" is not in "+strings.Join(lacks, ", ")+
			": its rows are zeros there, and "+key+robocache.ValidSuffix+" is false")
		return k, nil
	}
	return nil, misuse(
		where,
		"merge: the dataset does not have the feature",
		"keys intersection leaves it out, keys union fills it up",
	)
}
