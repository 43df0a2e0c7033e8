package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// notFinite describes the NaN and infinite values of one stream.
type notFinite struct {
	count int64
	where robocache.Where // location of the first value
	// element is the index of the first value in its row, with the channel's name if it has one.
	element string
	value   float64
}

// countNotFinite counts the NaN and infinite values of some rows and records the location of the
// first one. counts holds the number of entries of each row of a ragged stream. It is nil for other
// streams.
func (x *examination) countNotFinite(
	f *robocache.Feature,
	rows []robocache.Row,
	counts []int,
	raw []byte,
) {
	n := robocache.NotFinite(f.DType, raw)
	if n == 0 {
		return
	}
	if x.notFinite == nil {
		x.notFinite = map[string]*notFinite{}
	}
	if found := x.notFinite[f.Key]; found != nil {
		found.count += n
		return
	}
	values := robocache.Float64s(nil, f.DType, raw)
	first := slices.IndexFunc(values, func(v float64) bool { return v-v != 0 })
	row := first / f.Elements()
	element := first % f.Elements()
	if counts != nil {
		row, element = 0, first
		for element >= counts[row]*f.Elements() {
			element -= counts[row] * f.Elements()
			row++
		}
	}
	found := &notFinite{count: n, value: values[first], element: fmt.Sprintf("element %d", element)}
	found.where = robocache.Where{
		"stream":  f.Key,
		"episode": x.ds.Info().EpisodeIndex(rows[row].Episode),
		"row":     rows[row].Index,
		"index":   element,
	}
	if names := f.ChannelNames(); len(names) == f.Elements() {
		found.element += fmt.Sprintf(" (%s)", names[element%f.Elements()])
	}
	x.notFinite[f.Key] = found
}

// addNotFinite adds a finding for each stream with NaN or infinite values. The finding names the
// first one.
func (x *examination) addNotFinite() {
	for _, key := range slices.Sorted(maps.Keys(x.notFinite)) {
		found := x.notFinite[key]
		x.addFinding(
			robocache.SeverityWarning,
			"not-finite",
			found.where,
			found.count,
			"Mask or drop these rows: training on NaN gives NaN.",
			"%d values are NaN or infinite; the first is %s: %v",
			found.count,
			found.element,
			found.value,
		)
	}
}
