package mapping

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// findTasks reads the task of each episode from a text stream. The task is the first text that is
// not empty.
func (d *mappedDataset) findTasks(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	f, err := d.sourceFeature(key)
	if err != nil {
		return err
	}
	if f.Kind != robocache.KindText && f.Kind != robocache.KindEvent {
		return robocache.Misuse("map", robocache.Where{"stream": key}, "task").
			Expected("a text stream", string(f.Kind))
	}
	d.tasks = make([]string, d.info.Episodes)
	d.info.Tasks = nil
	for e := range d.tasks {
		text, err := d.firstText(ctx, e, key)
		if err != nil {
			return robocache.At(
				err,
				robocache.Where{"episode": d.info.EpisodeIndex(e), "stream": key},
			)
		}
		d.tasks[e] = text
		if text != "" &&
			!slices.ContainsFunc(
				d.info.Tasks,
				func(t robocache.Task) bool { return t.Text == text },
			) {
			d.info.Tasks = append(
				d.info.Tasks,
				robocache.Task{Index: int64(len(d.info.Tasks)), Text: text},
			)
		}
	}
	return nil
}

func (d *mappedDataset) firstText(ctx context.Context, e int, key string) (_ string, err error) {
	t, err := d.base.Times(ctx, e, key)
	if err != nil {
		return "", err
	}
	const block = 256
	for at := 0; at < len(t); at += block {
		texts, err := d.base.Text(ctx, key, robocache.RowsOf(e, at, min(block, len(t)-at)))
		if err != nil {
			return "", err
		}
		for _, x := range texts {
			if x != "" {
				return x, nil
			}
		}
	}
	return "", nil
}
