package loader

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// StreamBuffers is a dataset of one episode whose rows change between observations. Its frames of
// video are decoded already.
type StreamBuffers interface {
	robocache.Dataset
	column.PlaneSource
}

// Observer builds observations of a dataset that changes: by the plan, the kernels and the image
// path with which a Loader builds its batches. It is not safe for concurrent use. The dataset must
// not change during Observe.
type Observer struct{ ticker *pipeline.Ticker }

// NewObserver returns an Observer of streams. It ignores the order, batch size, ranks and prefetch of
// cfg. The caller keeps streams and must call Close before closing it.
func NewObserver(ctx context.Context, streams StreamBuffers, cfg Config) (*Observer, error) {
	if err := cfg.Validate(false); err != nil {
		return nil, err
	}
	cfg.Shuffle = FileOrder // no pool
	compiled, err := plan.Compile(ctx, []Mix{{Dataset: streams}}, cfg)
	if err != nil {
		return nil, err
	}
	a, err := pipeline.New(ctx, compiled)
	if err != nil {
		return nil, err
	}
	return &Observer{pipeline.NewTicker(a, streams)}, nil
}

// Allocate returns memory for an observation: a batch of one sample. The caller must call Release.
func (o *Observer) Allocate() (*Batch, error) { return o.ticker.Allocate() }

// Observe fills b with the observation at the time now, as a Loader with a causal alignment delivers
// it. first is the time of the first observation, and replaces earlier times of windows. Both are
// in ns. b is only valid if the error is nil.
func (o *Observer) Observe(now, first int64, b *Batch) error {
	return o.ticker.Observe(now, first, b)
}

// Close releases the memory of the plan. Observations that the consumer holds stay valid until their
// Release.
func (o *Observer) Close() { o.ticker.Close() }
