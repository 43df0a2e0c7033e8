package cuda

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// BenchmarkLaunch measures the time of a launch on the host, for each driver function. Queues are
// kept short, because a full queue would be measured instead.
func BenchmarkLaunch(b *testing.B) {
	d := device(b)
	s := stream(b, d)
	a := words(b, d, 1)
	l, err := probe(d, "probe_empty", probeParams{n: 1}, 32, 0)
	if err != nil {
		b.Fatal(err)
	}
	addrs := []uintptr{a}
	each := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f()
				if i%512 == 511 {
					b.StopTimer()
					if err := d.Wait(s); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
			_ = d.Wait(s)
		})
	}
	each("Launch.Run", func() {
		if err := l.Run(addrs, s); err != nil {
			b.Fatal(err)
		}
	})
	// With the context already current, as on a framework's thread.
	g := d.gpu
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cudahost.Call(g.f.CtxPushCurrent_v2, g.context)
	defer cudahost.Call(g.f.CtxPopCurrent_v2, ptr(new(uintptr)))
	each("Launch.Run, context current", func() {
		if err := l.Run(addrs, s); err != nil {
			b.Fatal(err)
		}
	})
	k := &l.calls[0]
	f := k.device.(*function)
	param := unsafe.Pointer(unsafe.SliceData(k.params))
	params := new(unsafe.Pointer)
	*params = param
	each("cuLaunchKernel, Call", func() {
		cudahost.Call(g.f.LaunchKernel, f.handle, 1, 1, 1, 32, 1, 1, 0, s, ptr(params), 0)
	})
	config := &launchConfig{
		gridX:  1,
		gridY:  1,
		gridZ:  1,
		blockX: 32,
		blockY: 1,
		blockZ: 1,
		stream: s,
	}
	each(
		"cuLaunchKernelEx, Call",
		func() { cudahost.Call(g.launchEx, ptr(config), f.handle, ptr(params), 0) },
	)
	var launch func(
		f uintptr, gx, gy, gz, bx, by, bz, sh uint32, stream uintptr, params unsafe.Pointer, extra uintptr,
	) int32
	purego.RegisterFunc(&launch, g.f.LaunchKernel)
	each(
		"cuLaunchKernel, RegisterFunc",
		func() { launch(f.handle, 1, 1, 1, 32, 1, 1, 0, s, unsafe.Pointer(params), 0) },
	)
	current := new(uintptr)
	each("cuCtxGetCurrent, Call", func() { cudahost.Call(g.f.CtxGetCurrent, ptr(current)) })
	var get func(*uintptr) int32
	purego.RegisterFunc(&get, g.f.CtxGetCurrent)
	each("cuCtxGetCurrent, RegisterFunc", func() { get(current) })
	runtime.KeepAlive(k.params)
}

// TestGraphNodes measures the time of a graph node on the device: empty kernels in sequence, and
// with programmatic launches.
func TestGraphNodes(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	d := device(t)
	a := words(t, d, 1<<20)
	for _, c := range []struct {
		kernel string
		early  bool
		n      int64
		grid   uint32
	}{
		{"probe_empty", false, 32, 1},
		{"probe_early", false, 32, 1},
		{"probe_early", true, 32, 1},
		{"probe_early", false, 128 * 132, 132},
		{"probe_early", true, 128 * 132, 132},
		{"probe_early", false, 1 << 20, 8192},
		{"probe_early", true, 1 << 20, 8192},
	} {
		l, err := probe(d, c.kernel, probeParams{n: c.n, add: 1}, 128, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.calls[0].early = c.early
		got, err := d.Time(100, 20, func(_ int, s uintptr) error { return l.Run([]uintptr{a}, s) })
		if err != nil {
			t.Error(c, err)
			continue
		}
		t.Logf(
			"%-12s early %-5v n %-8d: %.3f µs a node (best %.3f)",
			c.kernel,
			c.early,
			c.n,
			got.Median,
			got.Best,
		)
	}
}

// TestCopyRates measures memory rates: copies on the device, to it, from it, and in both
// directions.
func TestCopyRates(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints rates: -v")
	}
	d := device(t)
	const n = 1 << 30
	if free, _, _ := d.Memory(); free < 3<<30 {
		t.Skip("needs 3 GiB of the device")
	}
	a, b := words(t, d, n/4), words(t, d, n/4)
	in := pageLocked(t, n/2)
	out := pageLocked(t, n/2)
	s, r := stream(t, d), stream(t, d)
	rate := func(what string, bytes int, f func() error) {
		var best time.Duration
		for i := range 5 {
			begin := time.Now()
			for range 4 {
				if err := f(); err != nil {
					t.Fatal(what, err)
				}
			}
			if err := d.Wait(s); err != nil {
				t.Fatal(err)
			}
			if err := d.Wait(r); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); i > 0 && (best == 0 || took < best) {
				best = took
			}
		}
		t.Logf("%-40s %8.1f GB/s", what, float64(bytes)*4/best.Seconds()/1e9)
	}
	rate("on the device, read and written", 2*n, func() error { return d.copyThere(b, a, n, s) })
	rate("to the device, page-locked", len(in), func() error { return d.CopyInAsync(a, in, s) })
	rate(
		"from the device, page-locked",
		len(out),
		func() error { return d.CopyOutAsync(out, b, r) },
	)
	rate("both ways, page-locked", 2*len(in), func() error {
		if err := d.CopyInAsync(a, in, s); err != nil {
			return err
		}
		return d.CopyOutAsync(out, b, r)
	})
	for _, chunk := range []int{256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		rate(fmt.Sprintf("both ways, pieces of %d KiB", chunk>>10), 2*len(in), func() error {
			for at := 0; at < len(in); at += chunk {
				if err := d.CopyInAsync(a+uintptr(at), in[at:at+chunk], s); err != nil {
					return err
				}
				if err := d.CopyOutAsync(out[at:at+chunk], b+uintptr(at), r); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
