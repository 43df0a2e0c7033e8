package loader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// stuck delivers no column until it is released, and ignores its context, like a read of a hanging
// mount.
type stuck struct {
	*fake
	letGo chan struct{}
}

func (s *stuck) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	<-s.letGo
	return s.fake.Gather(ctx, key, rows, dst)
}

// TestWaitEnds checks loader.L11, also for numeric columns only: a waiting consumer can cancel, and
// receives an error if nothing makes progress.
func TestWaitEnds(t *testing.T) { synctest.Test(t, waitEnds) }

func waitEnds(t *testing.T) {
	f := &stuck{fake: newFake(8, 8), letGo: make(chan struct{})}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8},
			Runtime: options.Runtime{Threads: 1, Deadline: 0.1},
			Windows: options.Windows{Keys: []string{"observation.state", "action", "count"}},
		},
	)
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
