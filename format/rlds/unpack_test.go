package rlds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// squeeze compresses bytes as a shard may be compressed.
func squeeze(t testing.TB, how string, level int, b []byte) []byte {
	t.Helper()
	var z bytes.Buffer
	var w io.WriteCloser
	var err error
	parts := [][]byte{b}
	switch how {
	case "zlib":
		w, err = zlib.NewWriterLevel(&z, level)
	case "members":
		parts = nil
		for at := 0; at < len(b); at += 70_000 {
			parts = append(parts, b[at:min(len(b), at+70_000)])
		}
		fallthrough
	default:
		w, err = gzip.NewWriterLevel(&z, level)
	}
	for i, p := range parts {
		if i > 0 && err == nil {
			w, err = gzip.NewWriterLevel(&z, level)
		}
		if err == nil {
			if g, ok := w.(*gzip.Writer); ok {
				g.Name, g.Comment, g.Extra = "a shard", "of a test", []byte("1234")
			}
			_, err = w.Write(p)
		}
		if err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

// mixture returns bytes of several kinds: text, noise and runs.
func mixture(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		switch rng.IntN(3) {
		case 0:
			for range rng.IntN(500) {
				fmt.Fprintf(&b, "joint %d at %d; ", rng.IntN(7), rng.IntN(100))
			}
		case 1:
			for range rng.IntN(90_000) {
				b.WriteByte(byte(rng.Uint32()))
			}
		default:
			b.Write(bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(60_000)))
		}
	}
	return b.Bytes()[:n]
}

var packings = []string{"gzip", "zlib", "members"}

