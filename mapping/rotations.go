package mapping

import (
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// joinedRotations returns the rotations of a joined and sliced row: those of its parts, at their
// positions in the row.
func (d *mappedDataset) joinedRotations(m *robocache.StreamMapping) (out []robocache.Rotation) {
	from, to := 0, int(^uint(0)>>1)
	if m.Slice != nil {
		from, to = m.Slice[0], m.Slice[1]
	}
	at := 0
	for _, key := range m.From {
		f := d.base.Info().Feature(key)
		own := f.Rotations
		if own == nil && f.Interpolation == "slerp" {
			own = robocache.RepeatRotation(robocache.FormQuat, f.Elements())
		}
		for _, r := range own {
			if r.At += at; r.At >= from && r.At+r.Width() <= to {
				r.At -= from
				out = append(out, r)
			}
		}
		at += f.Elements()
	}
	return out
}

// joinedMode returns the interpolation mode of a joined row. If some part uses nearest, previous or
// next, its mode is used. If all parts have the same mode, that mode is used. If rotations are
// mixed with linear parts, the mode is slerp.
func joinedMode(f *robocache.Feature, base *robocache.Info, from []string) string {
	first := base.Feature(from[0]).Interpolation
	same, plain := true, true
	for _, key := range from {
		switch mode := base.Feature(key).Interpolation; mode {
		case "nearest", "previous", "next":
			return mode
		case "", "linear", "slerp":
			same = same && mode == first
		default:
			same, plain = same && mode == first, false
		}
	}
	switch {
	case plain && len(f.Rotations) > 0:
		return "slerp"
	case plain && (!same || first == "slerp"):
		return ""
	}
	return first
}

// applyRotations applies the rotations and the interpolation mode of a mapping to a stream.
func applyRotations(f *robocache.Feature, m *robocache.StreamMapping) error {
	bad := func(msg, want, got string) error {
		return robocache.Misuse("map", nil, "%s", msg).Expected(want, got)
	}
	mode := m.Interpolation
	if form := (robocache.Rotation{Form: mode}); form.Width() > 0 {
		if m.Rotations != nil {
			return bad("interpolation: "+mode, "slerp or no mode if rotations are given", mode)
		}
		f.Rotations = robocache.RepeatRotation(mode, f.Elements())
		if f.Rotations == nil {
			return bad(
				"interpolation: "+mode,
				fmt.Sprintf(
					"a multiple of %d channels, or rotations: with the channels",
					form.Width(),
				),
				fmt.Sprint(f.Elements()),
			)
		}
		mode = "slerp"
	}
	if m.Rotations != nil {
		f.Rotations = m.Rotations
		if mode == "" {
			mode = "slerp"
		}
	}
	if mode != "" {
		f.Interpolation = mode
	}
	if m.Rotations == nil && m.Interpolation == "" {
		return nil
	}
	if f.Rotations != nil && (f.Kind != robocache.KindNumeric || !f.DType.Float() || f.Ragged()) {
		return bad(
			"rotations",
			"numeric rows of one length of floating-point numbers",
			string(f.Kind)+" "+f.DType.String(),
		)
	}
	return robocache.CheckRotations(f.Rotations, f.Elements())
}

// rotationLine writes rotations in the syntax of a mapping.
func rotationLine(line func(format string, args ...any), list []robocache.Rotation) {
	if len(list) > 0 {
		texts := make([]string, len(list))
		for i, r := range list {
			texts[i] = fmt.Sprintf("{at: %d, form: %s}", r.At, r.Form)
		}
		line("    rotations: [%s]", strings.Join(texts, ", "))
	}
}
