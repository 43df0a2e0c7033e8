package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// growing is a dataset that grows: open returns its first episodes.
type growing struct {
	lengths []int
	seen    atomic.Int64 // number of episodes that a reader sees
	opens   atomic.Int64
	broken  atomic.Bool // opening fails, as while a recorder is at work
	change  func(f *fake)
}

func newGrowing(seen int, lengths ...int) *growing {
	g := &growing{lengths: lengths}
	g.seen.Store(int64(seen))
	return g
}

func (g *growing) open(context.Context) (robocache.Dataset, error) {
	g.opens.Add(1)
	if g.broken.Load() {
		return nil, robocache.Malformed("open", nil, "a recorder is at work")
	}
	f := newFake(g.lengths[:g.seen.Load()]...)
	if g.change != nil {
		g.change(f)
	}
	return f, nil
}

// followConfig returns a configuration with follow as JSON, and a log in dir.
func followConfig(t testing.TB, dir, follow string) Config {
	t.Helper()
	cfg := parsedConfig(t, `{"keys": ["index", "observation.state"], "batch_size": 4, "seed": 5}`)
	f := &Follow{}
	if err := json.Unmarshal([]byte(follow), f); err != nil {
		t.Fatal(err)
	}
	if f.Log == "" {
		f.Log = filepath.Join(dir, "arrivals.log")
	}
	cfg.Follow = f
	return cfg
}

func mustFollow(t testing.TB, g *growing, cfg Config) *Loader {
	t.Helper()
	l, err := NewFollower(bg, g.open, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// followedRows takes the rest of an epoch, and returns the numbers of the rows in the dataset.
func followedRows(t testing.TB, l *Loader) (rows []int64) {
	t.Helper()
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, rowsIn(b)...)
		b.Release()
	}
}

// rowsIn returns the numbers of the rows of a batch, by their states.
func rowsIn(b *Batch) (rows []int64) {
	for i := range b.Tensors {
		if len(b.Tensors[i].Data) != b.Rows*12 {
			continue
		}
		for r := range b.Rows {
			bits := uint32(0)
			for k := range 4 {
				bits |= uint32(b.Tensors[i].Data[r*12+k]) << (8 * k)
			}
			rows = append(rows, int64(math.Float32frombits(bits)))
		}
	}
	return rows
}

// episodeCounts counts the rows of each episode.
func episodeCounts(rows []int64) map[int64]int {
	out := map[int64]int{}
	for _, r := range rows {
		out[r/1000]++
	}
	return out
}

// TestFollowAdmitsEpisodesAtEpochs checks that episodes that arrive within an epoch are delivered in
// the next one, each row once, and that an epoch without arrivals keeps its assembler.
func TestFollowAdmitsEpisodesAtEpochs(t *testing.T) {
	g := newGrowing(2, 5, 6, 7, 8)
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `true`))
	for epoch, seen := range []int64{2, 2, 3, 4} {
		want := 0
		for _, n := range g.lengths[:seen] {
			want += n
		}
		b, err := l.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		first := rowsIn(b)
		b.Release()
		if epoch > 0 {
			g.seen.Store(min(seen+1, 4)) // within the epoch
		}
		if n := l.Samples(); n != int64(want) {
			t.Errorf("epoch %d: %d samples, want %d", epoch, n, want)
		}
		rows := append(first, followedRows(t, l)...)
		slices.Sort(rows)
		if len(slices.Compact(rows)) != want {
			t.Errorf("epoch %d: %d different rows, want %d", epoch, len(rows), want)
		}
	}
	s := l.Stats()
	if s.Follow.Arrivals != 4 || s.Follow.Boundary != 3 || s.Samples != 11+11+18+26 {
		t.Errorf("statistics: %+v, %d samples", s.Follow, s.Samples)
	}
}

