package cuda

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// driver holds the addresses of the driver functions that this package uses. All are looked up at
// once, so that a missing one is reported before any work starts.
type driver struct {
	lib *cudahost.Driver
	f   functions
	// launchEx is 0 in drivers before CUDA 11.8. Launches then have no attributes.
	launchEx uintptr
}

// functions holds the address of each driver function; a field's name is that of the function
// without "cu".
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

// loadDriver loads the driver once and looks up its functions.
var loadDriver = sync.OnceValues(func() (*driver, error) {
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

// countDevices returns the number of devices. No device is an error.
func (d *driver) countDevices() (int, error) {
	n := new(int32)
	if code := cudahost.Call(d.f.DeviceGetCount, ptr(n)); code != 0 {
		return 0, d.driverError("count the devices", code)
	}
	if *n == 0 {
		return 0, robocache.Unsupported("CUDA", nil, "the CUDA driver finds no device")
	}
	return int(*n), nil
}

// ptr returns the address of p for the driver and forces p onto the heap. Without this, p could be
// on the goroutine's stack. The stack can move before the driver is called, and the driver would
// then write to the old address.
func ptr[T any](p *T) uintptr {
	if sink != nil {
		sink = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}

// sink is always nil, but the compiler cannot know this.
var sink unsafe.Pointer

// Results that are mapped to error classes or checked.
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

// driverError returns the error for a result of the driver. what completes "could not", for example
// "allocate 5 bytes".
func (d *driver) driverError(what string, code int32) error {
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
		e.Class = robocache.ErrResourceLimit
		e.Hint = "the device's memory is in use: smaller batches, or torch.cuda.empty_cache()"
	case invalidImage, noBinary, invalidPTX, noCompiler, ptxVersion:
		e.Msg += " (driver too old: it is " + d.lib.Version() + ")"
		e.Hint = "a newer NVIDIA driver"
	}
	if cudahost.Lost(code) { // the data is not the cause, so no episode is skipped
		e.Class, e.Hint = robocache.ErrTemporary, cudahost.LostHint
	}
	return e
}
