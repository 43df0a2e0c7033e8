package verbs

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diff"
	"github.com/goatnote-inc/robocache/mapping"
)

// DiffRequest holds the options of Diff.
type DiffRequest struct {
	// A and B are the datasets.
	A string `json:"-" arg:"A"`
	B string `json:"-" arg:"B"`
	// Opening holds how both are opened. RowsHZ applies if nothing else states the rate.
	Opening
	// Frames is how cameras are compared: packets (the default), pixels or none.
	Frames string `json:"frames"`
	// Threads is the number of episodes that are read at once; 0: one per processor.
	Threads int `json:"threads"`
}

// Differences is the result of Diff.
type Differences struct{ *diff.Report }

// HasFindings reports whether the datasets differ.
func (d *Differences) HasFindings() bool { return d.Different }

// Diff reports how dataset B differs from dataset A.
func Diff(ctx context.Context, r *DiffRequest, o Observer) (*Differences, error) {
	open, err := r.Options()
	if err != nil {
		return nil, err
	}
	open.MemoryBudget /= 2 // of each dataset
	a, err := openCompared(ctx, r.A, open)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := openCompared(ctx, r.B, open)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	report, err := diff.Compare(ctx, a, b, diff.Options{
		Frames: r.Frames, Threads: r.Threads, Progress: o.countIn("episodes"),
	})
	if err != nil {
		return nil, err
	}
	return &Differences{report}, nil
}

// openCompared opens a dataset. The rate of the rows applies if nothing else states it.
func openCompared(
	ctx context.Context, uri string, opt robocache.OpenOptions,
) (robocache.Dataset, error) {
	where := robocache.Where{"dataset": robocache.Redact(uri)}
	rate := opt.HZ
	opt.HZ = robocache.Rate{}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil || rate.Zero() || robocache.KnowsTime(ctx, ds) {
		return ds, robocache.At(err, where)
	}
	_ = ds.Close()
	opt.HZ = rate
	ds, err = mapping.Open(ctx, uri, opt)
	return ds, robocache.At(err, where)
}
