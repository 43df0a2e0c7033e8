package cache

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// forgetPages removes a file from the page cache.
func forgetPages(f *os.File) {
	const dontNeed = 4
	_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
}

// cpu returns the CPU time of this thread.
func cpu(b *testing.B) time.Duration {
	const thread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAgainstMemcpy compares the CPU time of reading a frame from the cache with that of a
// plain copy. The cases alternate every 20 frames, so that load on the machine affects all of them.
// They are: copies from anonymous memory; first Gets (page faults and checksum) with a copy; later
// Gets with a copy; Gets with Resident at an eighth of the data; and Puts.
func BenchmarkAgainstMemcpy(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := benchDir(b)
	src := make([]byte, benchFrames*frame)
	for i := range benchFrames {
		copy(src[i*frame:], benchFrame(i))
	}
	dst := make([]byte, frame)
	get := func(d *Dir) func(i int) {
		return func(i int) {
			e, ok := d.Get(key(i * 263 % benchFrames))
			if !ok {
				b.Fatal("not there")
			}
			copy(dst, e.Data)
			e.Release()
		}
	}
	arms := []struct {
		name string
		do   func(i int)
		cpu  time.Duration
	}{
		{name: "memcpy", do: func(i int) {
			at := i * 263 % benchFrames * frame
			copy(dst, src[at:at+frame])
		}},
		{name: "first", do: nil},
		{name: "later", do: get(mustOpen(b, dir, Options{Budget: 1 << 30}))},
		{
			name: "bounded",
			do: get(
				mustOpen(b, dir, Options{Budget: 1 << 30, Resident: benchFrames * frame / 8}),
			),
		},
	}
	for i := range benchFrames { // warm up
		arms[0].do(i)
		arms[2].do(i)
		arms[3].do(i)
	}
	const turn = 20
	n := 0
	for b.Loop() {
		first := mustOpen(b, dir, Options{Budget: 1 << 30})
		arms[1].do = get(first)
		for at := 0; at < benchFrames; at += turn {
			for k := range arms {
				start := cpu(b)
				for i := range turn {
					arms[k].do(at + i)
				}
				arms[k].cpu += cpu(b) - start
			}
			n += turn
		}
		first.Close()
	}
	for _, a := range arms {
		b.ReportMetric(a.cpu.Seconds()*1e6/float64(n), a.name+"-cpu-us/frame")
	}
}

// BenchmarkPutAgainstWrite compares the CPU time of a Put with that of appending the same bytes to
// a plain file. Sealing is not included, because it runs in the background and waits for the disk.
func BenchmarkPutAgainstWrite(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := mustOpen(b, b.TempDir(), Options{Budget: 4 << 30})
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	v := benchFrame(1)
	var put, write time.Duration
	n := 0
	for b.Loop() {
		if n%2000 == 0 {
			if err := f.Truncate(0); err != nil {
				b.Fatal(err)
			}
		}
		t0 := cpu(b)
		if err := d.Put(key(n), v); err != nil {
			b.Fatal(err)
		}
		t1 := cpu(b)
		if _, err := f.WriteAt(v, int64(n%2000)*frame); err != nil {
			b.Fatal(err)
		}
		put, write = put+t1-t0, write+cpu(b)-t1
		n++
	}
	if s := d.Stats(); s.Puts != int64(n) {
		b.Logf("%+v", s)
	}
	b.ReportMetric(put.Seconds()*1e6/float64(n), "put-cpu-us/frame")
	b.ReportMetric(write.Seconds()*1e6/float64(n), "write-cpu-us/frame")
}
