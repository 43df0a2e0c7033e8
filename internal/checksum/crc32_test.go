package checksum

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestLikeHash: K1, at every length up to some blocks, every alignment, and cut anywhere.
func TestLikeHash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for n := range 2100 {
		for _, from := range []int{0, 1, 7, 63} {
			p := b[from : from+n : from+n]
			if got, want := CRC32(p), crc32.ChecksumIEEE(p); got != want {
				t.Fatalf("%d bytes from %d: %08x, want %08x", n, from, got, want)
			}
		}
	}
	for range 2000 {
		p := b[r.IntN(100):]
		at := r.IntN(len(p))
		if got, want := Update(CRC32(p[:at]), p[at:]), crc32.ChecksumIEEE(p); got != want {
			t.Fatalf("cut at %d of %d: %08x, want %08x", at, len(p), got, want)
		}
	}
	for _, v := range []byte{0, 0xff} {
		for i := range b {
			b[i] = v
		}
		if got, want := Update(0x12345678, b), crc32.Update(0x12345678, crc32.IEEETable, b); got != want {
			t.Fatalf("all %x: %08x, want %08x", v, got, want)
		}
	}
}

func TestNoGarbage(t *testing.T) {
	b := make([]byte, 4096)
	if n := testing.AllocsPerRun(10, func() { CRC32(b) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkCRC32(b *testing.B) {
	p := make([]byte, 120<<10)
	for name, f := range map[string]func([]byte) uint32{"ours": CRC32, "hash": crc32.ChecksumIEEE} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				f(p)
			}
		})
	}
}
