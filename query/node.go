package query

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// kind is the type of a node's value.
type kind uint8

const (
	numberKind    kind = iota // a number of the episode
	textsKind                 // texts of the episode, or a text in quotes
	truthKind                 // true or false for the episode
	signalKind                // a number for each row and channel
	rowTextKind               // a text for each row
	conditionKind             // true or false for each row
	eventsKind                // single rows
	rangesKind                // ranges of rows, which may overlap
)

// kindNames are the names of kinds in messages.
var kindNames = []string{
	"a number of the episode", "a text", "true or false for the episode", "a signal",
	"a text for each row", "a condition", "events", "ranges of rows",
}

// node is a part of an expression that is bound to a dataset.
type node struct {
	kind      kind
	width     int // channels of a signal
	at        int // character of the expression, from 1
	eval      func(x *episodeRun) (value, error)
	reach     func(x *episodeRun) reach // what the value can be; nil: unknown
	constant  *float64                  // of a number in the text
	quoted    *syntax                   // the text in quotes, which may name a column
	isOrdinal bool                      // index and source: no number to compute with
	isFlag    bool                      // a signal of booleans
	column    *column                   // of a signal that is a column
}

// value is the value of a node in an episode. Slices may be shared: they must not be changed.
type value struct {
	number   float64
	truth    bool
	texts    []string
	channels [][]float64 // of a signal
	rows     []bool      // of a condition or of events
	ranges   []span
	clock    string // key of a stream with the clock of the rows; "" for the dataset's rows
}

// span is a range [from, to) of rows.
type span struct{ from, to int }

// column is a stream of numbers, or one channel of it.
type column struct {
	feature *robocache.Feature
	channel int // -1: all
	clock   string
}

// channelCount returns the number of channels.
func (c *column) channelCount() int {
	if c.channel >= 0 {
		return 1
	}
	return c.feature.Elements()
}

// isRowwise reports whether the kind has values for rows.
func (k kind) isRowwise() bool { return k >= signalKind }

// hasOccurrences reports whether occurrences of the kind can be listed.
func (k kind) hasOccurrences() bool { return k >= conditionKind }

// spans returns the occurrences of a condition, of events, or the ranges.
func (v *value) spans(k kind) []span {
	switch k {
	case rangesKind:
		return v.ranges
	case eventsKind:
		var out []span
		for i, is := range v.rows {
			if is {
				out = append(out, span{i, i + 1})
			}
		}
		return out
	}
	var out []span
	for i := 0; i < len(v.rows); i++ {
		if !v.rows[i] {
			continue
		}
		from := i
		for i < len(v.rows) && v.rows[i] {
			i++
		}
		out = append(out, span{from, i})
	}
	return out
}

// countOccurrences returns the number of occurrences.
func (v *value) countOccurrences(k kind) (n int) {
	if k == rangesKind {
		return len(v.ranges)
	}
	before := false
	for _, is := range v.rows {
		if is && (k == eventsKind || !before) {
			n++
		}
		before = is
	}
	return n
}

// holds reports whether there is an occurrence.
func (v *value) holds(k kind) bool {
	switch k {
	case truthKind:
		return v.truth
	case rangesKind:
		return len(v.ranges) > 0
	}
	return slices.Contains(v.rows, true)
}
