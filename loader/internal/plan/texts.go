package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// applyTextRules sets how the texts of columns are normalized.
func (src *Source) applyTextRules() error {
	for _, key := range options.Keys(src.Config.Text) {
		c := src.Column(key)
		if c == nil {
			return options.MissingKey(src.Dataset.Info(), "text", key, src.columnKeys())
		}
		text, isText := c.Kind.(*column.TextColumn)
		if !isText || c.OutDType != robocache.String {
			return options.Misuse("text", "a key with texts", key)
		}
		text.Rule = src.Config.Text[key]
	}
	return nil
}

// excludeUnlabeled adds to exclude the episodes whose texts of RequireText are all empty.
func (src *Source) excludeUnlabeled(ctx context.Context, exclude map[int]bool) error {
	key, info := src.Config.RequireText, src.Dataset.Info()
	if key == "" {
		return nil
	}
	f := info.Feature(key)
	isTask := key == "task" && f == nil &&
		(len(info.Tasks) > 0 || info.Feature("task_index") != nil)
	if !isTask && (f == nil || f.Kind != robocache.KindText) {
		return options.Misuse("require_text", "a key with texts", key)
	}
	skipped := 0
	for _, e := range src.chosenEpisodes() {
		if exclude[e] {
			continue
		}
		if f != nil && robocache.Lacks(src.Dataset, e, key) {
			exclude[e] = true
			continue
		}
		rows := make([]robocache.Row, src.Dataset.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		texts, err := src.Dataset.Text(ctx, key, rows)
		if err != nil {
			where := robocache.Where{"stream": key, "episode": info.EpisodeIndex(e)}
			return robocache.At(err, where)
		}
		if !slices.ContainsFunc(texts, func(s string) bool { return s != "" }) {
			exclude[e] = true
			skipped++
		}
	}
	if skipped > 0 {
		src.report.Warn(fmt.Sprintf("%d episodes without a text of %s are left out", skipped, key))
	}
	return nil
}
