package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// checkIndices refuses windows in rows of keys that are not there.
func (c *Config) checkIndices(info *robocache.Info, known []string, wanted func(string) bool) error {
	for _, x := range c.Indices {
		switch {
		case !slices.Contains(known, x.Key):
			return lacks(info, "delta_indices", x.Key, known)
		case !wanted(x.Key):
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "delta_indices names " + x.Key + ", which keys leaves out"}
		case len(x.Rows) == 0 || len(x.Rows) > options.MaxSteps:
			return misuse("delta_indices", "1 to 2^20 offsets for "+x.Key, fmt.Sprint(len(x.Rows)))
		case slices.ContainsFunc(x.Rows, func(n int) bool { return n < -options.MaxSteps || n > options.MaxSteps }):
			return misuse("delta_indices", fmt.Sprintf("rows within ±%d for %s", options.MaxSteps, x.Key), clip(fmt.Sprint(x.Rows)))
		case c.Deltas.Of(x.Key) != nil:
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
		case !slices.Contains(known, w.Key):
			return lacks(info, "windows", w.Key, known)
		case !wanted(w.Key):
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "windows names " + w.Key + ", which keys leaves out"}
		case c.Deltas.Of(w.Key) != nil || c.Indices.Of(w.Key) != nil:
			return misuse("windows", "windows or another window of "+w.Key, "both")
		}
	}
	return nil
}

// nativeWindow settles what windows= says of a column.
func (c *column) nativeWindow(l *layout, cfg *Config) error {
	w := cfg.Windows.Of(c.key)
	if w == nil {
		return nil
	}
	if c.feature.Kind == robocache.KindText || c.feature.Kind == robocache.KindEvent {
		return textWindow(c.key)
	}
	nanos, err := w.Nanos()
	if err != nil {
		return err
	}
	if nanos == nil {
		if c.feature.Kind != robocache.KindNumeric || c.feature.Ragged() {
			return c.spreads(w, cfg)
		}
		c.spans, c.span = true, [2]int64{options.Seconds(w.Span[0]), options.Seconds(w.Span[1])}
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
