package cache

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// filledDir makes a cache of n entries in sealed shards.
func filledDir(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	d, err := Open(dir, Options{Budget: 256 << 20, ShardBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		mustPut(t, d, i)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDamage checks that bytes that changed on disk are never returned, and that other entries are
// (cache.C1).
func TestDamage(t *testing.T) {
	const n = 120
	seed := uint64(rand.Uint32())
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		dir := filledDir(t, n)
		files := shardFiles(t, dir, sealedSuffix)
		whole := 0
		for range 1 + round%5 {
			path := files[r.IntN(len(files))]
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			switch at := r.IntN(len(b)); r.IntN(6) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1:
				b = b[:at]
			case 2:
				clear(b[at:min(len(b), at+4096)])
			case 3: // the table or the tail
				at = max(0, len(b)-1-r.IntN(600))
				b[at] ^= 0xff
			case 4:
				b = append(b, make([]byte, 64*r.IntN(5)+r.IntN(2))...)
			case 5: // the bytes of another shard
				other, err := os.ReadFile(files[r.IntN(len(files))])
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(other, b) {
					whole++
				}
				b = other
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// every byte is compared
		before := count(t, mustOpen(t, dir, Options{Budget: 256 << 20}), n)
		d := mustOpen(t, dir, Options{Budget: 256 << 20})
		if again := count(t, d, n); again != before {
			t.Errorf("seed %d round %d: %d entries, then %d", seed, round, before, again)
		}
		// lost entries can be put again
		for i := range n {
			mustPut(t, d, i)
		}
		if hits := count(t, d, n); hits != n {
			t.Errorf("seed %d round %d: after putting again %d of %d", seed, round, hits, n)
		}
		d.Close()
	}
}

// TestOneBadEntry checks that a flipped byte in an entry loses only this entry, is counted once,
// and is reported by Verify. Its shard is the first to be evicted.
func TestOneBadEntry(t *testing.T) {
	dir := filledDir(t, 60)
	files := shardFiles(t, dir, sealedSuffix)
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[headSize+entryHead] ^= 1
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(t.Context(), dir, VerifyOptions{})
	if err != nil || len(v.Damaged) != 1 || v.Damaged[0].File != filepath.Base(files[0]) ||
		v.Damaged[0].Offset != headSize+entryHead ||
		v.Entries != 60 {
		t.Fatalf("%+v, %v", v, err)
	}
	d := mustOpen(t, dir, Options{Budget: 256 << 20})
	for range 3 {
		if hits := count(t, d, 60); hits != 59 {
			t.Errorf("%d of 60", hits)
		}
	}
	if s := d.Stats(); s.BadEntries != 1 || s.Entries != 59 {
		t.Errorf("%+v", s)
	}
	d.Close()
	p, err := Prune(dir, diskBytes(t, dir)-8192)
	if err != nil || p.Removed != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := os.Stat(files[0]); err == nil {
		t.Error("the damaged shard is not the one that went")
	}
}

// TestVerifyDrops checks that Verify with Drop removes only damaged shards.
func TestVerifyDrops(t *testing.T) {
	dir := filledDir(t, 120)
	files := shardFiles(t, dir, sealedSuffix)
	if err := os.Truncate(files[1], 5000); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(t.Context(), dir, VerifyOptions{Drop: true})
	if err != nil || v.Dropped != 1 || len(v.Damaged) != 1 || v.Damaged[0].What != StateDamaged {
		t.Fatalf("%+v, %v", v, err)
	}
	if left := shardFiles(t, dir, sealedSuffix); len(left) != len(files)-1 {
		t.Errorf("%d of %d files", len(left), len(files))
	}
	if v, err = Verify(t.Context(), dir, VerifyOptions{}); err != nil || len(v.Damaged) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestLeftoverDamaged checks that a truncated, holed or damaged unsealed shard yields its intact
// entries and no wrong byte (cache.C8).
func TestLeftoverDamaged(t *testing.T) {
	seed := uint64(rand.Uint32())
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: 256 << 20, ShardBytes: 4 << 20})
	const n = 80
	for i := range n {
		mustPut(t, d, i)
	}
	open := shardFiles(t, dir, openSuffix)
	if len(open) != 1 {
		t.Fatal(open)
	}
	b, err := os.ReadFile(open[0])
	if err != nil {
		t.Fatal(err)
	}
	marker, err := os.ReadFile(filepath.Join(dir, markerName))
	if err != nil {
		t.Fatal(err)
	}
	for round := range 40 {
		dir := t.TempDir()
		left := bytes.Clone(b)
		lost := 0
		switch {
		case round == 0:
		case round%3 == 0:
			left = left[:r.IntN(len(left))]
			lost = n
		default:
			for range round % 4 {
				at := r.IntN(3 << 20)
				clear(left[at : at+r.IntN(20_000)])
				lost += 8
			}
		}
		if err := os.WriteFile(filepath.Join(dir, markerName), marker, 0o644); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Base(open[0]))
		if err := os.WriteFile(path, left, 0o644); err != nil {
			t.Fatal(err)
		}
		then := time.Unix(1e9, 0)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, dir, Options{Budget: 256 << 20})
		if files := shardFiles(t, dir, sealedSuffix); len(files) == 1 {
			if info, err := os.Stat(files[0]); err != nil || !info.ModTime().Equal(then) {
				t.Errorf("a recovered shard was last used at %v (%v)", info.ModTime(), err)
			}
		}
		hits := count(t, d, n)
		if hits < n-lost {
			t.Errorf("seed %d round %d: %d of %d entries recovered", seed, round, hits, n)
		}
		if left := shardFiles(t, dir, openSuffix); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		d.Close()
	}
}

