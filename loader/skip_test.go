package loader

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestMissingFrameIsAnError checks loader.L8: a missing frame is an error with its place, and the
// loader's position is unchanged.
func TestMissingFrameIsAnError(t *testing.T) {
	f := newFake(10, 10, 10)
	f.frames.missing = map[robocache.Row]bool{{Episode: 1, Index: 4}: true}
	l := mustLoader(t, f, options.Config{Order: options.Order{BatchSize: 5}})
	for k := 0; ; k++ {
		b, err := l.Next(bg)
		if err != nil {
			if k != 2 || !errors.Is(err, robocache.ErrMalformed) {
				t.Fatalf("batch %d: %v", k, err)
			}
			for _, s := range []string{"episode 1", "row 4", "cam"} {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v does not name %s", err, s)
				}
			}
			break
		}
		b.Release()
	}
	if s := l.State(); s.Position != 10 {
		t.Errorf("position %d after the error", s.Position)
	}
	f.frames.missing = nil // fixed: the same batch comes
	b, err := l.Next(bg)
	if err != nil || b.Position != 10 {
		t.Fatalf("after the correction: %v", err)
	}
	b.Release()
}

// loader.L13: bad episodes are left out from the batch on where they were found, whatever threads
// and prefetch; the list is in the state.
func TestSkip(t *testing.T) {
	faults := map[string]func(f *fake){
		"missing frame": func(f *fake) {
			f.frames.missing = map[robocache.Row]bool{{Episode: 2, Index: 3}: true}
		},
		"broken packet": func(f *fake) {
			f.frames.broken = map[string]map[int]bool{"v0.mp4": {25: true}}
		},
		"lost file": func(f *fake) { f.frames.lost = map[string]bool{"v1.mp4": true} },
		"bad row group": func(f *fake) {
			f.badRows = map[int]error{
				1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "bad page"},
				4: &robocache.Error{Class: robocache.ErrMalformed, Msg: "bad page"},
			}
		},
	}
	for name, fault := range faults {
		var first []int64
		var bad []BadEpisode
		for _, how := range []options.Config{
			{Runtime: options.Runtime{Threads: 1, Prefetch: 1}},
			{Runtime: options.Runtime{Threads: 4, Prefetch: 6}},
			{Runtime: options.Runtime{Threads: 2, Prefetch: 3}},
		} {
			f := newFake(12, 12, 12, 12, 12, 12)
			fault(f)
			cfg := options.Config{
				Order: options.Order{
					BatchSize:    7,
					Shuffle:      Global,
					Seed:         8,
					OnBadEpisode: "skip",
				},
				Runtime: options.Runtime{Threads: how.Threads, Prefetch: how.Prefetch},
			}
			l := mustLoader(t, f, cfg)
			got, _ := epochOf(t, f, l)
			s := l.State()
			if first == nil {
				first, bad = got, s.BadEpisodes
				if len(bad) == 0 {
					t.Fatalf("%s: no episode was found bad", name)
				}
				if st := l.Stats(); st.Errors["malformed"]+
					st.Errors["not_found"] < int64(len(bad)) || len(st.Errors) != 1 {
					t.Errorf("%s: errors by class: %v", name, st.Errors)
				}
				if st := l.Stats(); st.Skipped+int64(len(got)) != 72 {
					t.Errorf("%s: %d skipped, %d given", name, st.Skipped, len(got))
				}
				isBad := map[int]bool{}
				for _, b := range bad {
					isBad[b.Episode] = true
				}
				second, _ := epochOf(t, f, l)
				if len(second) != 72-12*len(isBad) {
					t.Errorf(
						"%s: the second epoch has %d samples with %d bad episodes",
						name,
						len(second),
						len(isBad),
					)
				}
				// Resume in the second epoch.
				if err := l.Restore(s, false); err != nil {
					t.Fatal(err)
				}
				if again, _ := epochOf(t, f, l); !slices.Equal(again, second) {
					t.Errorf("%s: resumed with the list, the epoch is another", name)
				}
				continue
			}
			if !slices.Equal(got, first) {
				t.Errorf("%s: the order depends on threads or prefetch", name)
			}
			for i := range bad {
				if bad[i].Episode != s.BadEpisodes[i].Episode ||
					bad[i].Position != s.BadEpisodes[i].Position {
					t.Errorf("%s: %+v, %+v", name, bad[i], s.BadEpisodes[i])
				}
			}
		}
	}
}