// TestFollowIsAFunctionOfTheLog checks that a second loader of the same run, later and with more
// episodes, delivers the same batches.
func TestFollowIsAFunctionOfTheLog(t *testing.T) {
	for _, shuffle := range []string{"global", "pool", ""} {
		for _, rule := range []string{
			`{"run": "a"}`,
			`{"run": "a", "capacity": 3}`,
			`{"run": "a", "recency": 2}`,
			`{"run": "a", "recency": 2, "at": "step", "every": 3, "where": "length < 9"}`,
		} {
			dir := t.TempDir()
			g := newGrowing(2, 5, 6, 7, 9, 8, 4, 5, 6)
			cfg := followConfig(t, dir, rule)
			cfg.Shuffle = Shuffle(shuffle)
			first := mustFollow(t, g, cfg)
			var want [][]int64
			for range 6 {
				want = append(want, followedRows(t, first))
				g.seen.Add(1)
			}
			again := mustFollow(t, g, cfg)
			for epoch := range want {
				if got := followedRows(t, again); !slices.Equal(got, want[epoch]) {
					t.Fatalf("%s %s, epoch %d: %v, want %v", shuffle, rule, epoch, got, want[epoch])
				}
			}
			first.Close()
			again.Close()
		}
	}
}

// TestFollowResumesAtEveryStep cuts a run at every step, across boundaries: a new loader that is
// restored delivers the rest, although more episodes have arrived since.
func TestFollowResumesAtEveryStep(t *testing.T) {
	for _, x := range []struct{ rule, order string }{
		{`{"at": "epoch"}`, "global"},
		{`{"at": "epoch", "every": 2, "capacity": 3}`, "global"},
		{`{"at": "step", "every": 2, "recency": 1.5}`, "global"},
		{`{"at": "epoch", "recency": 1}`, "pool"},
	} {
		g := newGrowing(2, 5, 6, 7, 9, 8, 4)
		cfg := followConfig(t, t.TempDir(), x.rule)
		cfg.Shuffle, cfg.PoolEpisodes = Shuffle(x.order), 2
		if x.order != "pool" {
			cfg.PoolEpisodes = 0
		}
		l := mustFollow(t, g, cfg)
		var states []State
		var batches [][]int64
		for epoch := 0; epoch < 5; {
			states = append(states, throughJSON(t, l.State()))
			b, err := l.Next(bg)
			if err == io.EOF {
				epoch++
				g.seen.Store(min(g.seen.Load()+1, 6))
				batches = append(batches, nil)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			batches = append(batches, rowsIn(b))
			b.Release()
		}
		l.Close()
		for cut := range states {
			resumed := mustFollow(t, g, cfg)
			if err := resumed.Restore(states[cut], false); err != nil {
				t.Fatalf("%s, step %d: %v", x.rule, cut, err)
			}
			got := [][]int64{}
			for len(got) < len(batches)-cut {
				b, err := resumed.Next(bg)
				if err == io.EOF {
					got = append(got, nil)
					continue
				}
				if err != nil {
					t.Fatalf("%s, step %d: %v", x.rule, cut, err)
				}
				got = append(got, rowsIn(b))
				b.Release()
			}
			resumed.Close()
			want := batches[cut:]
			// A state after the last batch of an epoch begins at the next epoch.
			if want[0] == nil && got[0] != nil {
				want, got = want[1:], got[:len(want)-1]
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%s, cut at step %d, step %d after it: %v, want %v", x.rule, cut, i,
						got[i], want[i])
				}
			}
		}
	}
}

