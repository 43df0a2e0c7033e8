package shard_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
)

// frail is the scheme of a store that dies or fails at an operation.
var frail struct {
	sync.Mutex
	mem  *storetest.Mem
	plan *storetest.Plan
}

func init() {
	store.Register("frail", func(rest string) (store.Store, error) {
		frail.Lock()
		defer frail.Unlock()
		_, dir, _ := strings.Cut(rest, "/")
		s, err := store.Sub(frail.mem, dir)
		if err != nil {
			return nil, err
		}
		return storetest.Faulty(s, frail.plan), nil
	})
}

func setFrail(mem *storetest.Mem, plan *storetest.Plan) {
	frail.Lock()
	defer frail.Unlock()
	if frail.plan = plan; mem != nil {
		frail.mem = mem
	}
}

// contents returns the files of the result. Receipts are excluded, because they contain times and
// names of attempts.
func contents(t testing.TB, s store.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, err := s.List(context.Background(), "")
	for _, e := range list {
		if strings.Contains(e.Name, "_receipts/") {
			continue
		}
		b, rerr := store.ReadFile(context.Background(), s, e.Name, 1<<30)
		if err = errors.Join(err, rerr); err == nil {
			out[e.Name] = string(b)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func differences(want, got map[string]string) (out []string) {
	for n := range want {
		if got[n] != want[n] {
			out = append(out, "differs: "+n)
		}
	}
	for n := range got {
		if _, ok := want[n]; !ok {
			out = append(out, "too much: "+n)
		}
	}
	return out
}

// work runs every missing shard and commits, like a scheduler.
func plannedWork(ctx context.Context, m *shard.Manifest) error {
	for i := range m.Shards {
		if _, err := shard.Run(ctx, m, i, shard.RunOptions{Threads: 1}); err != nil {
			return err
		}
	}
	_, err := shard.Commit(ctx, m, shard.CommitOptions{})
	return err
}

var killJobs = []shard.Job{
	{
		Name:    "resample",
		To:      "lerobot",
		Convert: convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}}},
	},
	{Name: "convert", To: "mcap"},
	{
		Name:    "resample",
		To:      "delta",
		Convert: convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}}},
	},
	{Name: "stats"},
	{Name: "convert", To: "zarr"},
	{Name: "convert", To: "rlds"},
	{Name: "convert", To: "robomimic"},
}

