package cache

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/zeebo/xxh3"
)

// size of a decoded frame of 640×480 in YUV 4:2:0
const frame = 640 * 480 * 3 / 2

const benchFrames = 500

func benchFrame(i int) []byte {
	b := make([]byte, frame)
	for j := 0; j < len(b); j += 8 {
		le.PutUint64(b[j:], uint64(i*frame+j)*0x9e3779b97f4a7c15)
	}
	return b
}

func benchDir(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	d, err := Open(dir, Options{Budget: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchFrames {
		if err := d.Put(key(i), benchFrame(i)); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkMemcpy is the lower bound: it copies frames from 230 MB of memory.
func BenchmarkMemcpy(b *testing.B) {
	src := make([]byte, benchFrames*frame)
	for i := range benchFrames {
		copy(src[i*frame:], benchFrame(i))
	}
	dst := make([]byte, frame)
	b.SetBytes(frame)
	b.ReportAllocs()
	for i := range b.N {
		at := i * 263 % benchFrames * frame
		copy(dst, src[at:at+frame])
	}
	runtime.KeepAlive(src)
}

// BenchmarkGet measures Get of verified entries with mapped pages, as in every epoch after the
// first. One case also reads the frame.
func BenchmarkGet(b *testing.B) {
	for _, read := range []bool{false, true} {
		b.Run(fmt.Sprintf("read=%v", read), func(b *testing.B) {
			d := mustOpen(b, benchDir(b), Options{Budget: 1 << 30})
			dst := make([]byte, frame)
			get := func(i int) {
				e, ok := d.Get(key(i * 263 % benchFrames))
				if !ok {
					b.Fatal("not there")
				}
				if read {
					copy(dst, e.Data)
				}
				e.Release()
			}
			for i := range benchFrames {
				get(i)
			}
			b.SetBytes(frame)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				get(i)
			}
		})
	}
}

// BenchmarkGetFirst measures the first Get of each entry in a process: page faults and the
// checksum.
func BenchmarkGetFirst(b *testing.B) {
	dir := benchDir(b)
	dst := make([]byte, frame)
	b.SetBytes(frame)
	var d *Dir
	b.ResetTimer()
	for i := range b.N {
		if i%benchFrames == 0 {
			b.StopTimer()
			if d != nil {
				d.Close()
			}
			d = mustOpen(b, dir, Options{Budget: 1 << 30})
			b.StartTimer()
		}
		e, ok := d.Get(key(i * 263 % benchFrames))
		if !ok {
			b.Fatal("not there")
		}
		copy(dst, e.Data)
		e.Release()
	}
}

func BenchmarkChecksum(b *testing.B) {
	src := make([]byte, benchFrames*frame)
	for i := range benchFrames {
		copy(src[i*frame:], benchFrame(i))
	}
	b.SetBytes(frame)
	var sum uint64
	for i := range b.N {
		at := i * 263 % benchFrames * frame
		sum += xxh3.Hash(src[at : at+frame])
	}
	runtime.KeepAlive(sum)
}

func BenchmarkMiss(b *testing.B) {
	d := mustOpen(b, benchDir(b), Options{Budget: 1 << 30})
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, ok := d.Get(key(1_000_000 + i)); ok {
			b.Fatal("there")
		}
	}
}

// BenchmarkPut puts 500 frames and seals them. The lower bound writes the same bytes to a plain
// file and syncs it. With flush=false, the data stays in the page cache.
func BenchmarkPut(b *testing.B) {
	v := benchFrame(1)
	for _, flush := range []bool{false, true} {
		b.Run(fmt.Sprintf("flush=%v", flush), func(b *testing.B) {
			dir := b.TempDir()
			d := mustOpen(b, dir, Options{Budget: 1 << 30})
			b.SetBytes(frame)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if err := d.Put(key(i), v[:len(v)/3], v[len(v)/3:]); err != nil {
					b.Fatal(err)
				}
				if flush && i%benchFrames == benchFrames-1 {
					if err := d.Flush(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.StopTimer()
			if s := d.Stats(); s.Puts != int64(b.N) {
				b.Logf("%d of %d written: %+v", s.Puts, b.N, s)
			}
		})
	}
	b.Run("plain file", func(b *testing.B) {
		f, err := os.CreateTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		b.SetBytes(frame)
		b.ResetTimer()
		for i := range b.N {
			if _, err := f.WriteAt(v, int64(i%1000)*frame); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGetCold measures the first Get if no data is in memory. It compares one reader in random
// order with reads of the same ranges into a buffer.
func BenchmarkGetCold(b *testing.B) {
	dir := benchDir(b)
	files := shardFiles(b, dir, sealedSuffix)
	forget := func() {
		for _, path := range files {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			forgetPages(f)
			f.Close()
		}
	}
	b.Run("get", func(b *testing.B) {
		b.SetBytes(frame)
		var d *Dir
		b.ResetTimer()
		for i := range b.N {
			if i%(benchFrames/5) == 0 {
				b.StopTimer()
				if d != nil {
					d.Close()
				}
				forget()
				d = mustOpen(b, dir, Options{Budget: 1 << 30})
				b.StartTimer()
			}
			e, ok := d.Get(key(i * 263 % benchFrames))
			if !ok {
				b.Fatal("not there")
			}
			e.Release()
		}
	})
	b.Run("pread", func(b *testing.B) {
		var all []*os.File
		for _, path := range files {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			all = append(all, f)
		}
		dst := make([]byte, frame)
		b.SetBytes(frame)
		b.ResetTimer()
		for i := range b.N {
			if i%(benchFrames/5) == 0 {
				b.StopTimer()
				forget()
				b.StartTimer()
			}
			if _, err := all[0].ReadAt(dst, int64(i*263%200)*(frame+entryHead)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
