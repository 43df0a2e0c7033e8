package zipdir

import (
	"context"
	"testing"
)

type counted struct {
	file
	n *int
}

func (c counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	*c.n++
	return c.file.ReadAt(ctx, p, off)
}

// TestSideBySide: members that lie side by side are one read.
func TestSideBySide(t *testing.T) {
	whole := archive(t, Stored, "a", "first", "b", "second", "c", "third")
	n := 0
	r := counted{whole, &n}
	d, err := Read(t.Context(), r, 100)
	if err != nil {
		t.Fatal(err)
	}
	n = 0
	b, err := d.Bytes(t.Context(), r, []*File{&d.Files[2], &d.Files[0]})
	if err != nil || string(b[0]) != "third" || string(b[1]) != "first" || n != 1 {
		t.Fatalf("%v %q, %d reads", err, b, n)
	}
}
