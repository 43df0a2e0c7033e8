package cudahost

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// driver is what is used of the CUDA driver. Results are CUresult; 0 is success.
type driver struct {
	deviceCount    func(n *int32) int32
	deviceGet      func(device *int32, ordinal int32) int32
	primaryState   func(device int32, flags *uint32, active *int32) int32
	primaryRetain  func(context *uintptr, device int32) int32
	primaryRelease func(device int32) int32
	push           func(context uintptr) int32
	pop            func(context *uintptr) int32
	hostAlloc      func(p *unsafe.Pointer, size uintptr, flags uint32) int32
	hostFree       func(p unsafe.Pointer) int32
	name           func(code int32) string
}

const (
	portable    = 1 // CU_MEMHOSTALLOC_PORTABLE
	outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
	noDevice    = 100
)

// Host allocates page-locked memory.
type Host struct {
	d       *driver
	device  int32
	context uintptr

	mu     sync.Mutex
	live   int
	closed bool
}

// Open prepares for allocations. device: the driver's number of it; below 0 the first that has a
// context already, else the first.
func Open(device int) (*Host, error) {
	d, err := load()
	if err != nil {
		return nil, err
	}
	return open(d, device)
}

func open(d *driver, device int) (*Host, error) {
	var n int32
	if code := d.deviceCount(&n); code != 0 {
		return nil, d.fail("count devices", code)
	}
	if n == 0 {
		return nil, d.fail("count devices", noDevice)
	}
	if device >= int(n) {
		return nil, robocache.Misuse("page-locked memory", nil, "CUDA device %d", device).
			Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(device))
	}
	h := &Host{d: d}
	if device < 0 {
		device = d.inUse(n)
	}
	if code := d.deviceGet(&h.device, int32(device)); code != 0 {
		return nil, d.fail("find the device", code)
	}
	if code := d.primaryRetain(&h.context, h.device); code != 0 {
		return nil, d.fail("make a context", code)
	}
	return h, nil
}

// inUse is the first device with a context.
func (d *driver) inUse(n int32) int {
	for i := range n {
		var device, active int32
		var flags uint32
		if d.deviceGet(&device, i) == 0 && d.primaryState(device, &flags, &active) == 0 &&
			active != 0 {
			return int(i)
		}
	}
	return 0
}

// within runs f with the context current on this thread.
func (h *Host) within(f func() int32) int32 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := h.d.push(h.context); code != 0 {
		return code
	}
	code := f()
	var out uintptr
	if popped := h.d.pop(&out); code == 0 {
		code = popped
	}
	return code
}

// Alloc gives n bytes.
func (h *Host) Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, robocache.Misuse("page-locked memory", nil, "size").
			Expected("above 0", fmt.Sprint(n))
	}
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.live++
	}
	h.mu.Unlock()
	if closed {
		return nil, robocache.Misuse("page-locked memory", nil, "closed")
	}
	var p unsafe.Pointer
	if code := h.within(
		func() int32 { return h.d.hostAlloc(&p, uintptr(n), portable) },
	); code != 0 {
		h.gone()
		return nil, robocache.At(h.d.fail("allocate", code), robocache.Where{"bytes": n})
	}
	m := unsafe.Slice((*byte)(p), n)
	clear(m)
	return m, nil
}

// Free gives memory of Alloc back. At the end of a process, when the driver is gone, there is
// nothing to do.
func (h *Host) Free(m []byte) {
	if len(m) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(m))
	_ = h.within(func() int32 { return h.d.hostFree(p) })
	h.gone()
}

// Close ends allocations. What is in use stays valid until its Free.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.release()
	}
}

func (h *Host) gone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live--
	h.release()
}

// release gives the context back once nothing needs it: with it, the memory would go. mu is held.
func (h *Host) release() {
	if h.closed && h.live == 0 {
		_ = h.d.primaryRelease(h.device)
	}
}

// fail makes an error of a result of the driver.
func (d *driver) fail(op string, code int32) error {
	e := robocache.Unsupported("page-locked memory", nil, "the CUDA driver could not %s: %s", op, d.name(code)).
		WithHint("%s does without", robocache.Option("pin_memory", false))
	switch {
	case Lost(code):
		e.Class, e.Hint = robocache.ErrTemporary, LostHint
	case code == outOfMemory:
		e.Class, e.Hint = robocache.ErrResourceLimit, "a smaller "+robocache.Option(
			"batch_size",
		)+" or "+robocache.Option(
			"prefetch",
		)+", or "+robocache.Option(
			"pin_memory",
			false,
		)+"; page-locked memory is limited by the machine's"
	case code == noDevice:
		e.Msg = "the CUDA driver finds no device"
	}
	return e
}