// TestPackedReads checks that Open decompresses a packed shard, and that no byte of it is read
// again, in any order of reads.
func TestPackedReads(t *testing.T) {
	const episodes = 48
	rng := rand.New(rand.NewPCG(3, 4))
	for _, how := range packings {
		h := newHand()
		var plain []byte

		// values of an unused key; they make records large and do not compress
		noise := make([]byte, 200_000)
		for e := range episodes {
			x := handExample(e, 3)
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			x.strings("other", [][]byte{noise})
			b, err := x.bytes()
			if err != nil {
				t.Fatal(err)
			}
			plain = appendRecord(plain, b)
		}
		h.info = handInfo("toy", "train", episodes)
		h.shards[handShard] = squeeze(t, how, 1, plain)
		size := int64(len(h.shards[handShard]))
		s := storetest.NewMem("rlds-packed-reads-" + how)
		t.Cleanup(s.Drop)
		h.put(s)
		counted := storetest.Counting(s)
		d, err := OpenStore(t.Context(), counted, handOptions)
		if err != nil || d.Info().Episodes != episodes || len(d.Info().Findings) > 1 {
			t.Fatal(how, err, d.Info().Findings)
		}
		pass := func(order []int) int64 {
			before := counted.Counts().BytesRead
			d.records.Clear()
			d.imageless.Clear()
			for _, e := range order {
				if err := checkEpisode(t, d, e, e); err != nil {
					t.Fatal(how, err)
				}
			}
			return counted.Counts().BytesRead - before
		}
		order := make([]int, episodes)
		for i := range order {
			order[i] = i
		}
		if got := counted.Counts().BytesRead; got > size+16<<10 {
			t.Errorf("%s: opening reads %d bytes, of a shard of %d", how, got, size)
		}
		for _, what := range []string{"in order", "in any order"} {
			if got := pass(order); got > 0 {
				t.Errorf("%s: a pass %s reads %d bytes of a shard of %d", how, what, got, size)
			}
			rng.Shuffle(episodes, func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		d.Close()
		// When opened again, the index is cached, and the first read decompresses once.
		counted = storetest.Counting(s)
		if d, err = OpenStore(t.Context(), counted, handOptions); err != nil {
			t.Fatal(how, err)
		}
		before := counted.Counts().BytesRead
		if got := before + pass(order); got > size+16<<10 || before > size/4 {
			t.Errorf(
				"%s: opened again, %d bytes and then %d are read of a shard of %d",
				how,
				before,
				got,
				size,
			)
		}
		d.Close()
	}
}

// TestPackedFlips alters any byte of a packed shard. All delivered values are correct, and lost
// episodes are reported.
func TestPackedFlips(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 23
	}
	for _, how := range packings {
		h := newHand()
		z := squeeze(t, how, 6, h.shards[handShard])
		for at := 0; at < len(z); at += stride {
			h.shards[handShard] = bytes.Clone(z)
			h.shards[handShard][at] ^= byte(1 << (at % 8))
			d, err := h.open(t, "packed-flip")
			if err != nil {
				hostile.Typed(t, err)
				continue
			}
			lost := 3 - d.Info().Episodes
			for e := range d.Info().Episodes {
				if d.Len(e) != []int{3, 1, 5}[e] {
					lost++
				} else if err := checkEpisode(t, d, e, e); err != nil {
					hostile.Typed(t, err)
					lost++
				}
			}
			if lost > 0 && d.Info().Episodes < 3 && len(d.Info().Findings) == 0 {
				t.Errorf(
					"%s: byte %d altered, and nothing is said of %d lost episodes",
					how,
					at,
					lost,
				)
			}
			d.Close()
		}
	}
}

// TestUnpackBudget checks that decompressed shards stay within the option, with an error that gives
// a hint, and that nothing is left in the folder.
func TestUnpackBudget(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	const shards = 6
	x := handExample(0, 3)
	x.strings("other", [][]byte{mixture(600_000)})
	record, err := x.bytes()
	if err != nil {
		t.Fatal(err)
	}
	packed := squeeze(t, "gzip", 1, appendRecord(appendRecord(nil, record), record))
	h := newHand()
	clear(h.shards)
	var lengths []int
	for i := range shards {
		lengths = append(lengths, 2)
		h.shards[fmt.Sprintf("toy-train.tfrecord-%05d-of-%05d", i, shards)] = packed
	}
	h.info = handInfo("toy", "train", lengths...)
	s := storetest.NewMem("rlds-unpack-budget")
	t.Cleanup(s.Drop)
	h.put(s)
	opt := handOptions
	for _, budget := range []string{"0", "5000000"} {
		opt.Options = map[string]string{"unpack_bytes": budget}
		_, err := OpenStore(t.Context(), s, opt)
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrResourceLimit) || !errors.As(err, &e) ||
			!strings.Contains(e.Hint, "unpack_bytes") {
			t.Errorf("a budget of %s: %v", budget, err)
		}
	}
	opt.MemoryBudget = smallestBudget
	for _, budget := range []string{"", "12582912"} {
		opt.Options = map[string]string{"unpack_bytes": budget}
		d, err := OpenStore(t.Context(), s, opt)
		if err != nil || d.Info().Episodes != 2*shards {
			t.Fatal(budget, err)
		}
		if err := checkEpisode(t, d, 2*shards-1, 0); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v in the temporary folder, %v", left, err)
		}
		d.Close()
	}
	opt.Options = map[string]string{"unpack_bytes": "much"}
	if _, err := OpenStore(t.Context(), s, opt); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	// The folder does not exist; the cached indexes are of another version of the files.
	t.Setenv("TMPDIR", dir+"/none")
	s.Put("toy-train.tfrecord-00000-of-00006", packed)
	if _, err := OpenStore(t.Context(), s, handOptions); !errors.Is(err,
		robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
}

// BenchmarkPacked opens a packed shard and reads its episodes in order and in another order.
func BenchmarkPacked(b *testing.B) {
	const episodes = 64
	var plain []byte
	noise := mixture(400_000)
	for e := range episodes {
		x := handExample(e, 3)
		x.strings("other", [][]byte{noise})
		r, err := x.bytes()
		if err != nil {
			b.Fatal(err)
		}
		plain = appendRecord(plain, r)
	}
	h := newHand()
	h.info = handInfo("toy", "train", episodes)
	h.shards[handShard] = squeeze(b, "gzip", 6, plain)
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		indexes.Clear()
		d, err := h.open(b, "packed-bench")
		if err != nil {
			b.Fatal(err)
		}
		for _, step := range []int{1, 29} {
			d.records.Clear()
			d.imageless.Clear()
			for i := range episodes {
				e := i * step % episodes
				if err := checkEpisode(b, d, e, e); err != nil {
					b.Fatal(err)
				}
			}
		}
		d.Close()
	}
}
