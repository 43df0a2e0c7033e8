package stats

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// rowsIn returns the number of rows of a stream in an episode, on the stream's own clock if it has
// one.
func rowsIn(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episode int,
) (int, error) {
	n, err := robocache.RowsIn(ctx, ds, episode, f)
	if err := robocache.At(err, robocache.Where{"episode": ds.Info().EpisodeIndex(episode)}); err !=
		nil {
		return 0, err
	}
	return n, nil
}

// Rows computes the statistics of a numeric stream over some episodes. left is the number of values
// that are not finite (stats.S5).
func Rows(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episodes []int,
	budget int64,
) (fs *robocache.FeatureStats, left int64, err error) {
	blocks, shape, err := blocksOf(ctx, ds, f, episodes, budget)
	if err != nil {
		return nil, 0, err
	}
	return Numeric(ctx, f.DType, shape, blocks, budget)
}

// Values returns the values of a numeric stream over some episodes in the form that Numeric needs,
// with the shape of a row.
func Values(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episodes []int,
) (Blocks, []int, error) {
	return blocksOf(ctx, ds, f, episodes, 0)
}

// blocksOf returns a stream in blocks of whole rows, and the shape of a row. A ragged stream is
// read in blocks of whole entries. Values that fit the budget are held, because quantiles may read
// them again.
func blocksOf(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episodes []int,
	budget int64,
) (_ Blocks, _ []int, err error) {
	r := &reader{ds: ds, f: f, budget: budget, episodes: episodes, block: 16}
	shape := f.Shape
	if f.Ragged() {
		if shape = shape[1:]; len(shape) == 0 {
			shape = []int{1}
		}
	} else {
		r.size = max(1, f.RowBytes())
		r.block = max(1, min(8192, (4<<20)/r.size))
		r.buf = make([]byte, r.block*r.size)
	}
	for _, e := range episodes {
		n, err := rowsIn(ctx, ds, f, e)
		if err != nil {
			return nil, nil, err
		}
		r.counts = append(r.counts, n)
	}
	return r.eachBlock, shape, nil
}

// reader reads the rows of one stream, block by block.
type reader struct {
	ds       robocache.Dataset
	f        *robocache.Feature
	episodes []int
	counts   []int // rows in each episode
	budget   int64
	size     int // bytes of a row
	block    int // rows per read
	buf      []byte
	held     []byte
	whole    bool // held contains all values
}

func (r *reader) eachBlock(ctx context.Context, yield func([]byte) error) (err error) {
	if r.whole {
		return yield(r.held)
	}
	r.held = r.held[:0]
	hold := true
	rows := make([]robocache.Row, 0, r.block)
	send := func() (err error) {
		if len(rows) == 0 {
			return nil
		}
		raw, err := r.readRows(ctx, rows)
		if err != nil {
			return err
		}
		rows = rows[:0]
		if hold = hold && int64(len(r.held)+len(raw)) <= r.budget; hold {
			r.held = append(r.held, raw...)
		} else {
			r.held = nil
		}
		return yield(raw)
	}
	for i, e := range r.episodes {
		for k := range r.counts[i] {
			rows = append(rows, robocache.Row{Episode: e, Index: k})
			if len(rows) == r.block {
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	if err := send(); err != nil {
		return err
	}
	r.whole = hold
	return nil
}

// readRows returns the values of rows. Rows without a value are left out.
func (r *reader) readRows(ctx context.Context, rows []robocache.Row) ([]byte, error) {
	if r.f.Ragged() {
		data, _, err := robocache.GatherRagged(ctx, r.ds, r.f.Key, rows)
		if err != nil {
			return nil, err
		}
		return data, nil // a row without a value has no entries
	}
	raw := r.buf[:len(rows)*r.size]
	if err := r.ds.Gather(ctx, r.f.Key, rows, raw); err != nil {
		return nil, err
	}
	valid, err := robocache.Validity(ctx, r.ds, r.f, rows)
	if err != nil {
		return nil, err
	}
	if valid == nil {
		return raw, nil
	}
	to := 0
	for i, ok := range valid {
		if ok != 0 {
			to += copy(raw[to:], raw[i*r.size:(i+1)*r.size])
		}
	}
	return raw[:to], nil
}
