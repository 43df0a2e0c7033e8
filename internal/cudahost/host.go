package cudahost

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// memoryDriver holds the driver functions for page-locked memory. They return a CUresult; 0 is
// success.
type memoryDriver struct {
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

// Host allocates page-locked memory. Safe for concurrent use.
type Host struct {
	driver  *memoryDriver
	device  int32
	context uintptr

	mu          sync.Mutex
	allocations int
	closed      bool
}

// Open prepares for allocations on the device with the given number. If device is below 0, it uses
// the first device that has a context, or else the first device.
func Open(device int) (*Host, error) {
	d, err := loadDriver()
	if err != nil {
		return nil, err
	}
	return openHost(d, device)
}

func openHost(d *memoryDriver, device int) (*Host, error) {
	var n int32
	if code := d.deviceCount(&n); code != 0 {
		return nil, d.driverError("count devices", code)
	}
	if n == 0 {
		return nil, d.driverError("count devices", noDevice)
	}
	if device >= int(n) {
		return nil, robocache.Misuse("page-locked memory", nil, "CUDA device %d", device).
			Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(device))
	}
	h := &Host{driver: d}
	if device < 0 {
		device = d.inUse(n)
	}
	if code := d.deviceGet(&h.device, int32(device)); code != 0 {
		return nil, d.driverError("find the device", code)
	}
	if code := d.primaryRetain(&h.context, h.device); code != 0 {
		return nil, d.driverError("make a context", code)
	}
	return h, nil
}

// inUse returns the number of the first device with a context, or 0.
func (d *memoryDriver) inUse(n int32) int {
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

// withContext runs f with the context current on this thread.
func (h *Host) withContext(f func() int32) int32 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := h.driver.push(h.context); code != 0 {
		return code
	}
	code := f()
	var out uintptr
	if popped := h.driver.pop(&out); code == 0 {
		code = popped
	}
	return code
}

// Alloc returns n bytes of page-locked memory. The caller must call Free.
func (h *Host) Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, robocache.Misuse("page-locked memory", nil, "size").
			Expected("above 0", fmt.Sprint(n))
	}
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.allocations++
	}
	h.mu.Unlock()
	if closed {
		return nil, robocache.Misuse("page-locked memory", nil, "closed")
	}
	var p unsafe.Pointer
	if code := h.withContext(
		func() int32 { return h.driver.hostAlloc(&p, uintptr(n), portable) },
	); code != 0 {
		h.forgetAllocation()
		return nil, robocache.At(
			h.driver.driverError("allocate", code),
			robocache.Where{"bytes": n},
		)
	}
	m := unsafe.Slice((*byte)(p), n)
	clear(m)
	return m, nil
}

// Free frees memory from Alloc. It ignores errors, because at the end of a process the driver may
// be unloaded.
func (h *Host) Free(m []byte) {
	if len(m) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(m))
	_ = h.withContext(func() int32 { return h.driver.hostFree(p) })
	h.forgetAllocation()
}

// Close ends allocations. Memory in use stays valid until its Free.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.releaseIfUnused()
	}
}

func (h *Host) forgetAllocation() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.allocations--
	h.releaseIfUnused()
}

// releaseIfUnused releases the context after Close, when no memory is in use. Releasing the context
// would free the memory. Caller must hold h.mu.
func (h *Host) releaseIfUnused() {
	if h.closed && h.allocations == 0 {
		_ = h.driver.primaryRelease(h.device)
	}
}

// driverError returns the error for a result of the driver.
func (d *memoryDriver) driverError(op string, code int32) error {
	e := robocache.Unsupported(
		"page-locked memory",
		nil,
		"the CUDA driver could not %s: %s",
		op,
		d.name(code),
	).
		WithHint("%s does without", robocache.Option("pin_memory", false))
	switch {
	case Lost(code):
		e.Class, e.Hint = robocache.ErrTemporary, LostHint
	case code == outOfMemory:
		e.Class = robocache.ErrResourceLimit
		e.Hint = "a smaller " + robocache.Option("batch_size") + " or " +
			robocache.Option("prefetch") + ", or " + robocache.Option("pin_memory", false) +
			"; page-locked memory is limited by the machine's"
	case code == noDevice:
		e.Msg = "the CUDA driver finds no device"
	}
	return e
}
