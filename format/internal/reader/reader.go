// Package reader is what readers of formats share: how they are opened, and the checks of what
// callers ask, with the errors that say what was wrong with it.
package reader

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/store"
)

// Opener is a reader's Open as the registry wants it.
func Opener[D robocache.Dataset](
	open func(ctx context.Context, uri string, opt robocache.OpenOptions) (D, error),
) func(context.Context, string, robocache.OpenOptions) (robocache.Dataset, error) {
	return func(ctx context.Context, uri string, opt robocache.OpenOptions) (robocache.Dataset, error) {
		d, err := open(ctx, uri, opt)
		if err != nil {
			return nil, err // not d: an interface that holds nil is not nil
		}
		return d, nil
	}
}

// Open opens the dataset in the store at uri. The store is closed where that fails; else the
// dataset closes it.
func Open[D any](
	uri string,
	opt robocache.OpenOptions,
	open func(s store.Store) (D, error),
) (d D, err error) {
	s, err := store.OpenFor(uri, opt)
	if err != nil {
		return d, err
	}
	if d, err = open(s); err != nil {
		store.Close(s)
		var none D
		return none, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return d, nil
}

// Budget is the memory that a caller gives, at least smallest; by default usual.
func Budget(opt robocache.OpenOptions, usual, smallest int64) int64 {
	if opt.MemoryBudget <= 0 {
		return usual
	}
	return max(opt.MemoryBudget, smallest)
}

// Op is a format's name in errors.
type Op string

func (op Op) misuse(where robocache.Where, want, got string) error {
	return robocache.Misuse(string(op), where, "").Expected(want, got)
}

// NoStream says that there is no stream of this key.
func (op Op) NoStream(key string) error {
	return robocache.NotFound(string(op), robocache.Where{"stream": key}, "no such stream")
}

// Kind checks that a stream is of one of some kinds.
func (op Op) Kind(key string, got robocache.Kind, want ...robocache.Kind) error {
	if slices.Contains(want, got) {
		return nil
	}
	return op.misuse(
		robocache.Where{"stream": key},
		"a stream of kind "+string(want[0]),
		string(got),
	)
}

// Episode checks an episode's position, of n.
func (op Op) Episode(n, position int) error {
	if position >= 0 && position < n {
		return nil
	}
	return op.misuse(
		robocache.Where{"position": position},
		fmt.Sprintf("the position of an episode, 0 to %d", n-1),
		fmt.Sprint(position),
	)
}

// Row checks a row's number, of the n that its episode has.
func (op Op) Row(info *robocache.Info, n int, r robocache.Row) error {
	if r.Index >= 0 && r.Index < n {
		return nil
	}
	return op.misuse(
		robocache.Where{"episode": info.EpisodeIndex(r.Episode), "row": r.Index},
		fmt.Sprintf("a row from 0 to %d", n-1),
		fmt.Sprint(r.Index),
	)
}

// Room checks what a caller gives for the results of some rows: bytes, or entries.
func (op Op) Room(key, what string, want, got int) error {
	if want == got {
		return nil
	}
	return op.misuse(
		robocache.Where{"stream": key},
		fmt.Sprintf("%d %s", want, what),
		fmt.Sprint(got),
	)
}

// Episodes are the episodes that were asked for: nil stands for all of n.
func Episodes(asked []int, n int) []int {
	if asked != nil {
		return asked
	}
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Rows are rows from to to of an episode.
func Rows(episode, from, to int) []robocache.Row {
	rows := make([]robocache.Row, to-from)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: from + i}
	}
	return rows
}

// Grid is the timestamps of n rows at a rate.
func Grid(rate robocache.Rate, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = rate.Nanos(int64(i))
	}
	return out
}

// AllValid marks every row.
func AllValid(valid []uint8) {
	for i := range valid {
		valid[i] = 1
	}
}

// Base is what every dataset of files has: its description, the bytes below it, and its
// capabilities.
type Base struct {
	About   *robocache.Info
	Bytes   store.Store
	Offered robocache.Capabilities // set when the dataset is opened
}

// Info is what the dataset says of itself, and what opening it found.
func (b *Base) Info() *robocache.Info { return b.About }

// Store gives the bytes below the dataset.
func (b *Base) Store() store.Store { return b.Bytes }

// Capabilities returns the optional operations that the reader has set.
func (b *Base) Capabilities() *robocache.Capabilities { return &b.Offered }

// Stats gives nil: most formats bring none.
func (b *Base) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close closes the store.
func (b *Base) Close() error { return store.Close(b.Bytes) }

// InOrder gives the places of times in their order, those of one time in their own; nil where they
// are in order.
func InOrder(at []int64) []int32 {
	if slices.IsSorted(at) {
		return nil
	}
	p := make([]int32, len(at))
	for i := range p {
		p[i] = int32(i)
	}
	slices.SortStableFunc(p, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
	return p
}

// Permute gives v in an order; nil order and nil v stay.
func Permute[T any](v []T, p []int32) []T {
	if p == nil || v == nil {
		return v
	}
	out := make([]T, len(p))
	for i, k := range p {
		out[i] = v[k]
	}
	return out
}

// Unfinished lies in a folder while files are written into it that are a dataset each. Where shards
// are written, what ends it is committed: one put.
const (
	Unfinished = ".robocache-unfinished"
	committed  = "_commit.json" // package shard
)

// Files lists files of a store that are a dataset each (store.Files), their names in the order of
// the numbers in them. A folder that is Unfinished is refused.
func Files(
	ctx context.Context,
	s store.Store,
	is func(name string) bool,
) (names []string, files, links []store.Entry, err error) {
	files, links, err = store.Files(
		ctx,
		s,
		"",
		func(name string) bool { return name == Unfinished || name == committed || is(name) },
	)
	begun, ended := false, false
	files = slices.DeleteFunc(files, func(e store.Entry) bool {
		begun, ended = begun || e.Name == Unfinished, ended || e.Name == committed
		return e.Name == Unfinished || e.Name == committed
	})
	if begun && !ended {
		return nil, nil, nil, errUnfinished
	}
	for _, e := range files {
		names = append(names, e.Name)
	}
	slices.SortFunc(names, natural.Compare)
	return names, files, links, err
}

// errUnfinished is what opening such a folder says.
var errUnfinished = robocache.Malformed("open", robocache.Where{"file": Unfinished}, "a conversion ended in the middle: some recordings are missing").
	WithHint("empty the folder and convert again; or remove this file to open what is there")
