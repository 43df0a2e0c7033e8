package loader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// stuck gives no column until it is let go, and does not look at its context, as a read of a mount that hangs.
type stuck struct {
	*fake
	letGo chan struct{}
}

func (s *stuck) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	<-s.letGo
	return s.fake.Gather(ctx, key, rows, dst)
}

// TestWaitEnds: loader.L11, also where nothing but columns of numbers is asked for: who waits can give up, and is told when nothing moves.
func TestWaitEnds(t *testing.T) { synctest.Test(t, waitEnds) }

func waitEnds(t *testing.T) {
	f := &stuck{fake: newFake(8, 8), letGo: make(chan struct{})}
	l := mustLoader(t, f, options.Config{Order: options.Order{BatchSize: 8}, Memory: options.Memory{Threads: 1, Deadline: 0.1}, Windows: options.Windows{Keys: []string{"observation.state", "action", "count"}}})
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
