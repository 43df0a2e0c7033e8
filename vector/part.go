package vector

import (
	"fmt"
	"slices"
)

// Part computes the numbers of a PartSpec. It is immutable. Safe for concurrent use.
type Part struct {
	Spec      PartSpec
	columns   []int // of the stream's row
	reference []int // of the reference's row, per column; nil: absolute
	changes   []bool
	subtracts []bool    // whether a column is minus the reference's
	hold      []float64 // the values of no change, per value
	moves     []bool    // whether a value is a change, per value
	width     int       // of the values
	round     bool      // the values are float32
	input     bool      // the stored numbers are rounded to float32
	norm      *norm
}

// Compile returns the computation of a part. elements and referenceElements are the widths of the
// rows of its streams. steps is the number of rows of the vector. A norm without numbers is left
// out; SetNorm sets it.
func (s PartSpec) Compile(elements, referenceElements, steps int) (*Part, error) {
	p := &Part{Spec: s}
	if err := p.setColumns(elements); err != nil {
		return nil, err
	}
	if err := p.setRelative(referenceElements); err != nil {
		return nil, err
	}
	if err := p.setRotation(); err != nil {
		return nil, err
	}
	switch s.Precision {
	case "", Float64:
	case Float32, Mixed:
		p.input, p.round = true, s.Precision == Float32
	default:
		return nil, s.optionError(
			"precision",
			`"float64", "float32" or "mixed"`,
			string(s.Precision),
		)
	}
	switch s.Beyond {
	case "", Repeat, Zero, Neutral:
	default:
		return nil, s.optionError("beyond", `"repeat", "zero" or "neutral"`, string(s.Beyond))
	}
	if s.Norm == nil {
		return p, nil
	}
	if err := s.checkNorm(); err != nil {
		return nil, err
	}
	if !s.Norm.HasNumbers() {
		return p, nil
	}
	return p, p.SetNorm(*s.Norm, steps)
}

// setColumns sets the columns of the stream.
func (p *Part) setColumns(elements int) error {
	s := &p.Spec
	stop := elements
	if s.Stop != nil {
		stop = *s.Stop
	}
	if s.Columns != nil {
		p.columns = s.Columns
	} else {
		for c := s.Start; c < stop && len(p.columns) < elements; c++ {
			p.columns = append(p.columns, c)
		}
	}
	if len(p.columns) == 0 || stop > elements ||
		slices.Min(p.columns) < 0 || slices.Max(p.columns) >= elements {
		got := fmt.Sprintf("%d to %d", s.Start, stop)
		if s.Columns != nil {
			got = fmt.Sprint(s.Columns)
		}
		return s.optionError(
			"columns",
			fmt.Sprintf("columns of a row of %d numbers", elements),
			got,
		)
	}
	p.width = len(p.columns)
	p.changes, p.subtracts = make([]bool, p.width), make([]bool, p.width)
	for c := range p.changes {
		isChange := s.AllRelative || slices.Contains(s.IsRelative, c)
		p.changes[c] = isChange && !slices.Contains(s.Absolute, c)
	}
	named := slices.Concat(s.Absolute, s.IsRelative)
	if len(named) > 0 && (slices.Min(named) < 0 || slices.Max(named) >= p.width) {
		return s.optionError("absolute and is_relative",
			fmt.Sprintf("columns 0 to %d of the part", p.width-1), fmt.Sprint(named))
	}
	return nil
}

// setRelative sets the columns of the reference, and which columns are changes.
func (p *Part) setRelative(elements int) error {
	s := &p.Spec
	switch s.Relative {
	case Absolute:
		return nil
	case Difference:
		for c := range p.changes {
			p.changes[c] = p.changes[c] || !slices.Contains(s.Absolute, c)
		}
	case Pose:
		if s.Rotation == nil || s.Rotation.At < 3 {
			return s.optionError("relative",
				`a rotation behind the three numbers of a position for "pose"`,
				fmt.Sprintf("%+v", s.Rotation))
		}
	default:
		return s.optionError("relative", `"difference" or "pose"`, string(s.Relative))
	}
	p.reference = p.columns
	if s.Reference != nil {
		p.reference = make([]int, p.width)
		for c := range p.reference {
			p.reference[c] = s.Reference.Start + c
		}
	}
	for c, column := range p.reference {
		p.subtracts[c] = s.Relative == Difference && p.readsReference(c)
		if p.readsReference(c) && (column < 0 || column >= elements) {
			return s.optionError(
				"reference",
				fmt.Sprintf("columns of a row of %d numbers", elements),
				fmt.Sprint(p.reference),
			)
		}
	}
	return nil
}

// readsReference reports whether a column is relative to the reference.
func (p *Part) readsReference(c int) bool {
	if p.Spec.Relative == Pose {
		at := p.Spec.Rotation.At
		return c >= at-3 && c < at+FormWidth(p.Spec.Rotation.From)
	}
	return p.Spec.Relative == Difference && p.changes[c] && !p.Spec.AllRelative &&
		!slices.Contains(p.Spec.IsRelative, c)
}

