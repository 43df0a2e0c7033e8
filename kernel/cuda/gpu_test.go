package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// device returns the first GPU. If there is none, the test is skipped with the reason, or fails if
// ROBOCACHE_NEED_GPU=1.
func device(t testing.TB) *Device {
	t.Helper()
	d, err := Open(0)
	if err != nil {
		if os.Getenv("ROBOCACHE_NEED_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return d
}

// words returns n words of device memory, all 0, which are freed at the end of the test.
func words(t testing.TB, d *Device, n int) uintptr {
	t.Helper()
	a, err := d.Alloc(n * 4)
	if err == nil {
		err = d.Clear(a, n*4)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Free(a) })
	return a
}

// pageLocked returns page-locked host memory, which is freed at the end of the test.
func pageLocked(t testing.TB, n int) []byte {
	t.Helper()
	h, err := cudahost.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	b, err := h.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Free(b) })
	return b
}

// word reads one word of device memory.
func word(t testing.TB, d *Device, a uintptr, i int) uint32 {
	t.Helper()
	b := make([]byte, 4)
	if err := d.CopyOut(b, a+uintptr(i*4)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b)
}

// stream returns a new stream that is freed after the test.
func stream(t testing.TB, d *Device) uintptr {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.FreeStream(s) })
	return s
}

// TestOpen covers cuda.G1: without a GPU, the error names what is missing. With a GPU, the test
// logs it.
func TestOpen(t *testing.T) {
	d, err := Open(0)
	if err != nil {
		if !errors.Is(err, robocache.ErrUnsupported) {
			t.Fatal(err)
		}
		if n, again := Count(); n != 0 || again == nil {
			t.Error(n, again)
		}
		t.Skip(err)
	}
	free, total, err := d.Memory()
	if err != nil || free <= 0 || total < free {
		t.Error(free, total, err)
	}
	t.Logf(
		"%s, driver for CUDA %d, %d of %d MiB free, %+v",
		d.Name(),
		d.Driver(),
		free>>20,
		total>>20,
		d.launcher.chipInfo(),
	)
	if same, err := Open(0); err != nil || same != d {
		t.Error("another value for the same device")
	}
	for _, number := range []int{-1, 1000} {
		if _, err := Open(number); !errors.Is(err, robocache.ErrMisuse) {
			t.Error(number, err)
		}
	}
}

