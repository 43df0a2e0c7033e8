package plan

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// generatedColumns returns columns that the dataset does not have: the task text and the requested
// generated keys.
func (src *Source) generatedColumns() (extra []*column.Column) {
	info, keys := src.Dataset.Info(), src.Config.Keys
	if info.Feature("task") == nil && (len(info.Tasks) > 0 || info.Feature("task_index") != nil) {
		c := &column.Column{Key: "task"}
		c.Kind = &column.TextColumn{Column: c}
		extra = append(extra, c)
	}
	if info.Feature(options.EpisodeID) == nil && slices.Contains(keys, options.EpisodeID) {
		c := &column.Column{Key: options.EpisodeID}
		c.Kind = &column.EpisodeIDColumn{Column: c}
		extra = append(extra, c)
	}
	for _, k := range options.GeneratedKeys {
		if info.Feature(k) == nil && slices.Contains(keys, k) {
			f := &robocache.Feature{
				Key:     k,
				Kind:    robocache.KindNumeric,
				DType:   robocache.Int64,
				Shape:   []int{1},
				Default: true,
			}
			c := &column.Column{
				Key:     k,
				Feature: f,
				Value: column.Value{
					StoredDType: robocache.Int64,
					OutDType:    robocache.Int64,
					Elements:    1,
					RowBytes:    8,
					OutBytes:    8,
				},
			}
			c.Kind = &column.CountColumn{Column: c}
			extra = append(extra, c)
		}
	}
	return extra
}
