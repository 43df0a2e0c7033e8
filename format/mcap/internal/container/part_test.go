package container

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"
)

// TestParts checks that a partial read of a chunk that was read completely before is its beginning.
// A reader that needs more gets more. Acquired records are not reused.
func TestParts(t *testing.T) {
	Poison = true
	ctx := context.Background()
	for _, opt := range []foxglove.WriterOptions{
		{
			Chunked:     true,
			ChunkSize:   1 << 20,
			Compression: foxglove.CompressionZSTD,
			IncludeCRC:  true,
		},
		{Chunked: true, ChunkSize: 1 << 20, Compression: foxglove.CompressionLZ4, IncludeCRC: true},
		{Chunked: true, ChunkSize: 1 << 20, IncludeCRC: true},
	} {
		data := large(t, opt, 5<<20)
		for _, budget := range []int64{1, 3 << 20, 64 << 20} {
			f, err := Open(ctx, blob(data), Options{Chunks: NewChunks(budget), Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			var whole [][]byte
			for i := range f.Chunks {
				// the first read is always complete
				r, err := f.Records(ctx, i, 1)
				if err != nil || !r.isWhole || int64(len(r.Bytes())) != f.Chunks[i].Size {
					t.Fatal(err, r)
				}
				whole = append(whole, bytes.Clone(r.Bytes()))
				r.Release()
			}
			parts := 0
			var mu sync.Mutex
			var wg sync.WaitGroup
			for g := range uint64(4) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(g, 1))
					for range 60 {
						i := rng.IntN(len(whole))
						need := 1 + rng.Int64N(int64(len(whole[i])))
						r, err := f.Records(ctx, i, need)
						if err != nil {
							t.Error(err)
							return
						}
						b := r.Bytes()
						if int64(len(b)) < need || !bytes.Equal(b, whole[i][:len(b)]) {
							t.Errorf("chunk %d: %d of %d bytes differ", i, len(b), need)
						}
						if len(b) < len(whole[i]) {
							mu.Lock()
							parts++
							mu.Unlock()
						}
						r.Release()
					}
				})
			}
			wg.Wait()
			if partial := opt.Compression != foxglove.CompressionNone &&
				budget == 1; partial != (parts > 0) &&
				budget != 3<<20 {
				t.Errorf("%q with %d bytes: %d parts", opt.Compression, budget, parts)
			}
			f.Close()
		}
	}
}

// large writes messages of half-random bytes.
func large(t testing.TB, opt foxglove.WriterOptions, size int) []byte {
	var out bytes.Buffer
	w, err := foxglove.NewWriter(&out, &opt)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.NewChaCha8([32]byte{1})
	_ = w.WriteHeader(&foxglove.Header{Profile: "ros2"})
	_ = w.WriteSchema(
		&foxglove.Schema{ID: 1, Name: "x/msg/X", Encoding: "ros2msg", Data: []byte("uint8[] data")},
	)
	_ = w.WriteChannel(&foxglove.Channel{ID: 1, SchemaID: 1, Topic: "/x", MessageEncoding: "cdr"})
	for n := uint64(0); size > 0; n++ {
		b := make([]byte, 40000)
		rng.Read(b[:20000])
		size -= len(b)
		if err := w.WriteMessage(&foxglove.Message{
			ChannelID: 1, LogTime: n, PublishTime: n,
			Data: b,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
