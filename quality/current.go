package quality

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
)

// LoadCurrent returns the table that belongs to an open dataset. If the dataset is not in the state
// in which it was measured, the error is ErrMisuse. A wrapper of a dataset, such as its view on a
// grid, has the table of the dataset.
func LoadCurrent(ctx context.Context, ds robocache.Dataset) (*Table, error) {
	uri := ds.Info().URI
	t, err := Load(ctx, uri)
	if err != nil {
		return nil, err
	}
	stale := func(reason string) error {
		return robocache.Misuse("quality", robocache.Where{"dataset": robocache.Redact(uri)},
			"the quality table is of another state of the dataset: %s", reason).
			WithHint("Measure it again: %s.", robocache.Command("quality %s", robocache.Redact(uri)))
	}
	isSame, err := t.isMeasuredFrom(ctx, ds)
	if err != nil {
		return nil, err
	}
	if !isSame {
		return nil, stale("its schema, the lengths of its episodes or some values differ")
	}
	state, err := flags.FilesState(ctx, ds)
	if err != nil {
		return nil, err
	}
	if !flags.SameFiles(t.State, state) {
		return nil, stale("the names, sizes or modification times of its files differ")
	}
	return t, nil
}

// isMeasuredFrom reports whether the dataset, or one that it wraps, has the fingerprint of the
// table.
func (t *Table) isMeasuredFrom(ctx context.Context, ds robocache.Dataset) (bool, error) {
	for {
		fingerprint, err := flags.Fingerprint(ctx, ds)
		if err != nil || fingerprint == t.Fingerprint {
			return err == nil, err
		}
		wrapper, ok := ds.(robocache.Wrapper)
		if !ok {
			return false, nil
		}
		ds = wrapper.Unwrap()
	}
}
