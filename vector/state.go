package vector

// State describes a compiled part, so that its numbers can be computed and restored elsewhere.
type State struct {
	Name     string     `json:"name"`
	Columns  int        `json:"columns"` // number of columns as stored
	Values   int        `json:"values"`  // numbers before normalization
	Width    int        `json:"width"`   // numbers after it
	Relative Relative   `json:"relative,omitempty"`
	Key      string     `json:"key,omitempty"`       // of the reference
	From     []int      `json:"reference,omitempty"` // column of the reference per column
	Minus    []bool     `json:"minus,omitempty"`     // columns minus the reference's
	Rotation *Rotation  `json:"rotation,omitempty"`
	Input    bool       `json:"round_input,omitempty"`
	Round    bool       `json:"round_values,omitempty"`
	Norm     *NormState `json:"norm,omitempty"`
}

// NormState describes a compiled norm. Its matrices have one row, or one per step.
type NormState struct {
	Mode      string      `json:"mode"`
	Clip      bool        `json:"clip,omitempty"`
	Round     bool        `json:"round,omitempty"` // every operation rounds to float32
	Mixed     bool        `json:"mixed,omitempty"` // the quotient and what follows round to float32
	Threshold float64     `json:"threshold,omitempty"`
	How       [][]string  `json:"how,omitempty"`
	A         [][]float64 `json:"a,omitempty"`
	B         [][]float64 `json:"b,omitempty"`
}

// formulaNames are the names of formulas in a NormState.
var formulaNames = [...]string{"centred", "scaled", "affine", "shifted", "kept", "constant"}

// State returns the description of the part.
func (p *Part) State() State {
	s := State{
		Name: p.Spec.Label(), Columns: len(p.columns), Values: p.width, Width: p.Width(),
		Relative: p.Spec.Relative, Key: p.Spec.ReferenceKey(), From: p.reference,
		Rotation: p.Spec.Rotation, Input: p.input, Round: p.round,
	}
	if p.Spec.Relative == Difference {
		s.Minus = p.subtracts
	}
	if p.norm == nil {
		return s
	}
	f := p.norm
	s.Norm = &NormState{
		Mode:      p.Spec.Norm.Mode,
		Clip:      f.clip,
		Round:     f.round,
		Mixed:     f.mixed,
		Threshold: f.threshold,
	}
	for _, row := range f.steps {
		var how []string
		var a, b []float64
		for _, n := range row {
			how, a, b = append(how, formulaNames[n.how]), append(a, n.a), append(b, n.b)
		}
		s.Norm.How, s.Norm.A, s.Norm.B = append(s.Norm.How, how), append(s.Norm.A, a),
			append(s.Norm.B, b)
	}
	return s
}
