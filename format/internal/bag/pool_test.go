package bag

import (
	"context"
	"sync"
	"testing"
	"time"
)

// still is a Storage that says what it holds, and nothing else.
type still struct{ Storage }

func (still) Bytes() int64 { return 1 }
func (still) Held() int64  { return 1 }
func (still) Close() error { return nil }

// TestPoolRaces: recordings are opened beside others that are given back (with -race).
func TestPoolRaces(t *testing.T) {
	var recs []Recording
	for range 8 {
		recs = append(recs, Recording{Open: func(context.Context) (Storage, error) { return still{}, nil }})
	}
	p := newPool(recs, 3, 2, nil)
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			for i := range 200 {
				if err := p.use(t.Context(), (i*7+w)%len(recs), func(Storage) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestPoolPanic: who waits for a recording goes on when opening it panics.
func TestPoolPanic(t *testing.T) {
	begun, fail := make(chan struct{}), make(chan struct{})
	p := newPool([]Recording{{Open: func(context.Context) (Storage, error) { close(begun); <-fail; panic("no recording") }}}, 3, 2, nil)
	go func() {
		defer func() { _ = recover() }()
		_ = p.use(context.Background(), 0, func(Storage) error { return nil })
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- p.use(ctx, 0, func(Storage) error { return nil }) }()
	for { // until it waits
		p.mu.Lock()
		n := p.open[0].users
		p.mu.Unlock()
		if n == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(fail)
	if err := <-done; err != errPanicked {
		t.Error(err)
	}
}
