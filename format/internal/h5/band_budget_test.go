package h5

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// countingReads counts reads of at least the size of a chunk.
type countingReads struct {
	robocache.Ranged
	n int
}

func (c *countingReads) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) > 1<<19 {
		c.n++
	}
	return c.Ranged.ReadAt(ctx, p, off)
}

// A budget smaller than the overhead of a cache entry counts as none, and the error contains a
// hint.
func TestChunkAboveNoBudget(t *testing.T) {
	for _, c := range []struct {
		budget     int64
		want, hint string
	}{
		{entryOverhead - 50, "at most 0 bytes", "memory budget"},
		{entryOverhead + 50, "at most 50 bytes", "memory budget"},
	} {
		path := filepath.Join(t.TempDir(), "one.hdf5")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(out)
		d, err := w.Root().
			Dataset(
				"x",
				Spec{DType: robocache.Uint8, Shape: []int64{8, 100}, ChunkRows: 8, Deflate: 1},
			)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Write(make([]byte, 800)), d.Close(), w.Close(), out.Close()); err !=
			nil {
			t.Fatal(err)
		}
		f := openFile(t, path, c.budget)
		o, err := f.Lookup(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		x, err := o.Dataset(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		var e *robocache.Error
		if err := x.ReadRows(t.Context(), 0, 1, make([]byte, 100)); !errors.As(err, &e) ||
			e.Class != robocache.ErrResourceLimit || e.Want != c.want ||
			!strings.Contains(e.Hint, c.hint) {
			t.Errorf("budget %d: %v", c.budget, err)
		}
	}
}

// TestChunkAsLargeAsTheBudget reads all rows of a chunk that just fits into the cache, and expects
// one decode. A chunk that does not fit is an error that names it, and is not decoded for each row.
func TestChunkAsLargeAsTheBudget(t *testing.T) {
	const budget, rows = 1 << 20, 8
	for _, c := range []struct {
		bytes int64
		fits  bool
	}{
		{budget / 2 * 2 / 3, true},
		{budget - 16<<10, true},
		{budget - entryOverhead/2, false},
		{2 * budget, false},
	} {
		row := c.bytes / rows
		path := filepath.Join(t.TempDir(), "one.hdf5")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(out)
		d, err := w.Root().
			Dataset(
				"x",
				Spec{
					DType:     robocache.Uint8,
					Shape:     []int64{rows, row},
					ChunkRows: rows,
					Deflate:   1,
				},
			)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, rows*row)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if err := errors.Join(d.Write(data), d.Close(), w.Close(), out.Close()); err != nil {
			t.Fatal(err)
		}
		f := openFile(t, path, budget)
		o, err := f.Lookup(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		x, err := o.Dataset(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		reads := &countingReads{Ranged: f.r}
		f.r = reads
		got := make([]byte, row)
		for i := range int64(rows) {
			err := x.ReadRows(t.Context(), i, 1, got)
			switch {
			case !c.fits && !errors.Is(err, robocache.ErrResourceLimit):
				t.Fatalf("%d bytes in %d: %v", c.bytes, budget, err)
			case c.fits && (err != nil || string(got) != string(data[i*row:(i+1)*row])):
				t.Fatalf("%d bytes in %d, row %d: %v, or other bytes", c.bytes, budget, i, err)
			}
		}
		if want := map[bool]int{true: 1}[c.fits]; reads.n > want {
			t.Errorf("%d bytes in %d: read %d times", c.bytes, budget, reads.n)
		}
	}
}
