package loader

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// sluggish takes long over the first column that it is asked for, and then gives two only to those who ask at the same time.
type sluggish struct {
	*fake
	calls atomic.Int32
	pair  chan struct{}
	stuck atomic.Bool
}

func (s *sluggish) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	switch s.calls.Add(1) {
	case 1:
		time.Sleep(5 * atOnce)
	case 2:
		select {
		case <-s.pair:
		case <-time.After(20 * time.Second):
			s.stuck.Store(true)
		}
	case 3:
		close(s.pair)
	}
	return s.fake.Gather(ctx, key, rows, dst)
}

// TestSlowColumns: the columns of a small batch are one job, until one of them takes long: then the others are done side by side, and the
// next batches have a job a column.
func TestSlowColumns(t *testing.T) {
	f := &sluggish{fake: newFake(8, 8, 8), pair: make(chan struct{})}
	l := mustLoader(t, f, Config{BatchSize: 24, Shuffle: Global, Threads: 3, Keys: []string{"observation.state", "action", "count", "done", "index"}})
	b, err := l.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	checkBatch(t, f.fake, l.cfg, b)
	b.Release()
	if f.stuck.Load() {
		t.Fatal("the columns behind a slow one waited for each other")
	}
	src := l.a.sources[0]
	if n := src.wary.Load(); n != waryBatches {
		t.Fatalf("%d batches have a job a column, want %d", n, waryBatches)
	}
	for src.wary.Load() > 0 {
		b, err := l.Next(bg)
		if err != nil {
			continue // the end of an epoch
		}
		checkBatch(t, f.fake, l.cfg, b)
		b.Release()
	}
}

// TestPartsAddUp: what the jobs of rows finish is what a batch waits for, also where one plan makes several columns: a batch that is given
// out early is still being written to.
func TestPartsAddUp(t *testing.T) {
	hz := robocache.Rate{Num: 50, Den: 1}
	l := mustLoader(t, newRobot(1.5), Config{BatchSize: 4, Hz: &hz, Align: &align.Config{Modes: map[string]align.Mode{"joints": align.Previous, "mode": align.Previous}}})
	src := l.a.sources[0]
	want, finished, shared := 0, 0, 0
	for i := range src.layout.columns {
		if c := &src.layout.columns[i]; !c.ragged && c.source != fromStills && c.source != fromVideo {
			want++
		}
	}
	for _, col := range src.rowCols {
		n := len(src.layout.columns[col].shared)
		finished, shared = finished+1+n, shared+n
	}
	if finished != want || shared == 0 {
		t.Errorf("a batch waits for %d columns of rows, its jobs make %d (%d with others)", want, finished, shared)
	}
}

// stuck gives no column until it is let go, and does not look at its context, as a read of a mount that hangs.
type stuck struct {
	*fake
	letGo chan struct{}
}

func (s *stuck) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	<-s.letGo
	return s.fake.Gather(ctx, key, rows, dst)
}

// TestWaitEnds: L11, also where nothing but columns of numbers is asked for: who waits can give up, and is told when nothing moves.
func TestWaitEnds(t *testing.T) {
	f := &stuck{fake: newFake(8, 8), letGo: make(chan struct{})}
	l := mustLoader(t, f, Config{BatchSize: 8, Threads: 1, Deadline: 0.1, Keys: []string{"observation.state", "action", "count"}})
	timer := time.AfterFunc(20*time.Second, func() { close(f.letGo) })
	for i := range 20 {
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("wait %d: %v", i, err)
		}
		cancel()
	}
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrTemporary) {
		t.Fatalf("a batch that does not move: %v", err)
	}
	if timer.Stop() {
		close(f.letGo)
	} else {
		t.Fatal("Next waited for a column")
	}
}