func FuzzTable(f *testing.F) {
	add := func(slots []slot, end int64) {
		f.Add(
			append(
				append(shardHead(1, 2, 4096), make([]byte, end-headSize)...),
				encodeTable(slots, end, 1, 2)...),
		)
	}
	add(nil, 64)
	add([]slot{{off: 128, n: 10}, {off: 256, n: 100}}, 448)
	add([]slot{{off: 128, n: 1 << 62}}, 448)
	add([]slot{{off: 128, n: -1}}, 448)
	add([]slot{{off: -64, n: 1}, {off: 1 << 62, n: 1}, {off: 130, n: 1}, {off: 64, n: 1}}, 448)
	add([]slot{{off: 384, n: 65}}, 448)
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			size := int64(len(b))
			slots, ok, err := readTable(bytes.NewReader(b), size, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range slots {
				if !ok || s.off%align != 0 || s.off < headSize+entryHead || s.n < 0 ||
					s.off+s.n > size-tailSize ||
					s.off+s.n < s.off {
					t.Fatalf("%+v of %d bytes", s, size)
				}
			}
			// Parse again with valid checksums, which the fuzzer cannot guess.
			if size < headSize+tailSize {
				return
			}
			copy(b, shardHead(1, 2, 4096))
			tail := b[size-tailSize:]
			copy(tail, tailMagic[:])
			le.PutUint64(tail[8:], 1)
			le.PutUint64(tail[16:], 2)
			if off := le.Uint64(tail[24:]); off >= headSize && off <= uint64(size-tailSize) {
				le.PutUint64(tail[40:], hashParts([][]byte{b[off : size-tailSize]}))
			}
			seal64(tail)
		}
	})
}

func FuzzScan(f *testing.F) {
	one := func(at, n int) []byte {
		b := make([]byte, at+entryHead+n)
		copy(b[at:], entryHeader(slot{off: int64(at + entryHead), n: int64(n)}, 2))
		return b
	}
	f.Add(one(64, 100), uint16(64))
	f.Add(one(512, 3), uint16(512))
	f.Add(bytes.Repeat(entryMagic[:], 1000), uint16(128))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		if i := int(at) &^ (align - 1); i+entryHead <= len(b) {
			// a valid header with the fuzzer's length
			copy(b[i:], entryMagic[:])
			le.PutUint64(b[i+40:], uint64(i+entryHead))
			le.PutUint64(b[i+48:], 2)
			seal64(b[i : i+entryHead])
		}
		size := int64(len(b))
		slots, end, err := scanEntries(
			bytes.NewReader(b),
			size,
			2,
			func(off int64) int64 { return off },
		)
		if err != nil || end > max(size, headSize) {
			t.Fatal(end, err)
		}
		last := int64(headSize)
		for _, s := range slots {
			if s.off < last+entryHead || s.n < 0 || s.off > size || s.n > size-s.off {
				t.Fatalf("%+v of %d bytes", s, size)
			}
			last = s.off + s.n
		}
	})
}

// seal64 writes the checksum of a 64-byte record into its last 8 bytes.
func seal64(b []byte) { le.PutUint64(b[56:], hashParts([][]byte{b[:56]})) }