// TestFollowRules compares the episodes of an epoch with those that the rule states.
func TestFollowRules(t *testing.T) {
	lengths := []int{8, 8, 8, 8, 16, 8}
	for _, x := range []struct {
		rule string
		want map[int64]int
	}{
		{`{}`, map[int64]int{0: 8, 1: 8, 2: 8, 3: 8, 4: 16, 5: 8}},
		{`{"capacity": 2}`, map[int64]int{4: 16, 5: 8}},
		{`{"where": "length < 10"}`, map[int64]int{0: 8, 1: 8, 2: 8, 3: 8, 5: 8}},
		{`{"where": "length < 10", "capacity": 2}`, map[int64]int{3: 8, 5: 8}},
		{`{"recency": 1}`, map[int64]int{0: 1, 1: 1, 2: 1, 3: 2, 4: 8, 5: 8}},
		// The first state of episode e is 1000·e.
		{`{"version": "observation.state", "version_lag": 1000}`, map[int64]int{4: 16, 5: 8}},
		{
			`{"version": "observation.state", "recency": 1000, "recency_unit": "versions",
			  "capacity": 3}`,
			map[int64]int{3: 2, 4: 8, 5: 8},
		},
	} {
		l := mustFollow(t, newGrowing(6, lengths...), followConfig(t, t.TempDir(), x.rule))
		got := episodeCounts(followedRows(t, l))
		if fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %v rows of the episodes, want %v", x.rule, got, x.want)
		}
		l.Close()
	}
}

// TestFollowStepsHaveALength checks that every makes an epoch of that many steps, also with fewer
// samples.
func TestFollowStepsHaveALength(t *testing.T) {
	g := newGrowing(1, 5, 6)
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `{"at": "step", "every": 3}`))
	for epoch := range 3 {
		if rows := followedRows(t, l); len(rows) != 12 || l.Len() != 3 {
			t.Errorf("epoch %d: %d rows, %d steps, want 12 and 3", epoch, len(rows), l.Len())
		}
		g.seen.Store(2)
	}
	if n := l.Stats().Follow.Arrivals; n != 2 {
		t.Errorf("%d arrivals, want 2", n)
	}
}

// TestFollowOfTwoRanks checks that rank 1 waits for the boundary of rank 0 and sees the same
// episodes, and that it fails with a typed error if rank 0 does not come.
func TestFollowOfTwoRanks(t *testing.T) {
	dir := t.TempDir()
	g := newGrowing(2, 5, 6, 7, 9)
	cfg := followConfig(t, dir, `{"run": "a", "timeout_s": 60}`)
	cfg.WorldSize = 2
	ranks := make([]*Loader, 2)
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			cfg := cfg
			cfg.Rank = rank
			if rank == 0 {
				time.Sleep(20 * time.Millisecond)
			}
			l, err := NewFollower(bg, g.open, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			ranks[rank] = l
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for epoch := range 3 {
		total := 0
		for _, n := range g.lengths[:2+epoch] {
			total += n
		}
		parts := make([][]int64, 2)
		for rank := range ranks {
			wg.Go(func() {
				for {
					b, err := ranks[rank].Next(bg)
					if err == io.EOF {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if rank == 0 && len(parts[0]) == 0 {
						g.seen.Store(int64(min(3+epoch, 4))) // rank 1 may not have begun yet
					}
					parts[rank] = append(parts[rank], rowsIn(b)...)
					b.Release()
				}
			})
		}
		wg.Wait()
		g.seen.Store(int64(min(3+epoch, 4)))
		all := slices.Concat(parts...)
		slices.Sort(all)
		if n := len(slices.Compact(all)); n != total || len(parts[0]) != len(parts[1]) {
			t.Errorf("epoch %d: %d different rows, want %d; ranks have %d and %d", epoch, n, total,
				len(parts[0]), len(parts[1]))
		}
	}
	for _, l := range ranks {
		l.Close()
	}
	cfg.Rank, cfg.Follow.Run, cfg.Follow.Timeout = 1, "b", 0.1
	if _, err := NewFollower(bg, g.open, cfg); !errors.Is(err, robocache.ErrTemporary) {
		t.Errorf("rank 1 alone: %v", err)
	}
	cfg.Follow.Run = ""
	if _, err := NewFollower(bg, g.open, cfg); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("two ranks without a run: %v", err)
	}
}

// TestFollowKeepsItsEpisodesIfOpeningFails checks that an epoch has the earlier episodes if the
// dataset does not open, and that the failure is reported.
func TestFollowKeepsItsEpisodesIfOpeningFails(t *testing.T) {
	g := newGrowing(2, 5, 6, 7)
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `true`))
	followedRows(t, l)
	g.seen.Store(3)
	g.broken.Store(true)
	if rows := followedRows(t, l); len(rows) != 11 {
		t.Errorf("%d rows while the dataset does not open, want 11", len(rows))
	}
	if s := l.Stats(); s.Follow.Failures != 1 || len(s.Warnings) != 1 {
		t.Errorf("statistics: %+v, warnings %v", s.Follow, s.Warnings)
	}
	g.broken.Store(false)
	if rows := followedRows(t, l); len(rows) != 18 {
		t.Errorf("%d rows after it, want 18", len(rows))
	}
}

