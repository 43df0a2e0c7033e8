package quality

import (
	"math"
	"slices"
)

// Table has a row per episode, in ascending order of the episode index. Missing values are NaN.
type Table struct {
	Episodes []int64  // episode indices
	Tasks    []string // the first task of each episode
	Lengths  []int64  // rows
	// Sources are the recordings from which the episodes were made; "" if unknown.
	Sources []string
	// SourceEpisodes are the indices of the episodes in their recordings; -1 if unknown.
	SourceEpisodes []int64
	// Errors are the reasons why episodes could not be measured; "" for a measured episode.
	Errors  []string
	Columns map[string][]float64 // by Metric.Name
	// Spans are the parts of the episodes to which the values of timedMetrics belong: the start and
	// the end of each, in seconds after the first timestamp; NaN if there is none. A table may have
	// no spans.
	Spans []float32
	// Sketches are descriptions of the episodes by which they are compared, SketchWidth numbers
	// each. An episode without motion has NaN. See Sketch.
	Sketches    []float32
	SketchWidth int
	// SketchPoints is the number of points of a sketch, and SketchStates the number of channels of
	// the state at each; those of the action follow.
	SketchPoints, SketchStates int
	// Hashes are the hashes of frames, HashWidth words each; 0 is no hash.
	Hashes    []int64
	HashWidth int

	Dataset     string // URI of the measured dataset, without secrets
	Fingerprint string // of the measured dataset
	State       string // of its files; "" if unknown
	Frames      Frames // images that were measured
	Timeless    bool   // whether seconds were computed from an assumed rate
}

// Len returns the number of episodes.
func (t *Table) Len() int { return len(t.Episodes) }

// Column returns a column by the name of its metric. A column that was not measured has NaN.
func (t *Table) Column(name string) []float64 {
	if c := t.Columns[name]; c != nil {
		return c
	}
	return slices.Repeat([]float64{math.NaN()}, t.Len())
}

// Row returns the row of an episode by its index. It returns -1 if the table has none.
func (t *Table) Row(episode int64) int {
	at, found := slices.BinarySearch(t.Episodes, episode)
	if !found {
		return -1
	}
	return at
}

// Sketch returns the sketch of a row. It is empty if the table has no sketches.
func (t *Table) Sketch(row int) []float32 {
	return t.Sketches[row*t.SketchWidth : (row+1)*t.SketchWidth]
}

// Hash returns the hashes of frames of a row, hashesPerCamera for each camera. It is empty if the
// table has no hashes.
func (t *Table) Hash(row int) []int64 { return t.Hashes[row*t.HashWidth : (row+1)*t.HashWidth] }

// spansOf returns the spans of a row. It is empty if the table has none.
func (t *Table) spansOf(row int) []float32 {
	width := 2 * len(timedMetrics())
	if len(t.Spans) != t.Len()*width {
		return nil
	}
	return t.Spans[row*width : (row+1)*width]
}

// Span returns the part of an episode to which the value of a metric belongs, in seconds after the
// first timestamp of the episode. known is false if the metric or the value has none.
func (t *Table) Span(row int, metric string) (from, to float64, known bool) {
	at := 2 * slices.Index(timedMetrics(), metric)
	spans := t.spansOf(row)
	if at < 0 || len(spans) == 0 || spans[at] != spans[at] {
		return math.NaN(), math.NaN(), false
	}
	return float64(spans[at]), float64(spans[at+1]), true
}

// newTable returns a table of n episodes without values.
func newTable(n, sketchWidth, hashWidth int) *Table {
	nan := math.NaN()
	t := &Table{
		Episodes: make([]int64, n), Tasks: make([]string, n), Lengths: make([]int64, n),
		Sources: make([]string, n), SourceEpisodes: make([]int64, n), Errors: make([]string, n),
		Columns:  map[string][]float64{},
		Sketches: slices.Repeat([]float32{float32(nan)}, n*sketchWidth), SketchWidth: sketchWidth,
		Hashes: make([]int64, n*hashWidth), HashWidth: hashWidth,
		Spans: slices.Repeat([]float32{float32(nan)}, 2*n*len(timedMetrics())),
	}
	for i := range registry {
		t.Columns[registry[i].Name] = slices.Repeat([]float64{nan}, n)
	}
	return t
}

// copyRow copies row k of o to row i. Both have the same widths.
func (t *Table) copyRow(i int, o *Table, k int) {
	t.Episodes[i], t.Tasks[i], t.Lengths[i] = o.Episodes[k], o.Tasks[k], o.Lengths[k]
	t.Sources[i], t.SourceEpisodes[i] = o.Sources[k], o.SourceEpisodes[k]
	t.Errors[i] = o.Errors[k]
	for name, column := range t.Columns {
		column[i] = math.NaN()
		if from := o.Columns[name]; from != nil {
			column[i] = from[k]
		}
	}
	copy(t.Sketch(i), o.Sketch(k))
	copy(t.Hash(i), o.Hash(k))
	copy(t.spansOf(i), o.spansOf(k))
}

// copyHead copies the values that describe the whole table.
func (t *Table) copyHead(o *Table) {
	t.Dataset, t.Fingerprint, t.State = o.Dataset, o.Fingerprint, o.State
	t.Frames, t.Timeless = o.Frames, o.Timeless
	t.SketchPoints, t.SketchStates = o.SketchPoints, o.SketchStates
}

// selectRows returns a table of some rows.
func (t *Table) selectRows(rows []int) *Table {
	out := newTable(len(rows), t.SketchWidth, t.HashWidth)
	out.copyHead(t)
	for i, k := range rows {
		out.copyRow(i, t, k)
	}
	return out
}
