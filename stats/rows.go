package stats

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// rowsIn is the number of rows of a stream in an episode: of its own clock, where it has one.
func rowsIn(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episode int,
) (int, error) {
	n, err := robocache.RowsIn(ctx, ds, episode, f)
	if err := robocache.At(
		err,
		robocache.Where{"episode": ds.Info().EpisodeIndex(episode)},
	); err != nil {
		return 0, err
	}
	return n, nil
}

// Rows computes the statistics of a stream of numbers in some episodes. left is the number of
// values that are not finite (S5).
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

// Values gives the values of a stream of numbers in some episodes as Numeric takes them, and the
// shape of a row there.
func Values(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episodes []int,
) (Blocks, []int, error) {
	return blocksOf(ctx, ds, f, episodes, 0)
}

// blocksOf reads a stream in blocks of whole rows, of a ragged one in blocks of whole entries, and
// gives the shape of those. What fits the budget is held: the quantiles read it again.
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
	return r.blocks, shape, nil
}

// reader gives the rows of one stream, one block after the other.
type reader struct {
	ds       robocache.Dataset
	f        *robocache.Feature
	episodes []int
	counts   []int // rows of each
	budget   int64
	size     int // bytes of a row
	block    int // rows read at once
	buf      []byte
	held     []byte
	whole    bool // held is all there is
}

func (r *reader) blocks(ctx context.Context, yield func([]byte) error) (err error) {
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
		raw, err := r.read(ctx, rows)
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

// read gives the values of rows; those that hold none are left out.
func (r *reader) read(ctx context.Context, rows []robocache.Row) ([]byte, error) {
	if r.f.Ragged() {
		data, _, err := robocache.GatherRagged(ctx, r.ds, r.f.Key, rows)
		if err != nil {
			return nil, err
		}
		return data, nil // a row without value has no entries
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
