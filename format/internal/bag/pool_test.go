package bag

import (
	"context"
	"sync"
	"testing"
	"time"
)

// still is a Storage that returns only a fixed size.
type still struct{ Storage }

func (still) Bytes() int64 { return 1 }
func (still) Held() int64  { return 1 }
func (still) Close() error { return nil }

// TestPoolRaces opens recordings while others are released (with -race).
func TestPoolRaces(t *testing.T) {
	var recs []Recording
	for range 8 {
		recs = append(
			recs,
			Recording{Open: func(context.Context) (Storage, error) { return still{}, nil }},
		)
	}
	p := newPool(recs, 3, 2, func(Storage) {})
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			for i := range 200 {
				err := p.withStorage(
					t.Context(),
					(i*7+w)%len(recs),
					func(Storage) error { return nil },
				)
				if err != nil {
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

// TestPoolPanic checks that a waiting caller opens a recording itself if the first opening
// panicked.
func TestPoolPanic(t *testing.T) {
	begun, fail := make(chan struct{}), make(chan struct{})
	n := 0
	p := newPool([]Recording{{Open: func(context.Context) (Storage, error) {
		if n++; n > 1 {
			return still{}, nil
		}
		close(begun)
		<-fail
		panic("no recording")
	}}}, 3, 2, func(Storage) {})
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_ = p.withStorage(context.Background(), 0, func(Storage) error { return nil })
	}()
	<-begun
	done := make(chan error)
	go func() { done <- p.withStorage(t.Context(), 0, func(Storage) error { return nil }) }()
	select {
	case err := <-done:
		t.Fatal("it did not wait", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(fail)
	if err := <-done; err != nil || <-panicked == nil || n != 2 {
		t.Error(err, n)
	}
}