// setRotation sets the width of the values, and the values of no change.
func (p *Part) setRotation() error {
	s, r := &p.Spec, p.Spec.Rotation
	p.hold, p.moves = make([]float64, p.width), p.changes
	if r == nil {
		return nil
	}
	from, to := FormWidth(r.From), FormWidth(r.To)
	switch {
	case from == 0 || to == 0:
		return s.optionError(
			"rotation",
			`two of "quat", "quat_wxyz", "rotvec", "matrix", "rot6d", `+
				`"rot6d_columns" and Euler angles such as "xyz"`,
			r.From+", "+r.To,
		)
	case r.At < 0 || r.At > len(p.columns)-from:
		return s.optionError("rotation", fmt.Sprintf("%d columns from %d", from, r.At),
			fmt.Sprintf("%d columns", len(p.columns)))
	case s.Relative == Difference && slices.Contains(p.changes[r.At:r.At+from], true):
		return s.optionError("relative", `"pose", or "absolute" columns for the rotation`,
			"the difference of a rotation")
	}
	isChange := s.Relative == Pose || slices.Contains(p.changes[r.At:r.At+from], true)
	if s.Relative == Pose {
		for c := r.At - 3; c < r.At; c++ {
			p.changes[c] = true
		}
	}
	p.width += to - from
	p.hold = make([]float64, p.width)
	writeRotation(r.To, &identity, p.hold[r.At:r.At+to])
	p.moves = slices.Concat(p.changes[:r.At], slices.Repeat([]bool{isChange}, to),
		p.changes[r.At+from:])
	return nil
}

// ValueWidth returns the number of values of a row before normalization.
func (p *Part) ValueWidth() int { return p.width }

// Width returns the number of delivered numbers of a row.
func (p *Part) Width() int {
	if p.Spec.Norm != nil && p.Spec.Norm.Mode == "sin_cos" {
		return 2 * p.width
	}
	return p.width
}

// Pick returns the numbers of the part's columns, from numbers that repeat along the stream's row.
func (p *Part) Pick(of []float64) []float64 {
	out := make([]float64, len(p.columns))
	for i, c := range p.columns {
		out[i] = of[c%len(of)]
	}
	return out
}

// round32 returns the nearest float32.
func round32(x float64) float64 { return float64(float32(x)) }

// Values writes the values of one row to dst, before normalization (vector.C2). reference is nil
// for an absolute part. dst has ValueWidth numbers.
func (p *Part) Values(dst, row, reference []float64) {
	r := p.Spec.Rotation
	split, from, to := len(p.columns), 0, 0
	if r != nil {
		split, from, to = r.At, FormWidth(r.From), FormWidth(r.To)
	}
	for c, column := range p.columns {
		x := p.readNumber(row[column])
		if p.subtracts[c] {
			x -= p.readNumber(reference[p.reference[c]])
		}
		switch {
		case c < split:
			dst[c] = x
		case c >= split+from:
			dst[c-from+to] = x
		}
	}
	if r != nil {
		p.turnValues(dst, row, reference)
	}
	if p.round {
		for i, x := range dst[:p.width] {
			dst[i] = round32(x)
		}
	}
}

// readNumber returns a number as the part reads it.
func (p *Part) readNumber(x float64) float64 {
	if p.input {
		return round32(x)
	}
	return x
}

// turnValues writes the rotation, and for Pose the position in the frame of the reference.
func (p *Part) turnValues(dst, row, reference []float64) {
	r := p.Spec.Rotation
	read := func(row []float64, columns []int) matrix {
		var v [9]float64
		n := FormWidth(r.From)
		for i, c := range columns[r.At : r.At+n] {
			v[i] = p.readNumber(row[c])
		}
		return readRotation(r.From, v[:n])
	}
	m := read(row, p.columns)
	if p.Spec.Relative == Pose {
		inverse := read(reference, p.reference)
		inverse = inverse.transposed()
		m = inverse.compose(&m)
		position := [3]float64(dst[r.At-3 : r.At])
		for i := range position {
			position[i] -= p.readNumber(reference[p.reference[r.At-3+i]])
		}
		position = inverse.apply(position)
		copy(dst[r.At-3:], position[:])
	}
	writeRotation(r.To, &m, dst[r.At:r.At+FormWidth(r.To)])
}

// Write writes the delivered numbers of one row. outside reports whether the row lies outside the
// episode; row is then the nearest one inside. scratch and dst must have 2·ValueWidth numbers.
func (p *Part) Write(dst, row, reference []float64, step int, outside bool, scratch []float64) {
	p.Values(scratch, row, reference)
	beyond := p.Spec.Beyond
	isPadded := outside && (beyond == Zero || beyond == Neutral)
	replaces := func(i int) bool { return isPadded && (beyond == Zero || p.moves[i]) }
	if isPadded && !p.Spec.PadNormalized {
		for i := range p.width {
			if replaces(i) {
				scratch[i] = 0
				if beyond == Neutral {
					scratch[i] = p.hold[i]
				}
			}
		}
	}
	p.Normalize(dst, scratch, step)
	if isPadded && p.Spec.PadNormalized {
		for i := range p.Width() {
			if replaces(i % p.width) {
				dst[i] = 0
			}
		}
	}
}