func TestSkipKeepsRanksEqual(t *testing.T) {
	counts := map[int]bool{}
	for rank := range 3 {
		f := newFake(12, 12, 12, 12)
		f.frames.missing = map[robocache.Row]bool{{Episode: 2, Index: 3}: true}
		l := mustLoader(
			t,
			f,
			options.Config{
				Order: options.Order{
					BatchSize:    4,
					WorldSize:    3,
					Rank:         rank,
					Shuffle:      Global,
					OnBadEpisode: "skip",
				},
			},
		)
		_, n := epochOf(t, f, l)
		counts[n] = true
	}
	if len(counts) != 1 {
		t.Errorf("ranks gave different numbers of batches: %v", counts)
	}
}

// All samples of a rank are bad: an error, not a shorter epoch that leaves the other ranks waiting.
func TestSkipOfAWholeRank(t *testing.T) {
	f := newFake(4, 4)
	f.perFile = 1
	f.frames.lost = map[string]bool{"v1.mp4": true}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order: options.Order{BatchSize: 4, WorldSize: 2, Rank: 1, OnBadEpisode: "skip"},
		},
	)
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

func TestAllBadIsAnError(t *testing.T) {
	f := newFake(5, 5)
	f.frames.lost = map[string]bool{"v0.mp4": true}
	l := mustLoader(t, f, options.Config{Order: options.Order{BatchSize: 4, OnBadEpisode: "skip"}})
	for range 3 {
		if _, err := l.Next(bg); err == nil || err == io.EOF {
			t.Fatalf("every episode is bad, and Next gives %v", err)
		}
	}
}

// An episode without rows is no good one: when all others are bad there is nothing to give.
func TestAllBadBesideAnEmptyOne(t *testing.T) {
	f := newFake(5, 0, 5)
	f.frames.lost = map[string]bool{"v0.mp4": true}
	l := mustLoader(t, f, options.Config{Order: options.Order{BatchSize: 4, OnBadEpisode: "skip"}})
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// TestSkippedAreCountedOnce checks that skipped samples are counted once, even if a bad episode
// makes the loader plan again.
func TestSkippedAreCountedOnce(t *testing.T) {
	for _, prefetch := range []int{1, 8} {
		f := newFake(6, 6, 6, 6)
		f.perFile = 1
		f.frames.lost = map[string]bool{"v1.mp4": true, "v3.mp4": true}
		l := mustLoader(
			t,
			f,
			options.Config{
				Order:   options.Order{BatchSize: 4, OnBadEpisode: "skip"},
				Runtime: options.Runtime{Prefetch: prefetch, Threads: 2},
			},
		)
		for epoch := range 2 {
			got, _ := epochOf(t, f, l)
			if s := l.Stats(); len(got) != 12 || s.Skipped != int64(12*(epoch+1)) {
				t.Errorf(
					"prefetch %d, epoch %d: %d given, %d skipped in all",
					prefetch,
					epoch,
					len(got),
					s.Skipped,
				)
			}
		}
	}
}

// loader.L13 on a timeline: a bad row group and bad timestamps cost their episodes, not the run.
func TestSkipOnATimeline(t *testing.T) {
	hz := robocache.Rate{Num: 20, Den: 1}
	for name, fault := range map[string]func(f *fake){
		"bad row group": func(f *fake) {
			f.badRows = map[int]error{
				1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "bad page"},
			}
		},
		"bad timestamps": func(f *fake) {
			f.badTimes = map[int]error{
				1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "NaN timestamp"},
			}
		},
	} {
		f := newFake(11, 11, 11)
		fault(f)
		l := mustLoader(
			t,
			f,
			options.Config{
				Windows: options.Windows{Hz: &hz, Keys: []string{"observation.state"}},
				Order:   options.Order{BatchSize: 5, OnBadEpisode: "skip"},
			},
		)
		for range 2 {
			if got, _ := epochOf(t, nil, l); len(got) != 42 {
				t.Errorf("%s: %d samples", name, len(got))
			}
		}
		if s := l.Stats(); s.Skipped == 0 || len(s.BadEpisodes)+len(s.Warnings) != 1 {
			t.Errorf("%s: %d skipped, %v %v", name, s.Skipped, s.BadEpisodes, s.Warnings)
		}
		strict, err := New(
			bg,
			f,
			options.Config{
				Windows: options.Windows{Hz: &hz, Keys: []string{"observation.state"}},
				Order:   options.Order{BatchSize: 40},
			},
		)
		if err == nil {
			_, err = strict.Next(bg)
			strict.Close()
		}
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s, not skipped: %v", name, err)
		}
	}
}

