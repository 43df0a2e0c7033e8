package container

import (
	"bytes"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache/internal/unzstd"
)

// decompressPart gives at least the first need bytes of a chunk of size; nil where it cannot give
// less than all. The sum of the chunk says nothing of a part: it is for chunks that were read whole
// before.
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
