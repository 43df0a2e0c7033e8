package stats

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/vector"
)

// VectorWindows returns the description of the statistics of a vector: those of its values before
// normalization. Rows outside the episode that become zeros or no change are not counted.
func VectorWindows(ds robocache.Dataset, spec *vector.Spec) (*WindowVector, error) {
	v := &WindowVector{Rows: spec.Rows}
	for _, s := range spec.Parts {
		s.Norm = nil
		width := func(key string) int {
			if f := ds.Info().Feature(key); f != nil {
				return f.Elements()
			}
			return 0
		}
		f := ds.Info().Feature(s.Key)
		if f == nil || s.ReferenceKey() != "" && ds.Info().Feature(s.ReferenceKey()) == nil {
			return nil, robocache.Misuse("statistics", robocache.Where{"stream": s.Key},
				"the dataset has no stream of that key, or none of its reference %q",
				s.ReferenceKey())
		}
		part, err := s.Compile(width(s.Key), width(s.ReferenceKey()), len(spec.Offsets()))
		if err != nil {
			return nil, err
		}
		if s.Beyond != "" && s.Beyond != vector.Repeat {
			v.Beyond = BeyondOmit
		}
		p := WindowPart{
			Key: s.Key, Columns: partColumnsOf(&s, f.Elements()), Reference: s.ReferenceKey(),
			ReferenceRow: s.ReferenceRow,
			Round:        s.Precision == vector.Float32 || s.Precision == vector.Mixed,
			Double:       s.Precision != vector.Float32,
		}
		switch {
		case s.Rotation != nil:
			p.Columns, p.ReferenceColumns = nil, nil // Values selects from whole rows
			p.ReferenceColumns = slices.Collect(rangeTo(width(s.ReferenceKey())))
			p.Values, p.ValuesWidth = part.Values, part.ValueWidth()
		case p.Reference != "":
			p.ReferenceColumns = referenceColumnsOf(&s, p.Columns)
		}
		v.Parts = append(v.Parts, p)
	}
	return v, nil
}

// partColumnsOf returns the columns of a part in a row of n numbers.
func partColumnsOf(s *vector.PartSpec, n int) []int {
	if s.Columns != nil {
		return s.Columns
	}
	if s.Stop != nil {
		n = *s.Stop
	}
	return slices.Collect(rangeTo(n))[s.Start:]
}

// referenceColumnsOf returns the column that is subtracted from each column of a part, or −1.
func referenceColumnsOf(s *vector.PartSpec, columns []int) []int {
	out := slices.Clone(columns)
	for c := range out {
		if s.Reference != nil {
			out[c] = s.Reference.Start + c
		}
		if s.AllRelative || slices.Contains(s.Absolute, c) || slices.Contains(s.IsRelative, c) {
			out[c] = -1
		}
	}
	return out
}

// rangeTo yields 0 to n−1.
func rangeTo(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for k := 0; k < n && yield(k); k++ {
		}
	}
}
