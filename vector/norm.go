package vector

import (
	"fmt"
	"math"
	"slices"
)

// formula is how one column of a step is normalized.
type formula uint8

const (
	centred  formula = iota // (x - a) / b
	scaled                  // 2 (x - a) / b - 1
	affine                  // a·x + b
	shifted                 // x - a
	kept                    // x
	constant                // a; b is the stored value
)

// number is the normalization of one column of a step.
type number struct {
	how  formula
	a, b float64
}

// norm is a compiled NormSpec.
type norm struct {
	steps     [][]number // one, or one per step
	clip      bool
	round     bool // every operation rounds to float32
	mixed     bool // the quotient and what follows round to float32
	threshold float64
}

// modes lists the modes, and whether a mode has numbers.
var modes = map[string]bool{
	"mean_std": true, "min_max": true, "quantiles": true, "quantile10": true, "limits": true,
	"affine": true, "sin_cos": false, "binary": false,
}

// vectors returns the two matrices of the mode: what is subtracted or scales, and the other one.
func (n *NormSpec) vectors() (a, b Rows) {
	switch n.Mode {
	case "mean_std":
		return n.Mean, n.Std
	case "affine":
		return n.Scale, n.Offset
	}
	return n.Low, n.High
}

// HasNumbers reports whether the norm has the numbers of its mode, or its mode needs none.
func (n *NormSpec) HasNumbers() bool {
	a, b := n.vectors()
	return !modes[n.Mode] || a != nil || b != nil
}

// checkNorm rejects unknown words.
func (s *PartSpec) checkNorm() error {
	n := s.Norm
	if _, ok := modes[n.Mode]; !ok {
		return s.optionError("norm", `the mode "mean_std", "min_max", "quantiles", "quantile10", `+
			`"limits", "affine", "sin_cos" or "binary"`, n.Mode)
	}
	if !slices.Contains([]Precision{"", Float64, Float32, Mixed}, n.Precision) {
		return s.optionError(
			"norm precision",
			`"float64", "float32" or "mixed"`,
			string(n.Precision),
		)
	}
	choices := []string{"", "zero", "keep", "lowest", "shift", "formula"}
	if !slices.Contains(choices, n.Constant) {
		return s.optionError("norm constant", `"zero", "keep", "lowest", "shift" or "formula"`,
			n.Constant)
	}
	if n.IsClose && (n.Mode == "mean_std" || n.Mode == "affine") {
		return s.optionError("norm isclose", "a mode with low and high", n.Mode)
	}
	if !(n.Epsilon >= 0) || !(n.ConstantBelow >= 0) {
		return s.optionError("norm epsilon and constant_below", "numbers of at least 0",
			fmt.Sprint(n.Epsilon, ", ", n.ConstantBelow))
	}
	return nil
}

// SetNorm sets the normalization of the part. steps is the number of rows of the vector. SetNorm
// must be called before the part is used.
func (p *Part) SetNorm(n NormSpec, steps int) error {
	s := &p.Spec
	s.Norm = &n
	if err := s.checkNorm(); err != nil {
		return err
	}
	f := &norm{clip: n.Clip, round: n.Precision == Float32, threshold: 0.5}
	f.mixed = f.round || n.Precision == Mixed
	if n.Threshold != nil {
		f.threshold = *n.Threshold
	}
	p.norm = f
	if !modes[n.Mode] {
		return nil
	}
	a, b := n.vectors()
	if len(a) != len(b) || len(a) != 1 && len(a) != steps {
		return s.optionError("norm", fmt.Sprintf("two vectors, or two matrices of %d steps", steps),
			fmt.Sprintf("%d and %d", len(a), len(b)))
	}
	for i := range a {
		if len(a[i]) != p.width || len(b[i]) != p.width {
			return s.optionError("norm", fmt.Sprintf("%d numbers, twice", p.width),
				fmt.Sprintf("%d and %d", len(a[i]), len(b[i])))
		}
		row := make([]number, p.width)
		for c := range row {
			if x := a[i][c] + b[i][c]; math.IsNaN(x) || math.IsInf(x, 0) {
				return s.optionError("norm", "finite numbers", fmt.Sprint(a[i][c], ", ", b[i][c]))
			}
			row[c] = n.compileColumn(a[i][c], b[i][c], slices.Contains(n.ConstantColumns, c), f)
			if row[c].how <= scaled && row[c].b == 0 {
				return s.optionError(
					"norm constant",
					`"zero" or another value, or an epsilon: column `+
						fmt.Sprint(c)+" is constant",
					"formula",
				)
			}
		}
		f.steps = append(f.steps, row)
	}
	return nil
}