// TestLaunchOnGPU launches kernels of probe.cu: with and without an early start, and with the
// largest shared memory.
func TestLaunchOnGPU(t *testing.T) {
	d := device(t)
	for _, n := range []int{0, 1, 31, 1000, 1 << 20} {
		a := words(t, d, max(n, 1))
		for _, kernel := range []string{"probe_add", "probe_early"} {
			l, err := probe(d, kernel, probeParams{n: int64(n), add: 7}, 128, 0)
			if err != nil {
				t.Fatal(err)
			}
			l.calls[0].early = kernel == "probe_early"
			s := stream(t, d)
			for range 10 {
				if err := l.Run([]uintptr{a}, s); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Wait(s); err != nil {
				t.Fatal(err)
			}
		}
		if n > 0 && (word(t, d, a, 0) != 140 || word(t, d, a, n-1) != 140) {
			t.Errorf("n %d: %d … %d, not 140", n, word(t, d, a, 0), word(t, d, a, n-1))
		}
	}
	// All shared memory that a block can have.
	size := uint32(d.launcher.chipInfo().shared)
	l, err := probe(d, "probe_shared", probeParams{n: int64(size / 4), add: 40}, 64, size)
	if err != nil {
		t.Fatal(err)
	}
	l.calls[0].grid = 3
	a := words(t, d, 3)
	if err := l.Run([]uintptr{a}, 0); err != nil {
		t.Fatal(err)
	}
	if got := word(t, d, a, 2); got != 42 {
		t.Error(got)
	}
}

// TestManyElements uses more than 2^31 elements.
func TestManyElements(t *testing.T) {
	d := device(t)
	const n = 1<<31 + 8
	if free, _, err := d.Memory(); err != nil || free < 9<<30 {
		t.Skip("needs 9 GiB of the device: ", free, err)
	}
	a := words(t, d, n)
	l, err := probe(d, "probe_add", probeParams{n: n, add: 9}, 256, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run([]uintptr{a}, 0); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1 << 30, 1<<31 - 1, 1 << 31, n - 1} {
		if got := word(t, d, a, i); got != 9 {
			t.Errorf("element %d: %d", i, got)
		}
	}
}

// TestGraph covers cuda.G4: a graph is captured and replayed with the contents that the memory has
// then. It also covers the legacy stream and the per-thread stream.
func TestGraph(t *testing.T) {
	d := device(t)
	const n = 5000
	a := words(t, d, n)
	l, err := probe(d, "probe_add", probeParams{n: n, add: 1}, 128, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := probe(d, "probe_early", probeParams{n: n, add: 1}, 128, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.calls[0].early = true
	s := stream(t, d)
	g, err := d.Capture(s, func() error {
		for range 20 {
			if err := errors.Join(l.Run([]uintptr{a}, s), e.Run([]uintptr{a}, s),
				e.Run([]uintptr{a}, s)); err != nil {
				return err
			}
		}
		if !d.launcher.isCapturing(s) {
			t.Error("a capture is not seen")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	// An operation is prepared during a framework's capture, with modules and tables.
	h, err := d.Capture(s, func() error {
		d.gpu.mu.Lock()
		clear(d.gpu.modules)
		d.gpu.mu.Unlock()
		m, err := probe(d, "probe_add", probeParams{n: n, add: 1}, 128, 0)
		if err != nil {
			return err
		}
		if _, err := m.uploadTable(make([]byte, 100)); err != nil {
			return err
		}
		return m.Run([]uintptr{a}, s)
	})
	if err != nil {
		t.Fatal("preparing while a graph is captured: ", err)
	}
	h.Free()
	if d.launcher.isCapturing(s) || word(t, d, a, 5) != 0 {
		t.Error("the capture ran")
	}
	for i := range 3 {
		b := bytes.Repeat([]byte{byte(i), 0, 0, 0}, n)
		if err := errors.Join(d.CopyIn(a, b), g.Launch(s), d.Wait(s)); err != nil {
			t.Fatal(err)
		}
		if got := word(t, d, a, n-1); got != uint32(60+i) {
			t.Errorf("replay %d: %d", i, got)
		}
	}
	for _, s := range []uintptr{0, 1, 2} {
		if err := errors.Join(l.Run([]uintptr{a}, s), d.Wait(s)); err != nil {
			t.Errorf("stream %d: %v", s, err)
		}
	}
	if got := word(t, d, a, 0); got != 65 {
		t.Error(got)
	}
	// A check that waits cannot be captured, and its error does not break the capture.
	l.after = func([]uintptr, uintptr) error { return nil }
	_, err = d.Capture(s, func() error { return l.Run([]uintptr{a}, s) })
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := errors.Join(e.Run([]uintptr{a}, s), d.Wait(s)); err != nil {
		t.Error("after a refused capture:", err)
	}
}

// TestErrorsOfLaunches covers cuda.G6: the failing call returns the error with kernel and
// arguments, and the next call is not affected.
func TestErrorsOfLaunches(t *testing.T) {
	d := device(t)
	a := words(t, d, 64)
	ok, err := probe(d, "probe_add", probeParams{n: 64, add: 1}, 64, 0)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*call) uintptr{
		"shared memory": func(k *call) uintptr { k.shared = 1 << 20; return 0 },
		"threads":       func(k *call) uintptr { k.block = 4096; return 0 },
		"a grid":        func(k *call) uintptr { k.grid = 1 << 31; return 0 },
	} {
		l, err := probe(d, "probe_add", probeParams{n: 64, add: 1}, 64, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.calls[0].args = func() string { return "B 3, T 70000" }
		s := change(&l.calls[0])
		err = l.Run([]uintptr{a}, s)
		var e *robocache.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "probe_add<<<") ||
			!strings.Contains(err.Error(), "B 3, T 70000") {
			t.Errorf("%s: %v", what, err)
		}
		if err := errors.Join(ok.Run([]uintptr{a}, 0), d.Wait(0)); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
	if got := word(t, d, a, 63); got != 3 {
		t.Error(got)
	}
	if _, err := d.launcher.(*gpu).kernelFunction("probe_missing"); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
	// cuda.G8
	free, total, _ := d.Memory()
	if _, err := d.Alloc(int(total) + 1<<30); !errors.Is(err, robocache.ErrResourceLimit) ||
		!strings.Contains(err.Error(), "memory budget") {
		t.Error(free, total, err)
	}
	if err := errors.Join(ok.Run([]uintptr{a}, 0), d.Wait(0)); err != nil {
		t.Error(err)
	}
}

// TestContexts covers cuda.G3. It uses many goroutines and threads without a current context, and
// one with another context, which must be restored.
func TestContexts(t *testing.T) {
	d := device(t)
	g := d.gpu
	a := words(t, d, 1)
	l, err := probe(d, "probe_add", probeParams{n: 1, add: 1}, 32, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := stream(t, d)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if err := l.Run([]uintptr{a}, s); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	if err := d.Wait(s); err != nil || word(t, d, a, 0) != 1600 {
		t.Error(err, word(t, d, a, 0))
	}
	if n, _ := Count(); n > 1 { // with the second device current
		o, err := Open(1)
		if err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		now := new(uintptr)
		cudahost.Call(g.f.CtxPushCurrent_v2, o.gpu.context)
		err = errors.Join(l.Run([]uintptr{a}, s), d.Wait(s))
		cudahost.Call(g.f.CtxGetCurrent, ptr(now))
		if err != nil || *now != o.gpu.context || word(t, d, a, 0) != 1601 {
			t.Error("with another device current:", err)
		}
		// A stream of one device with a kernel of another is an error of this call.
		m, err := probe(o, "probe_add", probeParams{n: 1, add: 1}, 32, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Run([]uintptr{a}, s); !errors.Is(err, robocache.ErrMisuse) {
			t.Error("a stream of another device:", err)
		}
		cudahost.Call(g.f.CtxPopCurrent_v2, ptr(now))
	}
}

// TestOwns covers cuda.G8: memory of another device is rejected before the launch.
func TestOwns(t *testing.T) {
	d := device(t)
	locked := pageLocked(t, 64)
	plain := make([]byte, 64)
	a := words(t, d, 100)
	for _, ok := range []uintptr{a, a + 396, uintptr(unsafe.Pointer(&locked[5]))} {
		if err := d.launcher.checkOwner(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []uintptr{uintptr(unsafe.Pointer(&plain[0])), 12} {
		if err := d.launcher.checkOwner(bad); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "must be on the same device") {
			t.Error(err)
		}
	}
	op := trajectories(2)
	for _, x := range op.Tensors() {
		x.Addr = uintptr(unsafe.Pointer(&plain[0]))
	}
	if err := d.Run(op, 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("host memory in a fuse:", err)
	}
	if n, _ := Count(); n > 1 {
		o, err := Open(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.launcher.checkOwner(words(t, o, 1)); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "memory of device 1") {
			t.Error(err)
		}
	}
}

// TestRunDoesNotAllocateOnGPU covers cuda.G5.
func TestRunDoesNotAllocateOnGPU(t *testing.T) {
	d := device(t)
	a := words(t, d, 1)
	l, err := probe(d, "probe_add", probeParams{n: 1, add: 1}, 32, 0)
	if err != nil {
		t.Fatal(err)
	}
	addrs := []uintptr{a}
	if n := testing.AllocsPerRun(200, func() {
		if err := l.Run(addrs, 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a launch", n)
	}
	if err := d.Wait(0); err != nil {
		t.Fatal(err)
	}
}

// TestMemory checks copies and page-locked memory.
func TestMemory(t *testing.T) {
	d := device(t)
	s := stream(t, d)
	const n = 3 << 20
	in := pageLocked(t, n)
	for i := range in {
		in[i] = byte(i * 7)
	}
	a, b := words(t, d, n/4), words(t, d, n/4)
	out := make([]byte, n)
	if err := errors.Join(d.CopyInAsync(a, in, s), d.copyThere(b, a, n, s),
		d.CopyOutAsync(out, b, s), d.Wait(s)); err != nil || !bytes.Equal(in, out) {
		t.Fatal("copies differ", err)
	}
}

// copyThere copies within the device on a stream, with the driver's function.
func (d *Device) copyThere(to, from uintptr, n int, stream uintptr) error {
	return d.gpu.callDriver(
		"copy on the device",
		d.gpu.f.MemcpyDtoDAsync_v2,
		to,
		from,
		uintptr(n),
		stream,
	)
}
