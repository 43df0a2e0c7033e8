package rlds

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// TestImagesByThePiece checks that after a record was read and evicted, an image of it costs only
// its own bytes, with the same content.
func TestImagesByThePiece(t *testing.T) {
	local, err := store.OpenLocal(realdata.Path(t, "bridge_rlds"))
	if err != nil {
		t.Fatal(err)
	}
	c := storetest.Counting(local)
	dir, err := store.Sub(c, "bridge_dataset/1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenStore(t.Context(), dir, robocache.OpenOptions{MemoryBudget: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	whole := mustOpen(t, realdata.Path(t, "bridge_rlds"), robocache.OpenOptions{})
	for e := range 50 { // one pass: each record is read, verified and evicted
		if err := d.Gather(t.Context(), "reward", rowsOf(d, e), make([]byte, 40)); err != nil {
			t.Fatal(err)
		}
	}
	before := c.Counts().BytesRead
	for e := range 20 {
		row := []robocache.Row{{Episode: e, Index: 7}}
		a, b := make([]robocache.FrameRef, 1), make([]robocache.FrameRef, 1)
		x, y := make([]byte, 28), make([]byte, 28)
		for i, f := range []*Dataset{d, whole} {
			if err := f.Frames(t.Context(), "observation.image_2", row,
				[][]robocache.FrameRef{a, b}[i]); err != nil {
				t.Fatal(err)
			}
			if err := f.Gather(t.Context(), "observation.state", row, [][]byte{x, y}[i]); err !=
				nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(a[0].Encoded, b[0].Encoded) || !bytes.Equal(x, y) {
			t.Errorf("episode %d is served otherwise", e)
		}
		s, err := d.Text(t.Context(), "language_instruction", row)
		if w, _ := whole.Text(t.Context(), "language_instruction", row); err != nil ||
			s[0] != w[0] {
			t.Errorf("episode %d: %q %v", e, s, err)
		}
	}
	if got := c.Counts().BytesRead - before; got > 20*8000 {
		t.Errorf("%d bytes were read for 20 images of about 4 kB", got)
	}
	if s := d.records.Stats(); s.Evictions == 0 {
		t.Errorf("nothing was let go: %+v", s)
	}
}
