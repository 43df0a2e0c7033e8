//go:build cgo

package main

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// stream fills arr with the times and the values of one stream of an episode.
func (s *shared) stream(ctx context, arr *answer, episode int, key string, times, values bool) error {
	where := robocache.Where{"dataset": s.Info().URI, "episode": episode, "stream": key}
	f := s.Info().Feature(key)
	rows := s.Len(episode)
	if f != nil && f.Clock != "" && !times { // its own clock: its own number of rows
		n, err := robocache.RowsIn(ctx, s.Dataset, episode, f)
		if err != nil {
			return robocache.At(err, where)
		}
		rows = n
	}
	if times {
		t, err := s.Times(ctx, episode, key)
		if err != nil {
			return robocache.At(err, where)
		}
		if f != nil && f.Clock != "" {
			rows = len(t)
		}
		b, err := arr.add("times", robocache.Int64, []int{len(t)})
		if err != nil {
			return err
		}
		copy(int64s(b), t)
	}
	if !values && !times {
		if f == nil && key != "task" {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "stream", Where: where, Msg: "there is no such stream"}
		}
		b, err := arr.add("rows", robocache.Int64, []int{1})
		if err == nil {
			int64s(b)[0] = int64(rows)
		}
		return err
	}
	if !values {
		return nil
	}
	switch {
	case key == "task" && f == nil || f != nil && (f.Kind == robocache.KindText || f.Kind == robocache.KindEvent):
		v, err := s.Text(ctx, key, rowsOf(episode, rows))
		if err != nil {
			return robocache.At(err, where)
		}
		arr.text("values", textType(f), v)
		return nil
	case f == nil:
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "stream", Where: where, Msg: "there is no such stream"}
	case f.Ragged():
		return robocache.At(s.ragged(ctx, arr, f, rowsOf(episode, rows)), where)
	case f.Kind != robocache.KindNumeric:
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "stream", Where: where, Msg: "a stream of kind " + string(f.Kind) + " is read through a map", Hint: "use MapDataset(…, keys=[…])"}
	}
	b, err := arr.add("values", f.DType, append([]int{rows}, rowShape(f)...))
	if err != nil {
		return err
	}
	if err := s.Gather(ctx, key, rowsOf(episode, rows), b); err != nil {
		return robocache.At(err, where)
	}
	return nil
}

// encoded gives the images of an episode as they are stored, one after the other, and the bytes of each; −1 where a row has none.
func (s *shared) encoded(ctx context, arr *answer, episode int, key string) error {
	where := robocache.Where{"dataset": s.Info().URI, "episode": episode, "stream": key}
	f := s.Info().Feature(key)
	if f == nil || f.Kind != robocache.KindImage {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "stream", Where: where, Msg: "there is no such stream of images"}
	}
	rows := rowsOf(episode, s.Len(episode))
	refs := make([]robocache.FrameRef, len(rows))
	if err := s.Frames(ctx, key, rows, refs); err != nil {
		return robocache.At(err, where)
	}
	total := 0
	for i := range refs {
		if !refs[i].Missing && refs[i].Encoded == nil {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "stream", Where: where, Msg: "the images are not stored as files are"}
		}
		total += len(refs[i].Encoded)
	}
	b, err := arr.add("values", robocache.Uint8, []int{total})
	if err != nil {
		return err
	}
	lengths, err := arr.add("lengths", robocache.Int64, []int{len(refs)})
	if err != nil {
		return err
	}
	for i := range refs {
		int64s(lengths)[i] = int64(copy(b, refs[i].Encoded))
		if b = b[len(refs[i].Encoded):]; refs[i].Missing {
			int64s(lengths)[i] = -1
		}
	}
	return nil
}

// ragged gives rows of varying length: all entries, and how many each row has.
func (s *shared) ragged(ctx context, arr *answer, f *robocache.Feature, rows []robocache.Row) error {
	ds, ok := s.Dataset.(robocache.RaggedDataset)
	if !ok {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "stream", Msg: "this format gives no rows of varying length"}
	}
	data, counts, err := ds.GatherRagged(ctx, f.Key, rows)
	if err != nil {
		return err
	}
	size := f.Elements() * f.DType.Size()
	if len(counts) != len(rows) || size == 0 || len(data)%size != 0 {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "stream", Msg: "the dataset gave another number of entries than it says"}
	}
	b, err := arr.add("values", f.DType, append([]int{len(data) / size}, f.Shape[1:]...))
	if err != nil {
		return err
	}
	copy(b, data)
	if b, err = arr.add("lengths", robocache.Int64, []int{len(counts)}); err != nil {
		return err
	}
	for i, n := range counts {
		int64s(b)[i] = int64(n)
	}
	return nil
}

// rowsOf lists the first n rows of a stream of an episode.
func rowsOf(episode, n int) []robocache.Row {
	rows := make([]robocache.Row, n)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: i}
	}
	return rows
}

// rowShape is the shape of one row as it is delivered: a scalar column has none.
func rowShape(f *robocache.Feature) []int {
	if f.Scalar() {
		return nil
	}
	return slices.Clone(f.Shape)
}

// number is a float64 in JSON: NaN is null, and an infinity a number that every parser reads as one.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte("null"), nil
	case math.IsInf(f, 0):
		if f < 0 {
			return []byte("-1e999"), nil
		}
		return []byte("1e999"), nil
	default:
		return json.Marshal(f)
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
		*n = number(math.NaN())
		return nil
	case "1e999":
		*n = number(math.Inf(1))
		return nil
	case "-1e999":
		*n = number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

func floats(v []number) []float64 {
	if v == nil {
		return nil
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func numbers(v []float64) []number {
	out := make([]number, len(v))
	for i, x := range v {
		out[i] = number(x)
	}
	return out
}

func quantiles(m map[string][]float64) map[string][]number {
	out := make(map[string][]number, len(m))
	for k, v := range m {
		out[k] = numbers(v)
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// textType tells JSON values from plain text; f is nil for the pseudo-feature "task".
func textType(f *robocache.Feature) robocache.DType {
	if f == nil {
		return robocache.String
	}
	return f.DType
}
