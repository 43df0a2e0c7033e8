package zipdir

import (
	"context"
	"reflect"
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

// TestReadLike: Z5: whatever differs in an archive's directory, ReadLike gives what Read gives; of one that differs in the members' bytes
// alone, by one read of the directory's size, and with its own CRCs.
func TestReadLike(t *testing.T) {
	one, two := archive(t, Stored, "a.npy", "first", "b.npy", "second"), archive(t, Stored, "a.npy", "FIRST", "b.npy", "SECOND")
	like, err := Read(t.Context(), file(one), 100)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	d, err := ReadLike(t.Context(), counted{two, &n}, 100, like)
	if err != nil || n != 1 || d.raw != nil {
		t.Fatalf("%v, %d reads, parsed again: %v", err, n, d.raw != nil)
	}
	b, err := d.Bytes(t.Context(), file(two), []*File{&d.Files[0], &d.Files[1]})
	if err != nil || string(b[0]) != "FIRST" || string(b[1]) != "SECOND" {
		t.Fatalf("%v %q", err, b)
	}
	if like.Files[0].CRC == d.Files[0].CRC {
		t.Fatal("the other's CRC")
	}
	for i := range two {
		bad := append([]byte{}, two...)
		bad[i] ^= 0x21
		want, werr := Read(t.Context(), file(bad), 100)
		got, gerr := ReadLike(t.Context(), file(bad), 100, like)
		if (werr == nil) != (gerr == nil) || werr != nil && werr.Error() != gerr.Error() {
			t.Fatalf("byte %d: %v, want %v", i, gerr, werr)
		}
		if werr == nil && !reflect.DeepEqual(want.Files, got.Files) {
			t.Fatalf("byte %d: %v, want %v", i, got.Files, want.Files)
		}
	}
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
