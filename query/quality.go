package query

import (
	"context"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
)

// qualityPrefix is the prefix of columns of the quality table.
const qualityPrefix = "q."

// Merged is a dataset whose episodes are from other datasets.
type Merged interface {
	// SourceOf returns the number of the source of an episode, by position.
	SourceOf(position int) int
	// SourceDatasets returns the sources. The caller must not close them.
	SourceDatasets() []robocache.Dataset
}

// qualityName returns the column of the quality table that a name means; "" if it means none.
func qualityName(s *syntax) string {
	if s.text == strings.TrimSuffix(qualityPrefix, ".") && len(s.args) > 0 {
		return s.args[0].text
	}
	if name, ok := strings.CutPrefix(s.text, qualityPrefix); ok && s.kind == nameToken {
		return name
	}
	return ""
}

// bindQuality binds a column of the quality table. An episode that the table lacks has NaN.
func (b *binder) bindQuality(s *syntax, name string) (*node, error) {
	if b.table == nil {
		var err error
		if b.table, err = loadQuality(b.ctx, b.source.ds); err != nil {
			return nil, err
		}
	}
	t := b.table
	column := t.Columns[name]
	if column == nil {
		var known []string
		for _, m := range quality.Metrics() {
			known = append(known, m.Name)
		}
		return nil, syntaxError(s.at, "no metric %s in the quality table", name).
			WithHint("%s", robocache.Nearest(name, known))
	}
	at := func(x *episodeRun) float64 {
		if row := t.Row(x.source.info.EpisodeIndex(x.position)); row >= 0 {
			return column[row]
		}
		return math.NaN()
	}
	return &node{
		kind: numberKind, at: s.at,
		eval: func(x *episodeRun) (value, error) { return value{number: at(x)}, nil },
		reach: func(x *episodeRun) reach {
			if v := at(x); v == v {
				return reach{lo: v, hi: v}
			}
			return unknownReach
		},
	}, nil
}

// loadQuality returns the quality table of a dataset. An edit has the table of its only source.
func loadQuality(ctx context.Context, ds robocache.Dataset) (*quality.Table, error) {
	if m, ok := ds.(Merged); ok {
		sources := m.SourceDatasets()
		if len(sources) != 1 {
			return nil, robocache.Misuse("find", nil,
				"the quality table is of one dataset, and there are %d", len(sources)).
				WithHint("Edit each dataset before they are merged.")
		}
		ds = sources[0]
	}
	return quality.LoadCurrent(ctx, ds)
}
