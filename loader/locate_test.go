package loader

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Samples of a mixture are numbered one source after the other, and Locate says whose each is.
func TestLocate(t *testing.T) {
	a, b := newFake(3, 2), newFake(4)
	l, err := NewMix(
		bg,
		[]options.Mix{{Dataset: a}, {Dataset: b}},
		options.Config{Windows: options.Windows{Keys: []string{"index"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := []struct {
		source int
		row    robocache.Row
	}{
		{0, robocache.Row{Episode: 0, Index: 0}},
		{0, robocache.Row{Episode: 1, Index: 1}},
		{1, robocache.Row{Episode: 0, Index: 0}},
		{1, robocache.Row{Episode: 0, Index: 3}},
	}
	err = l.Locate([]int64{0, 4, 5, 8}, func(i, source int, r robocache.Row) {
		if source != want[i].source || r != want[i].row {
			t.Errorf("%d: source %d, %v; want %+v", i, source, r, want[i])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []int64{-1, 9} {
		if err := l.Locate(
			[]int64{bad},
			func(int, int, robocache.Row) {},
		); !errors.Is(
			err,
			robocache.ErrMisuse,
		) {
			t.Errorf("%d: %v", bad, err)
		}
	}
}
