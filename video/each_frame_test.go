package video

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// EachFrame shows every position once, in order or, with threads, in any order. A frame that a run
// shows twice is decoded once.
func TestEachFrame(t *testing.T) {
	b := &scripted{}
	f := withScripted(t, b)
	in := func(path string, ordinals ...int) (refs []robocache.FrameRef) {
		for _, k := range ordinals {
			refs = append(refs, robocache.FrameRef{Path: path, Ordinal: k})
		}
		return refs
	}
	refs := slices.Concat(
		in("a", 0, 1, 1, 4),
		[]robocache.FrameRef{{}, {Path: "a", Missing: true}},
		in("b", 5),
		in("a", 2, 0),
		in("b", 3),
	)
	for _, threads := range []int{0, 1, 3} {
		var mu sync.Mutex
		var got []int
		calls := 0
		err := EachFrame(
			t.Context(),
			f.lib,
			refs,
			Each{Threads: threads},
			func(at []int, _ Frame) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, at...)
				calls++
				for _, i := range at[1:] {
					if refs[i].Path != refs[at[0]].Path || refs[i].Ordinal != refs[at[0]].Ordinal {
						t.Errorf("%+v and %+v are shown as one", refs[i], refs[at[0]])
					}
				}
				return nil
			},
		)
		want := len(refs) - 1 // ordinal 1 is shown in one call
		if threads > 1 {
			want-- // also ordinal 0, because "a" is one run
			slices.Sort(got)
		}
		if err != nil || calls != want || !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("%d threads: %v in %d calls, %v", threads, got, calls, err)
		}
		mine := errors.New("mine")
		if err := EachFrame(
			t.Context(),
			f.lib,
			refs,
			Each{Threads: threads},
			func([]int, Frame) error { return mine },
		); !errors.Is(
			err,
			mine,
		) {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := EachFrame(
			t.Context(),
			f.lib,
			in("a", 1, 9),
			Each{Threads: threads},
			func([]int, Frame) error { return nil },
		); !errors.Is(
			err,
			robocache.ErrNotFound,
		) {
			t.Errorf("%d threads, a frame that is not there: %v", threads, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := EachFrame(
			ctx,
			f.lib,
			refs,
			Each{Threads: threads},
			func([]int, Frame) error { return nil },
		); !errors.Is(
			err,
			context.Canceled,
		) {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
	if err := EachFrame(
		t.Context(),
		nil,
		refs,
		Each{},
		func([]int, Frame) error { return nil },
	); !errors.Is(
		err,
		robocache.ErrUnsupported,
	) {
		t.Errorf("no library: %v", err)
	}
}
