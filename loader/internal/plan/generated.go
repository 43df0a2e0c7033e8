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
	if c := src.taskColumn(); c != nil {
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

// taskColumn returns a column of the task text, or nil if the dataset has no tasks or has a stream
// of that key.
func (src *Source) taskColumn() *column.Column {
	info := src.Dataset.Info()
	if info.Feature("task") != nil || len(info.Tasks) == 0 && info.Feature("task_index") == nil {
		return nil
	}
	c := &column.Column{Key: "task", Value: column.Value{OutDType: robocache.String}}
	c.Kind = &column.TextColumn{Column: c}
	return c
}
