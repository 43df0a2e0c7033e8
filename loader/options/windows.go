package options

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Delta is the window of one key, as offsets from the sample in seconds.
type Delta struct {
	Key     string
	Offsets []float64
}

// Deltas is a JSON object whose order is kept, because it determines the order of the batch's
// masks.
type Deltas []Delta

// UnmarshalJSON reads {key: [seconds, …], …}. ParseSeconds parses each time.
func (d *Deltas) UnmarshalJSON(b []byte) (err error) {
	read := func(key string, raw json.RawMessage) (x Delta, err error) {
		x.Key = key
		x.Offsets, err = readSeconds(raw)
		return x, err
	}
	*d, err = readKeys(b, "delta_timestamps", "a list of seconds", read)
	return err
}

// MarshalJSON writes the object in its order.
func (d Deltas) MarshalJSON() ([]byte, error) {
	return writeKeys(d, func(x *Delta) (string, any) { return x.Key, writeSeconds(x.Offsets) })
}

// Of returns the window of a key, or nil.
func (d Deltas) Of(key string) []float64 {
	for _, w := range d {
		if w.Key == key {
			return w.Offsets
		}
	}
	return nil
}

// Index is the window of one key, as rows from the sample. Rows are those of the stream whose rows
// are samples, or of the timeline (hz).
type Index struct {
	Key  string
	Rows []int
}

// Indices is a JSON object whose order is kept.
type Indices []Index

// UnmarshalJSON reads {key: [rows, …], …}.
func (x *Indices) UnmarshalJSON(b []byte) (err error) {
	read := func(key string, raw json.RawMessage) (w Index, err error) {
		w.Key = key
		return w, json.Unmarshal(raw, &w.Rows)
	}
	*x, err = readKeys(b, "delta_indices", "a list of whole rows", read)
	return err
}

// MarshalJSON writes the object in its order.
func (x Indices) MarshalJSON() ([]byte, error) {
	return writeKeys(x, func(w *Index) (string, any) { return w.Key, w.Rows })
}

// Of returns the window of a key, or nil.
func (x Indices) Of(key string) []int {
	for _, w := range x {
		if w.Key == key {
			return w.Rows
		}
	}
	return nil
}

// Window states what a sample holds of one stream at the stream's own rate. Either Offsets or Span
// is set.
type Window struct {
	Key string
	// Offsets are in seconds from the sample. The value at each offset follows the stream's align
	// rule. Without a configured mode nothing is interpolated: frames and point clouds are the
	// nearest sample, all other values the previous one.
	Offsets []float64
	// Span [from, to] in seconds selects all samples of the stream whose timestamps are from t+from
	// to t+to, both included. t is the time of the batch's sample. The batch holds the values one
	// after the other. `<key>_lengths` holds their number for each sample of the batch, and
	// `<key>_times` their times in ns after t (int64).
	//
	// Frames and rows of varying length (point clouds) have a fixed number of slots instead: as
	// many as the fullest such span of the dataset needs. Slots are filled from the first.
	// `<key>_is_pad` and `<key>_times` have one value per slot. For frames, `<key>_lengths` holds
	// the number of filled slots. For rows of varying length, it holds the number of entries in
	// each slot.
	Span *[2]float64
	// Count selects this many times of a span instead of all its samples, evenly spaced with both
	// ends included. The values follow the stream's align rule, which is linear for floats, and
	// have `<key>_is_pad`. 0 selects all samples.
	Count int
}

// NativeWindows is a JSON object by key. Each value is a list of offsets, or {"span": [from, to],
// "count": n}.
type NativeWindows []Window

// spanJSON is the JSON of a Window with a span.
type spanJSON struct {
	Count *int            `json:"count,omitempty"`
	Span  json.RawMessage `json:"span"`
}

