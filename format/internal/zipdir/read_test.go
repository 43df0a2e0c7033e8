package zipdir

import (
	"bytes"
	"context"
	"math/rand/v2"
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

// TestSideBySide checks that adjacent members are read in one request.
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

// TestPrefix reads the beginning of members of both methods, with a few bytes and with all bytes.
func TestPrefix(t *testing.T) {
	random := make([]byte, 1<<17)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(random); i++ {
		random[i] = byte(r.Uint32())
	}
	for _, method := range []uint16{Stored, Deflate} {
		whole := archive(
			t,
			method,
			"a",
			string(random),
			"b",
			string(make([]byte, 1<<17)),
			"c",
			"short",
			"d",
			"",
		)
		d, err := Read(t.Context(), file(whole), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Files {
			f := &d.Files[i]
			want, err := d.Bytes(t.Context(), file(whole), []*File{f})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int64{0, 1, 100, 12 << 10, 1 << 18} {
				b, err := d.Prefix(t.Context(), file(whole), f, n)
				if err != nil || !bytes.Equal(b, want[0][:min(n, f.Size)]) {
					t.Errorf("method %d, %s, %d bytes: %d, %v", method, f.Name, n, len(b), err)
				}
			}
		}
	}
}