// compileColumn returns the normalization of a column from its two numbers.
func (n *NormSpec) compileColumn(a, b float64, isConstant bool, f *norm) number {
	if n.Mode == "affine" {
		return number{affine, f.roundStep(a), f.roundStep(b)}
	}
	isClose := n.IsClose && math.Abs(b-a) <= 1e-8+float64(1e-5*math.Abs(a))
	low, span := f.roundStep(a), b
	if n.Mode != "mean_std" {
		span -= a
	}
	size := f.roundStep(span)
	isConstant = isConstant || isClose || size == 0 || size < n.ConstantBelow
	rule := n.Constant
	if rule == "" {
		rule = "zero"
		if n.Epsilon > 0 {
			rule = "formula"
		}
	}
	switch {
	case !isConstant || rule == "formula":
	case rule == "keep":
		return number{how: kept}
	case rule == "shift":
		return number{how: shifted, a: low}
	case rule == "lowest":
		return number{constant, -1, low}
	default:
		return number{how: constant, b: low}
	}
	switch span = f.roundStep(span + n.Epsilon); {
	case n.Mode == "mean_std":
		return number{centred, low, span}
	case n.Mode == "limits" && span != 0:
		scale := f.roundStep(2 / span)
		return number{affine, scale, f.roundStep(-1 - f.roundStep(scale*low))}
	}
	return number{scaled, low, span}
}

// roundStep rounds the result of an operation to float32 if all operations do.
func (f *norm) roundStep(x float64) float64 {
	if f.round {
		return round32(x)
	}
	return x
}

// roundRest rounds what follows the quotient to float32 if the precision is not float64.
func (f *norm) roundRest(x float64) float64 {
	if f.mixed {
		return round32(x)
	}
	return x
}

// Normalize writes the normalized values of a step. dst has Width numbers, values ValueWidth.
func (p *Part) Normalize(dst, values []float64, step int) {
	f := p.norm
	values = values[:p.width]
	if f == nil {
		copy(dst, values)
		return
	}
	switch p.Spec.Norm.Mode {
	case "sin_cos":
		for i, x := range values {
			dst[i], dst[p.width+i] = math.Sincos(x)
		}
		return
	case "binary":
		for i, x := range values {
			dst[i] = 0
			if x > f.threshold {
				dst[i] = 1
			}
		}
		return
	}
	row := f.steps[0]
	if len(f.steps) > 1 {
		row = f.steps[step]
	}
	for i, x := range values {
		y := f.applyNumber(&row[i], f.roundStep(x))
		if f.clip {
			y = min(max(y, -1), 1)
		}
		dst[i] = y
	}
}

// applyNumber returns the normalized value of one number.
func (f *norm) applyNumber(n *number, x float64) float64 {
	switch n.how {
	case centred:
		return f.roundRest(f.roundStep(x-n.a) / n.b)
	case scaled:
		return f.roundRest(float64(2*f.roundRest(f.roundStep(x-n.a)/n.b)) - 1)
	case affine:
		return f.roundRest(f.roundStep(x*n.a) + n.b)
	case shifted:
		return f.roundRest(x - n.a)
	case constant:
		return n.a
	}
	return x
}
