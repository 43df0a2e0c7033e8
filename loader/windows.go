package loader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Window is what a sample holds of one stream at the stream's own rate. One of Offsets and Span is given.
type Window struct {
	Key string
	// Offsets in seconds from the sample: the stream's sample there, by its align rule. Without a mode of its own none is computed: frames
	// and point clouds are the nearest, everything else the previous one.
	Offsets []float64
	// Span [from, to] in seconds: all the stream's samples timestamped t+from … t+to, both ends included. The batch holds them one after the
	// other; `<key>_lengths` says how many are of each sample, and `<key>_times` when they were: int64 ns after t. Frames and rows of varying
	// length (point clouds) come in as many places as the fullest such span of the dataset needs, the first ones filled, with `<key>_is_pad`
	// and `<key>_times` for each place; `<key>_lengths` counts a sample's frames, or the entries in each place.
	Span *[2]float64
	// Count of a span: so many times, evenly from its first to its last, by the stream's align rule (linear for floats), with `<key>_is_pad`.
	Count int
}

// Windows is a JSON object by key: a list of offsets, or {"span": [from, to], "count": n}.
type Windows []Window

// UnmarshalJSON reads the object, in its order.
func (w *Windows) UnmarshalJSON(b []byte) error {
	*w = nil
	if string(b) == "null" {
		return nil
	}
	return orderedObject(b, "windows", func(key string, raw json.RawMessage) error {
		one := Window{Key: key}
		if len(raw) > 0 && raw[0] == '[' {
			if err := json.Unmarshal(raw, &one.Offsets); err != nil || len(one.Offsets) == 0 {
				return misuse("windows", "a list of seconds for "+key, clip(string(raw)))
			}
			*w = append(*w, one)
			return nil
		}
		var o struct {
			Span  []float64 `json:"span"`
			Count *int      `json:"count"`
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil || len(o.Span) != 2 || o.Count != nil && *o.Count < 1 {
			return misuse("windows", `a list of seconds, or {"span": [from, to], "count": n} for `+key, clip(string(raw)))
		}
		one.Span = &[2]float64{o.Span[0], o.Span[1]}
		if o.Count != nil {
			one.Count = *o.Count
		}
		*w = append(*w, one)
		return nil
	})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (w Windows) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range w {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(w[i].Key)
		if err != nil {
			return nil, err
		}
		var of any = w[i].Offsets
		if w[i].Span != nil {
			o := map[string]any{"span": w[i].Span}
			if w[i].Count > 0 {
				o["count"] = w[i].Count
			}
			of = o
		}
		v, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (w Windows) of(key string) *Window {
	for i := range w {
		if w[i].Key == key {
			return &w[i]
		}
	}
	return nil
}

// maxSteps bounds the places of one window.
const maxSteps = 1 << 20

// nanos gives the offsets of a window of a fixed number of places; nil of a span that holds what there is.
func (w *Window) nanos() ([]int64, error) {
	offsets := w.Offsets
	if w.Span != nil {
		from, to := w.Span[0], w.Span[1]
		switch {
		case !(from <= to) || math.Abs(from) > 4e9 || math.Abs(to) > 4e9:
			return nil, misuse("windows", "a span (from, to) in seconds with from ≤ to for "+w.Key, fmt.Sprint(from, ", ", to))
		case w.Offsets != nil:
			return nil, misuse("windows", "offsets or a span for "+w.Key, "both")
		case w.Count < 0 || w.Count > maxSteps:
			return nil, misuse("windows", "a count of 1 to 2^20 for "+w.Key, fmt.Sprint(w.Count))
		case w.Count == 0:
			return nil, nil
		}
		// In integers of nanoseconds, so that the ends are hit exactly.
		a, b := seconds(from), seconds(to)
		out := make([]int64, w.Count)
		for i := range out {
			out[i] = b
			if n := int64(w.Count - 1); n > 0 {
				out[i] = a + int64(math.RoundToEven(float64(b-a)*float64(i)/float64(n)))
			}
		}
		return out, nil
	}
	if len(offsets) == 0 || len(offsets) > maxSteps || w.Count != 0 {
		return nil, misuse("windows", "1 to 2^20 offsets, or a span for "+w.Key, fmt.Sprint(len(offsets)))
	}
	return nanosOf(offsets, "windows")
}

// nanosOf turns seconds into nanoseconds.
func nanosOf(offsets []float64, option string) ([]int64, error) {
	out := make([]int64, len(offsets))
	for i, d := range offsets {
		if math.IsNaN(d) || math.Abs(d) > 4e9 {
			return nil, misuse(option, "seconds", fmt.Sprint(d))
		}
		out[i] = seconds(d)
	}
	return out, nil
}

func seconds(s float64) int64 { return int64(math.RoundToEven(s * 1e9)) }

// checkIndices refuses windows in rows of keys that are not there.
func (c *Config) checkIndices(info *robocache.Info, known []string, wanted func(string) bool) error {
	for _, x := range c.Indices {
		switch {
		case !contains(known, x.Key):
			return lacks(info, "delta_indices", x.Key, known)
		case !wanted(x.Key):
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "delta_indices names " + x.Key + ", which keys leaves out"}
		case len(x.Rows) == 0 || len(x.Rows) > maxSteps:
			return misuse("delta_indices", "1 to 2^20 offsets for "+x.Key, fmt.Sprint(len(x.Rows)))
		case slices.ContainsFunc(x.Rows, func(n int) bool { return n < -maxSteps || n > maxSteps }):
			return misuse("delta_indices", fmt.Sprintf("rows within ±%d for %s", maxSteps, x.Key), clip(fmt.Sprint(x.Rows)))
		case c.Deltas.of(x.Key) != nil:
			return misuse("delta_indices", "delta_indices or delta_timestamps of "+x.Key, "both")
		}
	}
	return nil
}

// checkWindows refuses windows of keys that are not there.
func (c *Config) checkWindows(info *robocache.Info, known []string, wanted func(string) bool) error {
	for i := range c.Windows {
		w := &c.Windows[i]
		switch {
		case !contains(known, w.Key):
			return lacks(info, "windows", w.Key, known)
		case !wanted(w.Key):
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "windows names " + w.Key + ", which keys leaves out"}
		case c.Deltas.of(w.Key) != nil || c.Indices.of(w.Key) != nil:
			return misuse("windows", "windows or another window of "+w.Key, "both")
		}
	}
	return nil
}

// nativeWindow settles what windows= says of a column.
func (c *column) nativeWindow(l *layout, cfg *Config) error {
	w := cfg.Windows.of(c.key)
	if w == nil {
		return nil
	}
	if c.feature.Kind == robocache.KindText || c.feature.Kind == robocache.KindEvent {
		return textWindow(c.key)
	}
	nanos, err := w.nanos()
	if err != nil {
		return err
	}
	if nanos == nil {
		if c.feature.Kind != robocache.KindNumeric || c.feature.Ragged() {
			return c.spreads(w, cfg)
		}
		c.spans, c.span = true, [2]int64{seconds(w.Span[0]), seconds(w.Span[1])}
		return nil
	}
	c.native = w.Span == nil
	c.rows = l.window(window{nanos: nanos})
	c.steps, c.window, c.axis = len(nanos), true, true
	return nil
}

// addRagged makes the tensors of a ragged column: its entries, and how many of them are of each sample, or of each step of its window.
func (l *layout) addRagged(c column, entry []int) {
	c.entry, c.count, c.number = len(l.tensors), len(l.tensors)+1, len(l.columns)
	shape, counts := append([]int{-1}, entry...), []int{}
	if c.axis {
		counts = []int{c.steps}
	}
	name := c.key + lengthsSuffix
	l.tensors = append(l.tensors, tensorPlan{key: c.key, dtype: c.out, shape: shape, column: c.number, of: -1, ragged: true},
		tensorPlan{key: name, dtype: robocache.Int64, shape: counts, bytes: 8 * c.steps, column: -1, of: c.number})
	l.fields = append(l.fields, Field{Key: c.key, DType: c.out, Shape: shape, Kind: c.feature.Kind, Unit: c.unit, Ragged: true},
		Field{Key: name, DType: robocache.Int64, Shape: counts, Kind: robocache.KindNumeric, Lengths: true})
	l.columns = append(l.columns, c)
	if c.spans && l.free(c.key+timesSuffix) {
		l.addTimes(c)
	}
}

// addTimes makes the tensor of when the samples of a span were: as many entries as they have, so their lengths are its own.
func (l *layout) addTimes(c column) {
	c.key, c.when, c.norm = c.key+timesSuffix, true, nil
	c.stored, c.out, c.elems, c.rowBytes, c.outBytes = robocache.Int64, robocache.Int64, 1, 8, 8
	c.entry, c.count, c.number, c.leader = len(l.tensors), -1, len(l.columns), len(l.columns)
	shape := []int{-1}
	l.tensors = append(l.tensors, tensorPlan{key: c.key, dtype: c.out, shape: shape, column: c.number, of: -1, ragged: true})
	l.fields = append(l.fields, Field{Key: c.key, DType: c.out, Shape: shape, Kind: robocache.KindNumeric, Ragged: true, Times: true})
	l.columns = append(l.columns, c)
}

// Suffixes of the keys that stand beside a ragged one: how many of its entries are of each sample, and, of a span, when they were.
const (
	lengthsSuffix = "_lengths"
	timesSuffix   = "_times"
)

// timed says whether a column goes by time.
func (l *layout) timed() bool {
	for i := range l.columns {
		if l.columns[i].timed {
			return true
		}
	}
	return false
}

// hasRagged says whether a dataset gives rows of varying length.
func hasRagged(ds robocache.Dataset) bool {
	_, ok := base(ds).(robocache.RaggedDataset)
	return ok
}