// TestFollowOpensAgainAfterAFailure checks that an episode whose file was replaced while it was read
// is read again, and that lasting damage is an error.
func TestFollowOpensAgainAfterAFailure(t *testing.T) {
	g := newGrowing(2, 5, 6)
	bad := robocache.Malformed("gather", nil, "the file changed")
	fails := 1
	g.change = func(f *fake) {
		if fails > 0 {
			f.badRows = map[int]error{1: bad}
			fails--
		}
	}
	for _, onBad := range []string{"error", "skip"} {
		fails = 1
		cfg := followConfig(t, t.TempDir(), `true`)
		cfg.OnBadEpisode = OnBad(onBad)
		l := mustFollow(t, g, cfg)
		if rows := followedRows(t, l); len(rows) != 11 {
			t.Errorf("%s: %d rows, want 11", onBad, len(rows))
		}
	}
	fails = 99
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `true`))
	for {
		if _, err := l.Next(bg); errors.Is(err, robocache.ErrMalformed) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowKeepsStatistics checks that the statistics of the first episodes stay, also after a
// restore, and that refresh computes others.
func TestFollowKeepsStatistics(t *testing.T) {
	for _, refresh := range []bool{false, true} {
		g := newGrowing(2, 5, 6, 7)
		cfg := followConfig(t, t.TempDir(), `true`)
		cfg.Keys = []string{"action"}
		cfg.Normalize = Normalize{Mode: "mean_std"}
		cfg.ComputeStats, cfg.RefreshStats = true, refresh
		l := mustFollow(t, g, cfg)
		first := fmt.Sprint(l.Normalizers())
		state := throughJSON(t, l.State())
		for range 2 {
			for {
				b, err := l.Next(bg)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			g.seen.Store(3)
		}
		ended := throughJSON(t, l.State()) // at a boundary
		if got := fmt.Sprint(l.Normalizers()); (got == first) == refresh {
			t.Errorf("refresh %v: %s after %s", refresh, got, first)
		}
		again := mustFollow(t, g, cfg)
		if got := fmt.Sprint(again.Normalizers()); got == first {
			t.Errorf("a new run has the statistics of the first episodes: %s", got)
		}
		if refresh {
			continue // the statistics of an epoch are computed from its episodes
		}
		for _, state := range []State{ended, state} {
			if err := again.Restore(state, false); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(again.Normalizers()); got != first {
				t.Errorf("%s after a restore, want %s", got, first)
			}
		}
	}
}

// TestFollowOfSplits checks that a recorder that has not extended its only split yet is followed, with
// a note, and that several splits are an error.
func TestFollowOfSplits(t *testing.T) {
	g := newGrowing(2, 5, 6)
	g.change = func(f *fake) { f.info.Splits = map[string]string{"train": "0:1"} }
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `true`))
	if rows := followedRows(t, l); len(rows) != 11 || len(l.Notes()) != 1 {
		t.Errorf("%d rows, notes %v; want 11 rows and a note", len(rows), l.Notes())
	}
	g.change = func(f *fake) { f.info.Splits = map[string]string{"train": "0:1", "val": "1:2"} }
	cfg := followConfig(t, t.TempDir(), `true`)
	if _, err := NewFollower(bg, g.open, cfg); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("two splits: %v", err)
	}
	cfg.Split = robocache.SplitAll
	mustFollow(t, g, cfg)
}

