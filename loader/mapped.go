package loader

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Map gives samples by number. All methods may be called from many goroutines.
type Map struct{}

// NewMap makes a Map. Order, batch size, ranks and prefetch of cfg do not matter to it.
func NewMap(ctx context.Context, ds robocache.Dataset, cfg Config) (*Map, error) {
	if err := cfg.check(false); err != nil {
		return nil, err
	}
	return &Map{}, nil
}

// Len is the number of samples.
func (m *Map) Len() int64 { return 0 }

// Fields describes a batch of items, in its order.
func (m *Map) Fields() []Field { return nil }

// Items gives samples by number, 0 ≤ index < Len, in the order asked, stacked.
func (m *Map) Items(ctx context.Context, indices []int64) (*Batch, error) {
	return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "map", Msg: "Items"}
}

// Rows says which row of the dataset each sample is.
func (m *Map) Rows(indices []int64) ([]robocache.Row, error) { return nil, nil }

// Stats says what was done so far.
func (m *Map) Stats() Stats { return Stats{} }

// Close ends the Map. Batches that were handed out stay valid until their Release.
func (m *Map) Close() error { return nil }
