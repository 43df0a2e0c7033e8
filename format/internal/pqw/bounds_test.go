package pqw

import (
	"bytes"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// A chunk with a page of short texts and a page of long texts must not have bounds. Bounds of only
// some pages would make readers that filter skip the other rows.
func TestChunkBoundsOfLongTexts(t *testing.T) {
	leaves, err := Leaves(
		parquet.NewSchema(
			"schema",
			parquet.Group{"t": parquet.Encoded(parquet.String(), &parquet.Plain)},
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	chunk := func(texts ...string) *Chunk {
		v := leaves[0].NewValues()
		for _, s := range texts {
			for range PageBytes/(len(s)+4) + 1 { // one page each
				v.Add([]byte(s), 0, 0)
			}
		}
		c, err := v.Encode()
		if err != nil || len(c.pages) != len(texts) {
			t.Fatal(len(c.pages), err)
		}
		return c
	}
	c := chunk("m", strings.Repeat("z", shortBound+1), "n")
	if s := c.meta.Statistics; s.MinValue != nil || s.MaxValue != nil {
		t.Errorf("bounds %q to %q", s.MinValue, s.MaxValue)
	}
	c = chunk("n", "m")
	if s := c.meta.Statistics; string(s.MinValue) != "m" || string(s.MaxValue) != "n" {
		t.Errorf("bounds %q to %q", s.MinValue, s.MaxValue)
	}
}

// The bounds of booleans are 0 and 1 for every byte that the rows use for true.
func TestBoundsOfBooleans(t *testing.T) {
	l := &Leaf{kind: parquet.Boolean, size: 1, bounded: true}
	for _, c := range []struct{ v, lo, hi []byte }{
		{[]byte{0, 2}, []byte{0}, []byte{1}},
		{[]byte{255}, []byte{1}, []byte{1}},
		{[]byte{0, 0}, []byte{0}, []byte{0}},
	} {
		if b := l.boundsOf(c.v); !b.ok || !bytes.Equal(b.lo, c.lo) || !bytes.Equal(b.hi, c.hi) {
			t.Errorf("%v: %v to %v", c.v, b.lo, b.hi)
		}
	}
}
