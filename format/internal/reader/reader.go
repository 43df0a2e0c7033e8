// Package reader holds the shared parts of format readers: opening a dataset, and checking the
// arguments of callers with errors that state the fault.
package reader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/store"
)

// Opener converts the Open function of a reader to the type that the registry expects.
func Opener[D robocache.Dataset](
	open func(ctx context.Context, uri string, opt robocache.OpenOptions) (D, error),
) func(context.Context, string, robocache.OpenOptions) (robocache.Dataset, error) {
	return func(ctx context.Context, uri string, opt robocache.OpenOptions) (robocache.Dataset, error) {
		d, err := open(ctx, uri, opt)
		if err != nil {
			return nil, err // not d, because an interface that holds a nil pointer is not nil
		}
		return d, nil
	}
}

// Open opens the dataset in the store at uri. The dataset owns the store; if open fails, the store
// is closed.
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

// Budget returns the memory budget of opt, at least smallest, or usual if opt has none.
func Budget(opt robocache.OpenOptions, usual, smallest int64) int64 {
	if opt.MemoryBudget <= 0 {
		return usual
	}
	return max(opt.MemoryBudget, smallest)
}

// Op is the name of a format in errors.
type Op string

func (op Op) misuseError(where robocache.Where, want, got string) error {
	return robocache.Misuse(string(op), where, "").Expected(want, got)
}

// NoStream returns the error about a stream that does not exist.
func (op Op) NoStream(key string) error {
	return robocache.NotFound(string(op), robocache.Where{"stream": key}, "no such stream")
}

// Kind returns an error if the kind of a stream is not in want.
func (op Op) Kind(key string, got robocache.Kind, want ...robocache.Kind) error {
	if slices.Contains(want, got) {
		return nil
	}
	return op.misuseError(
		robocache.Where{"stream": key},
		"a stream of kind "+string(want[0]),
		string(got),
	)
}

// Episode returns an error if position is not a position of n episodes.
func (op Op) Episode(n, position int) error {
	if position >= 0 && position < n {
		return nil
	}
	return op.misuseError(
		robocache.Where{"position": position},
		fmt.Sprintf("the position of an episode, 0 to %d", n-1),
		fmt.Sprint(position),
	)
}

// Row returns an error if r is not a row of an episode with n rows.
func (op Op) Row(info *robocache.Info, n int, r robocache.Row) error {
	if r.Index >= 0 && r.Index < n {
		return nil
	}
	return op.misuseError(
		robocache.Where{"episode": info.EpisodeIndex(r.Episode), "row": r.Index},
		fmt.Sprintf("a row from 0 to %d", n-1),
		fmt.Sprint(r.Index),
	)
}

// Room returns an error if the size of a caller's result differs from want. what is the unit, such
// as bytes.
func (op Op) Room(key, what string, want, got int) error {
	if want == got {
		return nil
	}
	return op.misuseError(
		robocache.Where{"stream": key},
		fmt.Sprintf("%d %s", want, what),
		fmt.Sprint(got),
	)
}

// Episodes returns the requested positions, or all n positions if asked is nil.
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

// Rows returns the rows from ≤ k < to of an episode.
func Rows(episode, from, to int) []robocache.Row {
	rows := make([]robocache.Row, to-from)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: from + i}
	}
	return rows
}

// Grid returns the timestamps of n rows at a rate.
func Grid(rate robocache.Rate, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = rate.Nanos(int64(i))
	}
	return out
}

// AllValid marks every row as valid.
func AllValid(valid []uint8) {
	for i := range valid {
		valid[i] = 1
	}
}

// Base holds the common fields of datasets in files: description, store and capabilities.
type Base struct {
	About   *robocache.Info
	Bytes   store.Store
	Offered robocache.Capabilities // set when the dataset is opened
}

// Info returns the description of the dataset, with the findings of opening it.
func (b *Base) Info() *robocache.Info { return b.About }

// Store returns the store of the dataset.
func (b *Base) Store() store.Store { return b.Bytes }

// Capabilities returns the optional operations that the reader has set.
func (b *Base) Capabilities() *robocache.Capabilities { return &b.Offered }

// Stats returns nil, because most formats have no statistics.
func (b *Base) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close closes the store.
func (b *Base) Close() error { return store.Close(b.Bytes) }

// InOrder returns the stable permutation that sorts at, or nil if at is sorted.
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

// Permute returns v in the order of p. It returns v itself if p or v is nil.
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

// Unfinished is a file that marks a folder while datasets of one file each are written into it. If
// shards are written, the commit ends this state with one put of another file.
const (
	Unfinished = ".robocache-unfinished"
	committed  = "_commit.json" // written by package shard
)

// Listing lists the files of a store that are a dataset each.
type Listing struct {
	Names []string // ordered by the numbers in them
	Files []store.Entry
	Links []store.Entry // links that may lead to folders of other files
	// HasIndex reports whether the store has an index of recordings.
	HasIndex bool
	// IsFolder reports that the URI names a folder of files, and not one file.
	IsFolder bool
}

// EntryOf returns the entry of a file, or an entry without a version if it is not listed.
func (l *Listing) EntryOf(name string) store.Entry {
	i, ok := slices.BinarySearchFunc(l.Files, name, func(e store.Entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	if !ok || l.Files[i].Err != nil {
		return store.Entry{Name: name}
	}
	return l.Files[i]
}

// Files lists the files of a store that are a dataset each (store.Files). A folder with the mark
// Unfinished is an error.
func Files(
	ctx context.Context,
	s store.Store,
	is func(name string) bool,
) (out Listing, err error) {
	marks := []string{Unfinished, committed, recindex.Name}
	out.Files, out.Links, err = store.Files(
		ctx,
		s,
		"",
		func(name string) bool { return slices.Contains(marks, name) || is(name) },
	)
	begun, ended := false, false
	out.Files = slices.DeleteFunc(out.Files, func(e store.Entry) bool {
		switch e.Name {
		case Unfinished:
			begun = true
		case committed:
			ended = true
		case recindex.Name:
			out.HasIndex = true
		default:
			return false
		}
		return true
	})
	if begun && !ended {
		return Listing{}, errUnfinished
	}
	for _, e := range out.Files {
		out.Names = append(out.Names, e.Name)
	}
	slices.SortFunc(out.Names, natural.Compare)
	return out, err
}

// errUnfinished is the error about such a folder.
var errUnfinished = robocache.Malformed(
	"open",
	robocache.Where{"file": Unfinished},
	"a conversion did not finish: some recordings are missing",
).
	WithHint(
		"empty the folder and convert again, or remove this file to open the existing recordings",
	)
