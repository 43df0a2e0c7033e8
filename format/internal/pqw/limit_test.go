package pqw

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/goatnote-inc/robocache"
)

// TestPageLimit checks that a row up to the page limit is written and a larger row is an error
// (pqw.P2). It also covers rows that exceed the limit only by their compressed form or their
// header. The limit of the format is 2 GiB; the test uses a small one.
func TestPageLimit(t *testing.T) {
	const limit = 5000
	for _, compressed := range []bool{false, true} {
		node := parquet.Leaf(parquet.ByteArrayType)
		if compressed {
			node = parquet.Compressed(node, &snappy.Codec{})
		}
		schema := parquet.NewSchema("schema", parquet.Group{"a": node})
		leaves, err := Leaves(schema)
		if err != nil {
			t.Fatal(err)
		}
		l := leaves[0]
		l.pageLimit = limit
		rng := rand.New(rand.NewPCG(1, 2))
		noise := make([]byte, limit+1)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		taken, refused := 0, 0
		for n := limit - 120; n <= limit; n++ {
			c, err := l.Blobs([][]byte{noise[:n]})
			if err != nil {
				if !errors.Is(err, robocache.ErrResourceLimit) {
					t.Fatal(err)
				}
				v := l.NewValues()
				v.Add(noise[:n], 0, int(l.def))
				if _, err := v.Encode(); !errors.Is(err, robocache.ErrResourceLimit) {
					t.Errorf("%d bytes: %v", n, err)
				}
				refused++
				continue
			}
			if refused > 0 {
				t.Fatalf("%d bytes are taken, fewer were refused", n)
			}
			taken++
			for _, p := range c.pages {
				if p.CompressedPageSize > limit || int64(p.CompressedPageSize) != c.size {
					t.Fatalf("%d bytes: a page of %d", n, p.CompressedPageSize)
				}
			}
			var out bytes.Buffer
			f, err := NewFile(&out, schema, nil, "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Append(1, []*Chunk{c}), f.Close()); err != nil {
				t.Fatal(err)
			}
			rows, err := parquet.Read[struct {
				A []byte `parquet:"a"`
			}](bytes.NewReader(out.Bytes()), int64(out.Len()))
			if err != nil || len(rows) != 1 || !bytes.Equal(rows[0].A, noise[:n]) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
		if taken == 0 || refused < 5 {
			t.Errorf("compressed %v: %d taken, %d refused", compressed, taken, refused)
		}
		if compressed {
			// The uncompressed size is limited too, because the header contains it.
			if _, err := l.Blobs([][]byte{make([]byte, limit+1)}); !errors.Is(err,
				robocache.ErrResourceLimit) {
				t.Error(err)
			}
		}
	}
}
