package container

import (
	"bytes"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache/internal/unzstd"
)

// decompressPart returns at least the first need bytes of a chunk of size bytes. It returns nil if
// this is not possible. A part cannot be verified with the chunk's checksum, so the chunk must have
// been read completely before.
func decompressPart(c Compression, body, dst []byte, size, need int) []byte {
	if c == LZ4 {
		d := lz4s.Get().(*lz4.Reader)
		defer lz4s.Put(d)
		d.Reset(bytes.NewReader(body))
		n, _ := io.ReadFull(d, dst[:need])
		if n < need {
			return nil
		}
		return dst[:need]
	}
	n, err := unzstd.Prefix(dst[:size], body, need)
	if err != nil || n < need {
		return nil
	}
	return dst[:n]
}
