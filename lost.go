package robocache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Whole is an error where opening could not read files of chosen episodes (positions; nil: all; Finding.Lost): whoever goes on without
// them must have been told to. hint says how.
func Whole(ctx context.Context, ds Dataset, episodes []int, op, hint string) error {
	info := ds.Info()
	var first *Error
	more := 0
	for i := range info.Findings {
		f := &info.Findings[i]
		if !f.Lost {
			continue
		}
		if number, named := f.Where["episode"]; named {
			if e, ok := PositionOf(ctx, ds, number); !ok || episodes != nil && !slices.Contains(episodes, e) {
				continue // of another split, or not chosen
			}
		}
		if first != nil {
			more++
			continue
		}
		where := Where{"dataset": info.URI}
		maps.Copy(where, f.Where)
		first = &Error{Class: ErrMalformed, Op: op, Where: where, Msg: f.Message, Hint: hint}
		if f.Hint != "" && !strings.Contains(f.Message, f.Hint) {
			first.Hint += "; or: " + f.Hint
		}
	}
	if first == nil {
		return nil
	}
	if more > 0 {
		first.Msg += fmt.Sprintf(" (and %d more such findings)", more)
	}
	return first
}

// PositionOf finds the episode that a finding names by its number.
func PositionOf(ctx context.Context, ds Dataset, number any) (int, bool) {
	var id int64
	switch v := number.(type) {
	case int:
		id = int64(v)
	case int64:
		id = v
	default:
		return 0, false
	}
	is := func(e int) bool {
		ep, err := ds.Episode(ctx, e)
		return err == nil && ep.Index == id || err != nil && int64(e) == id // one that cannot be read may not even have a number
	}
	n := ds.Info().Episodes
	if id >= 0 && id < int64(n) && is(int(id)) {
		return int(id), true
	}
	for e := range n {
		if is(e) {
			return e, true
		}
	}
	return 0, false
}
