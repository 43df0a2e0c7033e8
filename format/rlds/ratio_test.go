package rlds

import (
	"bytes"
	"compress/zlib"
	"testing"
)

// Tensors of zeros, compressed as well as deflate can, stay within the allowed ratio. A depth image
// of zeros is valid data.
func TestZerosGrowWithinTheRatio(t *testing.T) {
	for _, n := range []int{1 << 20, 32 << 20} {
		var z bytes.Buffer
		w, err := zlib.NewWriterLevel(&z, zlib.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if most := z.Len() * maxRatio; most < n {
			t.Errorf("%d zeros are %d bytes packed, of which %d may come", n, z.Len(), most)
		}
	}
}