// loader.L4: whether a frame can be had does not depend on its neighbours in the group; one of
// another size is bad alone.
func TestOneBadFrameInAGroup(t *testing.T) {
	f := newFake(2, 2, 2)
	f.frames.odd = map[string]map[int]bool{"v0.mp4": {1: true}}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 6, OnBadEpisode: "skip"},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	if got, _ := epochOf(t, f, l); !slices.Equal(got, []int64{2, 3, 4, 5}) {
		t.Errorf("samples %v", got)
	}
	strict := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 6},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	if _, err := strict.Next(bg); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "8×4") || !strings.Contains(err.Error(), "v0.mp4") {
		t.Errorf("%v", err)
	}
}

// A dataset that refuses one episode's frames costs that episode, also where the timeline asks for
// places without a row.
func TestRefusedFramesOnATimeline(t *testing.T) {
	f := newFake(5, 5, 5)
	f.late = func(key string, _ int) int64 {
		if key == "observation.state" {
			return -200_000_000
		}
		return 0
	}
	f.frames.refused = map[int]error{
		1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "no such column"},
	}
	var mask align.PerKey[align.Edge]
	mask.All = align.EdgeMask
	cfg := options.Config{
		Align:   &align.Config{HZ: robocache.Rate{Num: 10, Den: 1}, Edge: mask, Extent: "union"},
		Windows: options.Windows{Keys: []string{"observation.state", "cam"}},
		Order:   options.Order{BatchSize: 30, OnBadEpisode: "skip"},
	}
	l := mustLoader(t, f, cfg)
	got, _ := epochOf(t, nil, l)
	if s := l.Stats(); len(got) != 14 || len(s.BadEpisodes) != 1 || s.BadEpisodes[0].Episode != 1 {
		t.Errorf("%d samples, %v", len(got), s.BadEpisodes)
	}
}

// TestSkipByFindings checks that episodes that opening lost are omitted, and none whose finding
// states that it is read.
func TestSkipByFindings(t *testing.T) {
	for _, lost := range []bool{false, true} {
		f := newFake(4, 4, 4)
		f.Info().Findings = []robocache.Finding{
			{
				Severity: robocache.SeverityError,
				Code:     "any",
				Where:    robocache.Where{"episode": 1},
				Message:  "wrong",
				Lost:     lost,
			},
		}
		want, wantBad := 12, 0
		if lost {
			want, wantBad = 8, 1
		}
		l := mustLoader(
			t,
			f,
			options.Config{Order: options.Order{BatchSize: 4, OnBadEpisode: options.Skip}},
		)
		got, _ := epochOf(t, nil, l)
		if bad := l.Stats().BadEpisodes; len(got) != want || len(bad) != wantBad {
			t.Errorf("lost %v: %d samples, want %d; bad episodes %+v", lost, len(got), want, bad)
		}
	}
}
