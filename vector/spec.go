package vector

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Spec describes one vector of a sample: the numbers of its parts, one after the other.
type Spec struct {
	Parts []PartSpec `json:"parts"`
	// Rows lists the offsets from the sample, in rows. nil selects the sample's own row, and the
	// vector has no axis of rows.
	Rows []int `json:"rows,omitempty"`
	// Length is the number of rows after padding with zeros; 0: len(Rows).
	Length int `json:"length,omitempty"`
	// Width is the number of numbers of a row after padding with zeros; 0: those of the parts.
	Width int `json:"width,omitempty"`
	// Mask is the key of a bool mask (Length, Width) that is true where a number of a part is.
	Mask string `json:"mask,omitempty"`
	// Separate delivers one key per part, "<key>.<part name>".
	Separate bool `json:"separate,omitempty"`
	// Dropout is the probability that a sample's vector is zeros.
	Dropout float64 `json:"dropout,omitempty"`
	// DType is "float32" (default) or "float64".
	DType string `json:"dtype,omitempty"`
}

// Beyond selects the values of rows outside the episode.
type Beyond string

const (
	Repeat  Beyond = "repeat"  // those of the first or last row; default
	Zero    Beyond = "zero"    // zeros
	Neutral Beyond = "neutral" // no change for relative columns, the nearest row for others
)

// Relative selects what the values of a part are relative to the reference row.
type Relative string

const (
	Absolute   Relative = ""           // values as stored; default
	Difference Relative = "difference" // minus the reference
	Pose       Relative = "pose"       // T0⁻¹T of a position and a rotation
)

// Precision selects how the numbers of a computation are rounded (vector.C3).
type Precision string

const (
	Float64 Precision = "float64" // default
	Float32 Precision = "float32"
	Mixed   Precision = "mixed"
)

// Reference locates the row that a part is relative to.
type Reference struct {
	Key   string `json:"key"`
	Start int    `json:"start,omitempty"` // its column for the first column of the part
}

// PartSpec describes the numbers that a vector takes of one stream.
type PartSpec struct {
	Key  string `json:"key"`            // of the stream
	Name string `json:"name,omitempty"` // for Separate and statistics; default: Key
	// Start and Stop bound the columns, Stop excluded. A Stop of nil is the end of the row.
	Start   int    `json:"start,omitempty"`
	Stop    *int   `json:"stop,omitempty"`
	Columns []int  `json:"columns,omitempty"` // the columns in their order, in place of a range
	Beyond  Beyond `json:"beyond,omitempty"`
	// PadNormalized makes the zeros of Beyond zeros after normalization.
	PadNormalized bool     `json:"pad_normalized,omitempty"`
	Relative      Relative `json:"relative,omitempty"`
	// Reference is nil for the same columns of the same stream.
	Reference    *Reference `json:"reference,omitempty"`
	ReferenceRow int        `json:"reference_row,omitempty"` // offset from the sample, in rows
	Absolute     []int      `json:"absolute,omitempty"`      // columns of the part that stay absolute
	// IsRelative lists the columns of the part that are stored as changes. AllRelative lists all.
	IsRelative  []int     `json:"is_relative,omitempty"`
	AllRelative bool      `json:"all_relative,omitempty"`
	Rotation    *Rotation `json:"rotation,omitempty"`
	Precision   Precision `json:"precision,omitempty"`
	Norm        *NormSpec `json:"norm,omitempty"`
}

// Rotation converts a rotation of the part from one form to another.
type Rotation struct {
	From string `json:"from"`
	To   string `json:"to"`
	At   int    `json:"at"` // its first column in the part
}

// NormSpec describes the normalization of a part.
type NormSpec struct {
	// Mode is "mean_std", "min_max", "quantiles", "quantile10", "limits", "affine", "sin_cos" or
	// "binary".
	Mode string `json:"mode"`
	// Low and High have one row of numbers, or one per step. They are min and max, or quantiles.
	Low  Rows `json:"low,omitempty"`
	High Rows `json:"high,omitempty"`
	// Mean and Std are for mean_std, Scale and Offset for affine: x·scale + offset.
	Mean    Rows    `json:"mean,omitempty"`
	Std     Rows    `json:"std,omitempty"`
	Scale   Rows    `json:"scale,omitempty"`
	Offset  Rows    `json:"offset,omitempty"`
	Epsilon float64 `json:"epsilon,omitempty"` // added to std or high - low
	Clip    bool    `json:"clip,omitempty"`    // to [-1, 1]
	// Constant is the result of a constant column: "zero" (0; default without Epsilon), "keep" (the
	// value), "lowest" (-1), "shift" (the value minus low or mean), or "formula" (default with
	// Epsilon).
	Constant string `json:"constant,omitempty"`
	// A column is constant if std or high - low is 0 or less than ConstantBelow.
	ConstantBelow   float64 `json:"constant_below,omitempty"`
	ConstantColumns []int   `json:"constant_columns,omitempty"` // constant whatever their numbers
	// IsClose also makes columns constant for which |high - low| ≤ 1e-8 + 1e-5·|low|.
	IsClose   bool      `json:"isclose,omitempty"`
	PerStep   bool      `json:"per_step,omitempty"`  // statistics per row of the vector
	Threshold *float64  `json:"threshold,omitempty"` // binary: 1 above it, else 0; default 0.5
	Precision Precision `json:"precision,omitempty"`
}

// Rows is a matrix. JSON may have one flat list for a matrix of one row.
type Rows [][]float64

// UnmarshalJSON reads a list of numbers or a list of lists of numbers.
func (r *Rows) UnmarshalJSON(b []byte) error {
	var flat []float64
	if json.Unmarshal(b, &flat) == nil && flat != nil {
		*r = Rows{flat}
		return nil
	}
	return json.Unmarshal(b, (*[][]float64)(r))
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Rows) MarshalJSON() ([]byte, error) {
	if len(r) == 1 {
		return json.Marshal(r[0])
	}
	return json.Marshal([][]float64(r))
}

// UnmarshalJSON reads a mode, or the object.
func (n *NormSpec) UnmarshalJSON(b []byte) error {
	*n = NormSpec{}
	if json.Unmarshal(b, &n.Mode) == nil {
		return nil
	}
	type plain NormSpec
	return decodeStrict(b, (*plain)(n))
}

// ParseSpec reads the JSON of a Spec. An unknown name is an error.
func ParseSpec(b []byte) (s Spec, err error) { return s, decodeStrict(b, &s) }

func decodeStrict(b []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(to)
}

// Label returns the name of a part, or its key.
func (s *PartSpec) Label() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Key
}

// ReferenceKey returns the key of the stream that the part is relative to, or "".
func (s *PartSpec) ReferenceKey() string {
	switch {
	case s.Relative == Absolute:
		return ""
	case s.Reference == nil:
		return s.Key
	}
	return s.Reference.Key
}

// Needs returns the keys of the streams that the vector reads, each once.
func (s *Spec) Needs() (keys []string) {
	for i := range s.Parts {
		for _, k := range []string{s.Parts[i].Key, s.Parts[i].ReferenceKey()} {
			if k != "" && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Offsets returns Rows, or the offset of the sample's own row.
func (s *Spec) Offsets() []int {
	if s.Rows == nil {
		return []int{0}
	}
	return s.Rows
}

// optionError returns the error of an option of a part.
func (s *PartSpec) optionError(option, want, got string) error {
	return robocache.Misuse("vector", robocache.Where{"stream": s.Key, "part": s.Label()}, "%s",
		option).Expected(want, got)
}
