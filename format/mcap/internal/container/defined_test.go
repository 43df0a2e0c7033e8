package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// rle returns a zstd frame of head followed by n zeros.
func rle(head []byte, n int) []byte {
	var b bytes.Buffer
	// 4 bytes of content size, window 2^(10+14)
	b.Write([]byte{0x28, 0xB5, 0x2F, 0xFD, 0x00 | 2<<6, 0x70})
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(head)+n)))
	put := func(last, kind, size int) {
		h := last | kind<<1 | size<<3
		b.Write([]byte{byte(h), byte(h >> 8), byte(h >> 16)})
	}
	put(0, 0, len(head))
	b.Write(head)
	for n > 0 {
		k := min(n, 128<<10)
		last := 0
		if k == n {
			last = 1
		}
		put(last, 1, k)
		b.WriteByte(0)
		n -= k
	}
	return b.Bytes()
}

func rec(op Op, content []byte) []byte {
	b := append([]byte{byte(op)}, binary.LittleEndian.AppendUint64(nil, uint64(len(content)))...)
	return append(b, content...)
}

// TestDefinedByChunks checks that the total size of definitions in chunks is limited, because a
// chunk of 2 KB may contain 63 MiB of them.
func TestDefinedByChunks(t *testing.T) {
	le := binary.LittleEndian
	file := []byte(magic)
	file = append(file, rec(OpHeader, make([]byte, 8))...)
	const N = 12
	for i := range N {
		fill := 63 << 20
		// schema: id, name, encoding, data
		c := le.AppendUint16(nil, uint16(i+1))
		c = le.AppendUint32(c, 0)
		c = le.AppendUint32(c, 0)
		c = le.AppendUint32(c, uint32(fill))
		head := append([]byte{byte(OpSchema)}, le.AppendUint64(nil, uint64(len(c)+fill))...)
		head = append(head, c...)
		body := rle(head, fill)
		k := make([]byte, 16)
		k = le.AppendUint64(k, uint64(len(head)+fill))
		k = le.AppendUint32(k, 0)
		k = le.AppendUint32(k, 4)
		k = append(k, "zstd"...)
		k = le.AppendUint64(k, uint64(len(body)))
		k = append(k, body...)
		file = append(file, rec(OpChunk, k)...)
	}
	before := hostile.Allocated()
	f, err := Open(t.Context(), blob(file), Options{})
	if err == nil {
		_, err = f.Index(t.Context())
	}
	if !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("%d bytes that define %d MiB: %v", len(file), N*63, err)
	}
	if n := hostile.Allocated() - before; n > 600<<20 {
		t.Errorf("%d MiB were allocated for a file of %d bytes", n>>20, len(file))
	}
}