// TestKilledAnywhere checks processes that die at any operation of the store, also repeatedly; a
// disk that is full from some write on; a store that fails temporarily; and lost responses to
// writes. After a retry, the result equals that of an undisturbed run (shard.H4, shard.H5,
// shard.H6).
func TestKilledAnywhere(t *testing.T) {
	kills := 0
	for _, job := range killJobs {
		job.Source, job.Destination = "synth://heterogeneous?episodes=5&cap=12", "frail://s/out"
		mem := storetest.NewMem("frail")
		setFrail(mem, &storetest.Plan{})
		m := plan(t, job, 2)
		if err := plannedWork(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		want := contents(t, mem)
		rng := rand.New(rand.NewPCG(1, 1))
		for _, how := range []*storetest.Plan{
			{Repeat: true, Err: errors.New("killed")},
			{
				Repeat: true,
				Ops:    storetest.OpWrite | storetest.OpCommit,
				Fault:  storetest.FaultShort,
				Err:    syscall.ENOSPC,
			},
			{Repeat: true},
			{Ops: storetest.OpCommit, Fault: storetest.FaultLost},
			{Ops: storetest.OpCommit, Fault: storetest.FaultLost, Repeat: true},
		} {
			for n := int64(1); ; n++ {
				mem = storetest.NewMem("frail")
				struck := &storetest.Plan{
					Nth:    n,
					Repeat: how.Repeat,
					Ops:    how.Ops,
					Fault:  how.Fault,
					Err:    how.Err,
				}
				setFrail(mem, struck)
				err := plannedWork(t.Context(), m)
				if !struck.Struck() {
					break
				}
				switch {
				case errors.Is(how.Err, syscall.ENOSPC) && err != nil && !errors.Is(
					err,
					robocache.ErrResourceLimit,
				),
					how.Err == nil && err != nil && !errors.Is(err, robocache.ErrTemporary):
					t.Fatalf("%s, %d: %v", job.Name, n, err)
				}
				kills++
				if n%3 == 0 { // and again at another position
					setFrail(
						nil,
						&storetest.Plan{
							Nth:    1 + rng.Int64N(60),
							Repeat: true,
							Err:    errors.New("killed"),
						},
					)
					_ = plannedWork(t.Context(), m)
					kills++
				}
				setFrail(nil, &storetest.Plan{})
				if err := plannedWork(t.Context(), m); err != nil {
					t.Fatalf("%s, %d: %v", job.Name, n, err)
				}
				if _, err := shard.GC(t.Context(), m, 0); err != nil {
					t.Fatal(err)
				}
				if d := differences(want, contents(t, mem)); d != nil {
					t.Fatalf("%s, killed at operation %d: %v", job.Name, n, d)
				}
			}
		}
	}
	t.Logf("%d kills and failures", kills)
	if kills < 500 {
		t.Errorf("only %d kills", kills)
	}
}

// TestFailureIsNoBadEpisode checks that a temporary failure of the source's or the destination's
// store never makes --skip-bad skip an episode.
func TestFailureIsNoBadEpisode(t *testing.T) {
	src := source(t, 3, synth.Options{})
	from, err := store.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	files := contents(t, from)
	for _, job := range killJobs {
		if job.SkipBad, job.Convert.SkipBad = true, true; job.To == "zarr" {
			continue
		}
		for _, failure := range []error{errors.New("killed"), nil, syscall.ENOSPC} {
			job.Source, job.Destination = "synth://heterogeneous?episodes=3&cap=12", "frail://s/out"
			put := func() *storetest.Mem {
				mem := storetest.NewMem("frail")
				if failure == nil { // temporary: the source fails too
					job.Source = "frail://s/src"
					for _, name := range slices.Sorted(maps.Keys(files)) {
						if err := store.Put(t.Context(), mem, "src/"+
							name, []byte(files[name])); err != nil {
							t.Fatal(err)
						}
					}
				}
				setFrail(mem, &storetest.Plan{})
				return mem
			}
			mem := put()
			m := plan(t, job, 2)
			if err := plannedWork(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			want := contents(t, mem)
			for n := int64(1); ; n += 2 {
				mem = put()
				struck := &storetest.Plan{Nth: n, Err: failure}
				setFrail(nil, struck)
				err := plannedWork(t.Context(), m)
				if setFrail(nil, &storetest.Plan{}); !struck.Struck() {
					break
				}
				if err != nil {
					err = plannedWork(t.Context(), m)
				}
				if err == nil {
					_, err = shard.GC(t.Context(), m, 0)
				}
				if d := differences(want, contents(t, mem)); err != nil || d != nil {
					t.Fatalf(
						"%s %s, %v at operation %d: %v, %v",
						job.Name,
						job.To,
						failure,
						n,
						d,
						err,
					)
				}
			}
		}
	}
}

// TestPartialKilled checks a partial commit that is killed at any moment. A shard is missing, so
// later files are renumbered; attempts have moved some of them. The result equals that of an
// undisturbed commit.
func TestPartialKilled(t *testing.T) {
	job := killJobs[0]
	job.Source, job.Destination = "synth://heterogeneous?episodes=6&cap=12", "frail://s/out"
	var m *shard.Manifest
	prepare := func() (mem *storetest.Mem) {
		mem = storetest.NewMem("frail")
		setFrail(mem, &storetest.Plan{})
		for i := 1; i < 4; i++ {
			if i == 2 { // it dies after its receipt and before it moves its files
				received := false
				setFrail(
					nil,
					&storetest.Plan{
						Nth:    8,
						Repeat: true,
						Err:    errors.New("killed"),
						Match: func(op storetest.Op, name string) bool {
							received = received ||
								op == storetest.OpCommit && strings.Contains(name, "_receipts/")
							return received
						},
					},
				)
			}
			_, _ = shard.Run(t.Context(), m, i, shard.RunOptions{Threads: 1})
			setFrail(nil, &storetest.Plan{})
		}
		return mem
	}
	setFrail(storetest.NewMem("frail"), &storetest.Plan{})
	m = plan(t, job, 4)
	commit := func() error {
		_, err := shard.Commit(t.Context(), m, shard.CommitOptions{Partial: true, Verify: true})
		return err
	}
	// Its recent note indicates that it may be running. Its files are renumbered only after the
	// note is old.
	forget := func(mem *storetest.Mem) {
		for name := range contents(t, mem) {
			if strings.Contains(name, "_staging/") && strings.HasSuffix(name, ".json") &&
				strings.Count(name, "/") == 3 {
				if err := mem.Remove(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	mem := prepare()
	if err := commit(); !errors.Is(err, robocache.ErrTemporary) ||
		!strings.Contains(err.Error(), "shard 2") {
		t.Fatal(err)
	}
	forget(mem)
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.GC(t.Context(), m, 0); err != nil {
		t.Fatal(err)
	}
	want := contents(t, mem)
	again := func(n int64) {
		t.Helper()
		if err := commit(); err != nil {
			t.Fatal(n, err)
		}
		if _, err := shard.GC(t.Context(), m, 0); err != nil {
			t.Fatal(err)
		}
		if d := differences(want, contents(t, mem)); d != nil {
			t.Fatal(n, d)
		}
	}
	for n := int64(1); ; n += 9 {
		struck := &storetest.Plan{Nth: n, Repeat: true, Err: errors.New("killed")}
		mem = prepare()
		forget(mem)
		setFrail(nil, struck)
		_ = commit()
		if setFrail(nil, &storetest.Plan{}); !struck.Struck() {
			t.Logf("killed up to operation %d", n)
			break
		}
		again(n)
	}
	// Another commit starts and ends before this one continues.
	for n := int64(1); ; n += 3 {
		mem = prepare()
		forget(mem)
		var operations int64
		setFrail(nil, &storetest.Plan{Match: func(storetest.Op, string) bool {
			if operations++; operations == n {
				setFrail(nil, &storetest.Plan{})
				if err := commit(); err != nil {
					t.Error(n, err)
				}
			}
			return false
		}})
		err := commit()
		setFrail(nil, &storetest.Plan{})
		if again(n); err != nil {
			t.Fatal(n, err)
		}
		if operations < n {
			t.Logf("another commit at up to operation %d", n)
			break
		}
	}
	// Shard 0 finishes later and is not part of the result, because its episodes would have the
	// numbers of others.
	mem = prepare()
	forget(mem)
	setFrail(
		nil,
		&storetest.Plan{
			Nth:    1,
			Ops:    storetest.OpCommit,
			Repeat: true,
			Err:    errors.New("killed"),
			Match: func(_ storetest.Op, name string) bool {
				return strings.Contains(name, "meta/episodes")
			},
		},
	)
	_ = commit()
	setFrail(nil, &storetest.Plan{})
	if _, err := shard.Run(t.Context(), m, 0, shard.RunOptions{Threads: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); !errors.Is(err,
		robocache.ErrMisuse) || !strings.Contains(err.Error(), "without the shards 0") {
		t.Error(err)
	}
	again(0)
}

// TestGCWhileAnAttemptEnds checks that an attempt that wins during GC keeps its files, because GC
// reads the receipts last (shard.H4).
func TestGCWhileAnAttemptEnds(t *testing.T) {
	job := killJobs[1]
	job.Source, job.Destination = "synth://heterogeneous?episodes=5&cap=12", "frail://s/out"
	mem := storetest.NewMem("frail")
	setFrail(mem, &storetest.Plan{})
	m := plan(t, job, 2)
	if err := plannedWork(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want := contents(t, mem)
	for n := 1; n < 6; n++ { // another shard ends during the n-th operation of GC
		mem = storetest.NewMem("frail")
		setFrail(mem, &storetest.Plan{})
		looks, ended := 0, false
		setFrail(
			nil,
			&storetest.Plan{
				Ops: storetest.OpList | storetest.OpOpen,
				Match: func(storetest.Op, string) bool {
					if looks++; looks == n && !ended {
						ended = true
						setFrail(nil, &storetest.Plan{})
						if _, err := shard.Run(t.Context(), m, 1,
							shard.RunOptions{Threads: 1}); err != nil {
							t.Error(err)
						}
					}
					return false
				},
			},
		)
		if _, err := shard.GC(t.Context(), m, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := plannedWork(t.Context(), m); err != nil {
			t.Fatal(n, err)
		}
		if d := differences(want, contents(t, mem)); d != nil {
			t.Fatal(n, d)
		}
	}
}

// TestAttemptsAtOnce checks that the receipt names one of several concurrent attempts of a shard,
// and that concurrent commits yield one result (shard.H4).
func TestAttemptsAtOnce(t *testing.T) {
	for _, job := range killJobs {
		job.Source, job.Destination = "synth://heterogeneous?episodes=5&cap=12", "frail://s/out"
		setFrail(storetest.NewMem("frail"), &storetest.Plan{})
		m := plan(t, job, 2)
		if err := plannedWork(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		want := contents(t, frail.mem)
		for range 8 {
			setFrail(storetest.NewMem("frail"), &storetest.Plan{})
			won := make([]string, 6)
			var g sync.WaitGroup
			for k := range won {
				g.Go(func() {
					r, err := shard.Run(t.Context(), m, k%2, shard.RunOptions{Threads: 1})
					if err != nil {
						t.Error(err)
						return
					}
					won[k] = r.Attempt
				})
			}
			g.Wait()
			for k := range won {
				if won[k] != won[k%2] {
					t.Errorf("attempts %s and %s won", won[k], won[k%2])
				}
			}
			for range 3 {
				g.Go(func() {
					if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			g.Wait()
			if _, err := shard.GC(t.Context(), m, 0); err != nil {
				t.Error(err)
			}
			if d := differences(want, contents(t, frail.mem)); d != nil {
				t.Fatal(job.Name, d)
			}
		}
	}
}
