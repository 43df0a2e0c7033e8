package container

import (
	"bytes"
	"context"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

// FuzzFile checks that any bytes yield messages or a typed error, with memory in proportion to
// them. Limits bounds the size of a decompressed chunk.
func FuzzFile(f *testing.F) {
	for _, opt := range variants {
		f.Add(written(f, opt, 6))
	}
	f.Add(
		written(f, foxglove.WriterOptions{
			Chunked:     true,
			ChunkSize:   64,
			Compression: foxglove.CompressionZSTD,
			IncludeCRC:  true,
		}, 4)[:700],
	)
	f.Add(build(chunkOf("zstd", 1<<60, 0, []byte("abc")), message(1, 9, "y"), channel(1, "/b")))
	for range 8 {
		// The tables of the decoder do not count as memory for the file.
		_, _ = unzstd.Decode(nil, []byte("rubbish"), unzstd.Ignore)
	}
	limits := Limits{Chunk: 1 << 20, Ratio: 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		for _, scan := range []bool{false, true} {
			got, file, err := open(
				b,
				Options{Scan: scan, Limits: limits, Chunks: NewChunks(1 << 20), Index: 1 << 22},
			)
			if err != nil {
				hostile.Typed(t, err)
				continue
			}
			n := 0
			for _, m := range got {
				n += len(m.data)
			}
			if n > int(limits.Ratio)*len(b)*int(2+limits.Ratio) {
				t.Errorf("%d bytes of messages from %d", n, len(b))
			}
			for _, p := range file.Metadata {
				_, err := file.ReadMetadata(context.Background(), p)
				hostile.Typed(t, err)
			}
			for _, p := range file.Attachments {
				_, err := file.ReadAttachment(context.Background(), p)
				hostile.Typed(t, err)
			}
		}
		// The file is read twice, and a chunk is decompressed for the index and again for its
		// messages. lz4 and zstd use blocks of up to 8 MiB.
		if got := hostile.Allocated() - before; got > uint64(64<<20+400*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzDecompress checks that the output never exceeds the declared size, whatever the bytes
// declare.
func FuzzDecompress(f *testing.F) {
	var z bytes.Buffer
	w, _ := NewWriter(&z, WriterOptions{Compression: Zstd})
	f.Add(byte(1), w.encoder.EncodeAll(bytes.Repeat([]byte("abc"), 100), nil), 300, false)
	f.Add(byte(2), []byte{4, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7}, 100, true)
	f.Fuzz(func(t *testing.T, kind byte, body []byte, size int, cut bool) {
		size &= 1<<20 - 1
		out, err := decompressBody(Compression(kind%3), body, nil, size, cut)
		if kind%3 != 0 && len(out) > size {
			t.Errorf("%d bytes of %d (%v)", len(out), size, err)
		}
	})
}
