package loader

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TryNext gives what Next gives, never waits, and ends the epoch as Next does.
func TestTryNext(t *testing.T) {
	f := newFake(lengthsFor(4, 6, 20, 40)...)
	cfg := options.Config{
		Order:   options.Order{BatchSize: 8, Shuffle: Global},
		Runtime: options.Runtime{Threads: 2},
		Windows: options.Windows{Keys: []string{"cam", "index"}},
	}
	l, twin := mustLoader(t, f, cfg), mustLoader(t, f, cfg)
	for epoch := range 2 {
		var got, want []int64
		for {
			b, ok, err := l.TryNext()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				time.Sleep(time.Millisecond)
				continue
			}
			checkBatch(t, f, l.config, b)
			got = append(got, b.Indices...)
			b.Release()
		}
		for {
			b, err := twin.Next(bg)
			if err == io.EOF {
				break
			}
			want = append(want, b.Indices...)
			b.Release()
		}
		if !slices.Equal(got, want) {
			t.Fatalf("epoch %d: %d samples, want %d", epoch, len(got), len(want))
		}
	}
	l.Close() // which would go on with the next epoch
	twin.Close()
	// While the decoder is blocked no batch is complete. A TryNext that waited would not return.
	f.gate = make(chan struct{})
	held := mustLoader(t, f, cfg)
	for range 20 {
		if b, ok, err := held.TryNext(); b != nil || ok || err != nil {
			t.Fatal(b, ok, err)
		}
	}
	if s := held.State(); s.Position != 0 {
		t.Errorf("a try that gave nothing moved the state to %d", s.Position)
	}
	close(f.gate)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := held.TryNext(); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("after Close: %v", err)
	}
}
