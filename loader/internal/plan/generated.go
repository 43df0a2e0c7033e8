package plan

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// generatedColumns returns columns that the dataset does not have: the task text and the requested
// generated keys.
func (src *Source) generatedColumns() (extra []*column.Column) {
	info, keys := src.Dataset.Info(), src.Config.Keys
	if info.Feature("task") == nil && (len(info.Tasks) > 0 || info.Feature("task_index") != nil) {
		c := &column.Column{Key: "task", Value: column.Value{OutDType: robocache.String}}
		c.Kind = &column.TextColumn{Column: c}
		extra = append(extra, c)
	}
	for i := range column.GeneratedKinds {
		if g := &column.GeneratedKinds[i]; info.Feature(g.Key) == nil &&
			slices.Contains(keys, g.Key) {
			extra = append(extra, g.NewColumn())
		}
	}
	return extra
}
