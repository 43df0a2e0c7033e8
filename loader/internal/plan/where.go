package plan

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// applyWhere leaves out the selected episodes for which the expression of Config.Where is false.
func (src *Source) applyWhere(ctx context.Context) error {
	text := src.Config.Where
	if text == "" {
		return nil
	}
	expression, err := query.Parse(text)
	if err != nil {
		return err
	}
	bound, err := expression.Bind(ctx, src.Dataset, query.Options{Threads: src.Config.Threads})
	if err != nil {
		return err
	}
	selected := src.chosenEpisodes()
	if src.positions, err = bound.Matching(ctx, selected); err != nil {
		return err
	}
	if len(src.positions) == 0 {
		return robocache.Misuse("loader", nil, "%s is true for none of %d episodes", text,
			len(selected))
	}
	src.report.Notes = append(src.report.Notes, fmt.Sprintf("%s: %s is true for %d of %d episodes",
		robocache.Redact(src.Dataset.Info().URI), text, len(src.positions), len(selected)))
	return nil
}
