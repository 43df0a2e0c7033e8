package rlds

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache/store"
)

// squeeze packs bytes as a shard may be packed.
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

// mixture is bytes of every kind: text, noise, runs.
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

// levels are those of a compressor; the race detector's run takes one.
func levels(all ...int) []int {
	if testing.Short() {
		return all[len(all)-1:]
	}
	return all
}

func packingNamed(how string) packing {
	if how == "zlib" {
		return zlibStream
	}
	return gzipped
}

// TestInflater gives the bytes of another's compressor, at every level, and from each of its marks the rest.
func TestInflater(t *testing.T) {
	plain := mixture(1 << 20)
	if testing.Short() {
		plain = plain[:400_000]
	}
	for _, how := range packings {
		for _, level := range levels(-2, 0, 1, 6, 9) {
			z := squeeze(t, how, level, plain)
			m := &marks{spacing: 70_000, most: 8}
			got, err := io.ReadAll(newInflater(bytes.NewReader(z), packingNamed(how), m))
			if err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("%s %d: %d bytes, %v", how, level, len(got), err)
			}
			if len(m.list) < 3 || len(m.list) > m.most {
				t.Errorf("%s %d: %d marks", how, level, len(m.list))
			}
			s := store.NewMem(fmt.Sprintf("marks-%s-%d", how, level))
			t.Cleanup(s.Drop)
			s.Put("shard", z)
			r, err := s.Open(t.Context(), "shard")
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.list {
				k := &m.list[i]
				x, err := openMarked(t.Context(), r, packingNamed(how), 1<<30, k)
				if err != nil {
					t.Fatal(err)
				}
				rest := make([]byte, int64(len(plain))-k.out)
				if _, err := io.ReadFull(x.r, rest); err != nil || !bytes.Equal(rest, plain[k.out:]) {
					t.Fatalf("%s %d: from mark %d at %d (bit %d): %v", how, level, i, k.out, k.bit%8, err)
				}
			}
		}
	}
}

// TestInflaterDamaged: what is cut or altered ends with an error or with other bytes that a check sum would tell; nothing panics.
func TestInflaterDamaged(t *testing.T) {
	plain, stride := mixture(30_000), 1
	if testing.Short() {
		stride = 23
	}
	for _, how := range packings {
		for _, level := range levels(-2, 0, 6) {
			z := squeeze(t, how, level, plain)
			for cut := 0; cut < len(z); cut += 13 * stride {
				if got, err := io.ReadAll(newInflater(bytes.NewReader(z[:cut]), packingNamed(how), nil)); err == nil && len(got) == len(plain) {
					t.Fatalf("%s %d cut at %d was taken for whole", how, level, cut)
				}
			}
			for at := range z {
				if at%7 != 0 && at > 200 || at%stride != 0 {
					continue
				}
				b := bytes.Clone(z)
				b[at] ^= byte(1 << (at % 8))
				got, err := io.ReadAll(io.LimitReader(newInflater(bytes.NewReader(b), packingNamed(how), &marks{spacing: 1000, most: 4}), 1<<22))
				if err == nil && !bytes.Equal(got, plain) {
					t.Fatalf("%s %d: byte %d altered, and other bytes came without an error", how, level, at)
				}
			}
		}
	}
}

func FuzzInflater(f *testing.F) {
	for _, how := range packings {
		f.Add(squeeze(f, how, 6, mixture(3000)), how == "zlib")
	}
	f.Fuzz(func(t *testing.T, z []byte, isZlib bool) {
		p := gzipped
		if isZlib {
			p = zlibStream
		}
		got, err := io.ReadAll(io.LimitReader(newInflater(bytes.NewReader(z), p, &marks{spacing: 100, most: 4}), 1<<20))
		var r io.Reader
		var other error
		if isZlib {
			r, other = zlib.NewReader(bytes.NewReader(z))
		} else {
			r, other = gzip.NewReader(bytes.NewReader(z))
		}
		if err != nil || other != nil || len(got) == 1<<20 {
			return
		}
		if want, e := io.ReadAll(r); e == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, another reader has %d", len(got), len(want))
		}
	})
}

// BenchmarkInflater beside the library that has no marks.
func BenchmarkInflater(b *testing.B) {
	plain := mixture(8 << 20)
	z := squeeze(b, "gzip", 6, plain)
	b.Run("marks", func(b *testing.B) {
		b.SetBytes(int64(len(plain)))
		for b.Loop() {
			if _, err := io.Copy(io.Discard, newInflater(bytes.NewReader(z), gzipped, &marks{spacing: markSpacing, most: 64})); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("klauspost", func(b *testing.B) {
		b.SetBytes(int64(len(plain)))
		for b.Loop() {
			r, err := gzip.NewReader(bytes.NewReader(z))
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestPackedReads: a pass over a packed shard in order decompresses it once, and one in any order about a mark's distance for each episode.
func TestPackedReads(t *testing.T) {
	const episodes = 48
	rng := rand.New(rand.NewPCG(3, 4))
	for _, how := range packings {
		h := newHand()
		var plain []byte

		noise := make([]byte, 200_000) // of a key that nobody asks for: it makes records large, and they do not shrink
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
		s := store.NewMem("rlds-packed-reads-" + how)
		t.Cleanup(s.Drop)
		h.put(s)
		counted := store.Counting(s)
		d, err := OpenStore(t.Context(), counted, handOptions)
		if err != nil || d.Info().Episodes != episodes || len(d.Info().Findings) > 1 {
			t.Fatal(how, err, d.Info().Findings)
		}
		pass := func(order []int) int64 {
			before := counted.Counts().BytesRead
			d.recs.Clear()
			d.thin.Clear()
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
		if got := pass(order); got > size+size/4 {
			t.Errorf("%s: a pass in order reads %d bytes of a shard of %d", how, got, size)
		}
		rng.Shuffle(episodes, func(i, j int) { order[i], order[j] = order[j], order[i] })
		// A record, what lies before it to a mark (1 MiB at most), what is read ahead of the decompressor.
		if got, most := pass(order), int64(episodes)*(200_000+1<<20+256<<10); got > most || got > size*episodes/4 {
			t.Errorf("%s: a pass in any order reads %d bytes of a shard of %d", how, got, size)
		}
		d.Close()
	}
}