// TestFollowRefuses checks the errors of datasets and states that do not fit.
func TestFollowRefuses(t *testing.T) {
	dir := t.TempDir()
	g := newGrowing(2, 5, 6, 7)
	l := mustFollow(t, g, followConfig(t, dir, `true`))
	state := throughJSON(t, l.State())
	followedRows(t, l)

	other := mustFollow(t, newGrowing(2, 5, 6), followConfig(t, t.TempDir(), `true`))
	if err := other.Restore(state, false); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a state of another log: %v", err)
	}
	fixed := mustLoader(t, newFake(5, 6), parsedConfig(t, `{"keys": ["index"]}`))
	if err := fixed.Restore(state, false); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a state of a growing dataset: %v", err)
	}
	if err := l.Restore(fixed.State(), false); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a state of a fixed dataset: %v", err)
	}

	g.lengths[0] = 4 // an episode that changed
	g.seen.Store(3)
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("an episode changed: %v", err)
	}
	g.lengths[0] = 5
	g.change = func(f *fake) { f.info.Features[0].Shape = []int{2} }
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("another shape: %v", err)
	}
	g.change = nil
	if rows := followedRows(t, l); len(rows) != 18 {
		t.Errorf("%d rows after all is well again, want 18", len(rows))
	}

	for _, x := range []string{
		`{"follow": {"at": "hour"}}`, `{"follow": {"at": "step"}}`, `{"follow": {"every": -1}}`,
		`{"follow": {"recency": -1}}`, `{"follow": {"recency_unit": "years"}}`,
		`{"follow": {"capacity": -1}}`, `{"follow": {"version_lag": 1}}`,
		`{"follow": {"where": "length <"}}`, `{"follow": {"timeout_s": -1}}`,
		`{"follow": true, "episodes": [0]}`, `{"follow": true, "split": "train"}`,
		`{"follow": true, "epoch_size": 9}`, `{"follow": true, "episode_weights": {"0": 1}}`,
		`{"follow": true, "segments": {"0": [[0, 1]]}}`, `{"refresh": true}`,
		`{"follow": {"typo": 1}}`,
	} {
		cfg, err := ParseConfig([]byte(x))
		if err == nil {
			_, err = NewFollower(bg, g.open, cfg)
			if cfg.Follow == nil {
				_, err = New(bg, newFake(3), cfg)
			}
		}
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", x, err)
		}
	}
	cfg := followConfig(t, dir, `true`)
	if _, err := New(bg, newFake(3), cfg); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a dataset that is open: %v", err)
	}
	if _, err := NewMap(bg, newFake(3), cfg); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("a map: %v", err)
	}
}

// TestFollowIsSafeForConcurrentUse moves a loader and reads from it while it delivers, and closes it
// while it waits (run with -race).
func TestFollowIsSafeForConcurrentUse(t *testing.T) {
	g := newGrowing(2, slices.Repeat([]int{5}, 300)...)
	l := mustFollow(t, g, followConfig(t, t.TempDir(), `{"at": "step", "every": 2}`))
	ctx, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			l.State()
			l.Stats()
			l.Fields()
			l.Normalizers()
			l.Samples()
			l.Rows([]int64{0})
			g.seen.Store(min(g.seen.Load()+1, 300))
			time.Sleep(time.Millisecond)
		}
	})
	for step := range 60 {
		b, ok, err := l.TryNext()
		if err == nil && !ok {
			b, err = l.Next(bg)
		}
		if err == nil {
			b.Release()
		} else if err != io.EOF {
			t.Fatal(err)
		}
		if step%7 == 0 {
			if err := l.SetEpoch(int64(step)); err != nil {
				t.Fatal(err)
			}
		}
		if step%11 == 0 {
			if err := l.Restore(l.State(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.SetEpoch(1000)
	wg.Go(func() { l.Next(bg) })
	l.Close()
	stop()
	wg.Wait()
}
