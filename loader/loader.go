package loader

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Loader gives the batches of one rank, epoch after epoch. Next is for one goroutine; all else may be called at any time.
type Loader struct{}

// New makes a Loader. Nothing is decoded, and no goroutine runs, before the first Next. The dataset stays the caller's: close the Loader first.
func New(ctx context.Context, ds robocache.Dataset, cfg Config) (*Loader, error) {
	if err := cfg.check(true); err != nil {
		return nil, err
	}
	return &Loader{}, nil
}

// Next gives the next batch, or io.EOF at the end of the epoch; the call after that begins the next epoch.
// After another error the loader stands where it stood: Next tries the same batch again.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "Next"}
}

// Fields describes a batch, in its order, before there is one.
func (l *Loader) Fields() []Field { return nil }

// Samples is the number of samples of an epoch, over all ranks.
func (l *Loader) Samples() int64 { return 0 }

// Len is the number of batches of an epoch on each rank.
func (l *Loader) Len() int64 { return 0 }

// Epoch is the epoch that the next batch belongs to.
func (l *Loader) Epoch() int64 { return 0 }

// SetEpoch goes to the start of an epoch. It does nothing where the loader stands in that epoch and has given nothing
// since it was made or restored, so that set_epoch after load_state_dict keeps the place.
func (l *Loader) SetEpoch(epoch int64) error { return nil }

// Order is the sample order of an epoch; nothing is read for it. Bad episodes are not taken out.
func (l *Loader) Order(epoch int64) *Order { return newOrder(FileOrder, 0, epoch, 0) }

// State is where the loader stands, at any moment.
func (l *Loader) State() State { return State{} }

// Restore goes to a state in O(1): made at any world size, batch size and number of threads. A state of other data is
// Misuse that names the difference; force goes on all the same.
func (l *Loader) Restore(s State, force bool) error { return nil }

// Stats says what was done so far.
func (l *Loader) Stats() Stats { return Stats{} }

// Close ends all goroutines and waits for them. Batches that were handed out stay valid until their Release.
func (l *Loader) Close() error { return nil }