// UnmarshalJSON reads the object in its order. ParseSeconds parses each time.
func (w *NativeWindows) UnmarshalJSON(b []byte) (err error) {
	const want = `a list of seconds, or {"span": [from, to], "count": n}`
	*w, err = readKeys(
		b,
		"windows",
		want,
		func(key string, raw json.RawMessage) (_ Window, err error) {
			one := Window{Key: key}
			if len(raw) > 0 && raw[0] == '[' {
				one.Offsets, err = readSeconds(raw)
				if err == nil && len(one.Offsets) == 0 {
					err = errors.New("no offsets")
				}
				return one, err
			}
			var o spanJSON
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&o); err != nil {
				return one, err
			}
			ends, err := readSeconds(o.Span)
			if err != nil || len(ends) != 2 || o.Count != nil && *o.Count < 1 {
				return one, cmp.Or(err, errors.New("no span"))
			}
			one.Span = (*[2]float64)(ends)
			if o.Count != nil {
				one.Count = *o.Count
			}
			return one, nil
		},
	)
	return err
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (w NativeWindows) MarshalJSON() ([]byte, error) {
	return writeKeys(w, func(x *Window) (string, any) {
		if x.Span == nil {
			return x.Key, writeSeconds(x.Offsets)
		}
		out := map[string]any{"span": writeSeconds(x.Span[:])}
		if x.Count > 0 {
			out["count"] = x.Count
		}
		return x.Key, out
	})
}

// Of returns the window of a key, or nil.
func (w NativeWindows) Of(key string) *Window {
	for i := range w {
		if w[i].Key == key {
			return &w[i]
		}
	}
	return nil
}

// Bytes is a number of bytes. JSON may contain text such as "4GiB".
type Bytes int64

// byteUnits lists the suffixes of sizes. Longer ones precede their own endings.
var byteUnits = []struct {
	suffix string
	mul    float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// UnmarshalJSON reads a number, or a string with a unit.
func (n *Bytes) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(strings.Trim(string(b), `"`))
	if s == "null" || s == "" {
		*n = 0
		return nil
	}
	mul := 1.0
	for _, u := range byteUnits {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			s, mul = strings.TrimSpace(number), u.mul
			break
		}
	}
	var v float64
	if err := json.Unmarshal([]byte(s), &v); err != nil || v < 0 || v*mul > math.MaxInt64/2 {
		return Misuse("memory_budget", `bytes, or a string such as "4GiB"`, string(b))
	}
	*n = Bytes(v * mul)
	return nil
}

// MaxSteps is the maximum number of steps of one window.
const MaxSteps = 1 << 20

// Nanos returns the offsets of the window in ns. It returns nil for a span without Count.
func (w *Window) Nanos() ([]int64, error) {
	if w.Span == nil {
		if len(w.Offsets) == 0 || len(w.Offsets) > MaxSteps || w.Count != 0 {
			want := "1 to 2^20 offsets, or a span for " + w.Key
			return nil, Misuse("windows", want, fmt.Sprint(len(w.Offsets)))
		}
		return Nanos(w.Offsets, "windows")
	}
	from, to := w.Span[0], w.Span[1]
	switch {
	case !(from <= to) || math.Abs(from) > maxSeconds || math.Abs(to) > maxSeconds:
		want := "a span (from, to) in seconds with from ≤ to for " + w.Key
		return nil, Misuse("windows", want, fmt.Sprint(from, ", ", to))
	case w.Offsets != nil:
		return nil, Misuse("windows", "offsets or a span for "+w.Key, "both")
	case w.Count < 0 || w.Count > MaxSteps:
		return nil, Misuse("windows", "a count of 1 to 2^20 for "+w.Key, fmt.Sprint(w.Count))
	case w.Count == 0:
		return nil, nil
	}
	// Integers of nanoseconds reach both ends exactly.
	first, last := Seconds(from), Seconds(to)
	out := make([]int64, w.Count)
	for i := range out {
		out[i] = last
		if n := int64(w.Count - 1); n > 0 {
			step := float64(last-first) * float64(i) / float64(n)
			out[i] = first + int64(math.RoundToEven(step))
		}
	}
	return out, nil
}

// Nanos converts seconds to nanoseconds.
func Nanos(offsets []float64, option string) ([]int64, error) {
	out := make([]int64, len(offsets))
	for i, d := range offsets {
		if math.IsNaN(d) || math.Abs(d) > maxSeconds {
			return nil, Misuse(option, "seconds", fmt.Sprint(d))
		}
		out[i] = Seconds(d)
	}
	return out, nil
}

// Seconds returns s seconds in nanoseconds, rounded to the nearest.
func Seconds(s float64) int64 { return int64(math.RoundToEven(s * 1e9)) }
