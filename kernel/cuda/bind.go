package cuda

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// driver is the functions of the driver that are used here, by address. All are looked for at once:
// one that is missing is told before anything is begun.
type driver struct {
	lib *cudahost.Driver
	f   functions
	// launchEx is nil in drivers before CUDA 11.8: launches go without attributes then.
	launchEx uintptr
}

type functions struct {
	DeviceGetCount, DeviceGet, DeviceGetName, DeviceGetAttribute                               uintptr
	DevicePrimaryCtxRetain, CtxGetCurrent, CtxPushCurrent_v2, CtxPopCurrent_v2, CtxSynchronize uintptr
	ModuleLoadDataEx, ModuleGetFunction, FuncGetAttribute, FuncSetAttribute, LaunchKernel      uintptr
	MemAlloc_v2, MemFree_v2, MemGetInfo_v2, PointerGetAttribute                                uintptr
	MemcpyHtoDAsync_v2, MemcpyDtoHAsync_v2, MemcpyDtoDAsync_v2, MemsetD8Async                  uintptr
	StreamCreate, StreamCreateWithPriority, StreamDestroy_v2                                   uintptr
	StreamSynchronize, StreamIsCapturing                                                       uintptr
	StreamBeginCapture_v2, StreamEndCapture, ThreadExchangeStreamCaptureMode                   uintptr
	GraphInstantiateWithFlags, GraphLaunch, GraphExecDestroy, GraphDestroy                     uintptr
	EventCreate, EventRecord, EventQuery, EventSynchronize, EventElapsedTime, EventDestroy_v2  uintptr
}

var load = sync.OnceValues(func() (*driver, error) {
	lib, err := cudahost.Load()
	if err != nil {
		return nil, err
	}
	d := &driver{lib: lib}
	table := reflect.ValueOf(&d.f).Elem()
	for i := range table.NumField() {
		p, err := lib.Symbol("cu" + table.Type().Field(i).Name)
		if err != nil {
			return nil, err
		}
		*(*uintptr)(table.Field(i).Addr().UnsafePointer()) = p
	}
	if p, err := lib.Symbol("cuLaunchKernelEx"); err == nil {
		d.launchEx = p
	}
	return d, nil
})

func (d *driver) count() (int, error) {
	n := new(int32)
	if code := cudahost.Call(d.f.DeviceGetCount, ptr(n)); code != 0 {
		return 0, d.fail("count the devices", code)
	}
	if *n == 0 {
		return 0, robocache.Unsupported("CUDA", nil, "the CUDA driver finds no device")
	}
	return int(*n), nil
}

// ptr is the address of p for the driver, and makes p lie on the heap. What new gave would else lie
// on the goroutine's stack, which a call on its way to the driver may grow, and so move: the driver
// then writes where nobody looks any more.
func ptr[T any](p *T) uintptr {
	if sink != nil {
		sink = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}

// sink stays nil, which the compiler does not know.
var sink unsafe.Pointer

// Results that mean something to the caller.
const (
	invalidValue     = 1
	outOfMemory      = 2
	invalidImage     = 200
	invalidContext   = 201
	noBinary         = 209
	invalidPTX       = 218
	noCompiler       = 221
	ptxVersion       = 222
	invalidHandle    = 400
	notFound         = 500
	notReady         = 600
	tooManyResources = 701
	captureForbids   = 900
)

// fail makes an error of a result of the driver. What: "allocate 5 bytes".
func (d *driver) fail(what string, code int32) error {
	e := robocache.Unsupported(
		"CUDA",
		nil,
		"the CUDA driver could not %s: %s",
		what,
		d.lib.Name(code),
	)
	switch code {
	case invalidValue, invalidContext, invalidHandle, captureForbids:
		e.Class = robocache.ErrMisuse
	case outOfMemory:
		e.Class, e.Hint = robocache.ErrResourceLimit, "the device's memory is in use: smaller batches, or torch.cuda.empty_cache()"
	case invalidImage, noBinary, invalidPTX, noCompiler, ptxVersion:
		e.Msg += " (driver too old: it is " + d.lib.Version() + ")"
		e.Hint = "a newer NVIDIA driver"
	}
	if cudahost.Lost(code) { // no fault of the data: nothing is skipped for it
		e.Class, e.Hint = robocache.ErrTemporary, cudahost.LostHint
	}
	return e
}
