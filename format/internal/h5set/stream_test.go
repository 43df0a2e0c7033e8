package h5set

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
)

// TestMatches compares a data set with the stream of the first episode, including the type of a
// compound's field, and one text per row.
func TestMatches(t *testing.T) {
	number := func(d robocache.DType) *h5.Type {
		return &h5.Type{Class: h5.Float, Size: 4, DType: d}
	}
	compound := func(d robocache.DType, shape ...int64) *h5.Dataset {
		return &h5.Dataset{
			Shape: shape,
			Type: &h5.Type{
				Class:  h5.Compound,
				Size:   4,
				Fields: []h5.Member{{Name: "x", Type: number(d)}},
			},
		}
	}
	field := Stream{field: "x", len: 4, How: Numbers}
	field.DType, field.Shape = robocache.Float32, []int{1}
	text := &h5.Type{Class: h5.Text, Size: 3}
	words := Stream{How: Words}
	words.DType, words.Shape = robocache.String, []int{1}
	for name, c := range map[string]struct {
		s    *Stream
		d    *h5.Dataset
		same bool
	}{
		"field":            {&field, compound(robocache.Float32, 5), true},
		"field of a type":  {&field, compound(robocache.Int32, 5), false},
		"several elements": {&field, compound(robocache.Float32, 5, 2), false},
		"text":             {&words, &h5.Dataset{Shape: []int64{5}, Type: text}, true},
		"several texts":    {&words, &h5.Dataset{Shape: []int64{5, 2}, Type: text}, false},
	} {
		if err := c.s.matchDataset(c.d); (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}
