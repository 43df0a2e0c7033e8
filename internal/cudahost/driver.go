package cudahost

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// Driver is the open library of the CUDA driver. All users share it. It is never closed, because a
// framework in the process may use it too.
type Driver struct {
	library uintptr
	version int32 // 12080 = CUDA 12.8; 0 = unknown
	nameOf  uintptr
}

var libraries = []string{"libcuda.so.1", "libcuda.so"}

// Load opens the driver's library and initializes it, once.
var Load = sync.OnceValues(func() (*Driver, error) { return loadFrom(libraries) })

func loadFrom(names []string) (*Driver, error) {
	d := &Driver{}
	var err error
	for _, name := range names {
		if d.library, err = Dlopen(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, robocache.Unsupported("CUDA", nil, "there is no CUDA driver: %s", err.Error())
	}
	// The version is read before cuInit, so that an error about a missing function can name it.
	if p, err := Dlsym(d.library, "cuDriverGetVersion"); err == nil {
		v := new(int32)
		if Call(p, uintptr(unsafe.Pointer(v))) == 0 {
			d.version = *v
		}
	}
	start, err := d.Symbol("cuInit")
	if err != nil {
		return nil, err
	}
	if d.nameOf, err = d.Symbol("cuGetErrorName"); err != nil {
		return nil, err
	}
	if code := Call(start, 0); code != 0 {
		return nil, d.startError(code)
	}
	return d, nil
}

func (d *Driver) startError(code int32) error {
	e := robocache.Unsupported("CUDA", nil, "the CUDA driver could not start: %s", d.Name(code))
	if code == noDevice {
		e.Msg = "the CUDA driver finds no device"
	}
	return e
}

// Symbol returns the address of a driver function. If the function is missing, the driver is older
// than required; the error names the function and the version.
func (d *Driver) Symbol(name string) (uintptr, error) {
	p, err := Dlsym(d.library, name)
	if err != nil {
		return 0, robocache.Unsupported("CUDA", nil, "driver too old").
			Expected("a driver with "+name, d.Version()).WithCause(err).
			WithHint("a newer NVIDIA driver")
	}
	return p, nil
}

// Version describes the CUDA version of the driver, for errors.
func (d *Driver) Version() string {
	if d.version == 0 {
		return "one that does not say its version"
	}
	return "one for CUDA " + VersionText(d.CUDA())
}

// VersionText formats a CUDA version in the usual form: 12080 is 12.8.
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// CUDA returns the CUDA version of the driver: 12080 is 12.8, and 0 is unknown.
func (d *Driver) CUDA() int { return int(d.version) }

// Lost reports whether a result means that the device is lost to this process. All later calls then
// fail too.
func Lost(code int32) bool {
	switch code {
	case 46, // CUDA_ERROR_DEVICE_UNAVAILABLE
		214, 220, 226, // memory (ECC), NVLink, contained error
		// illegal address, launch timeout, destroyed context, assertion
		700, 702, 709, 710,
		// stack, instruction, misaligned address, address space, program counter, launch failure
		714, 715, 716, 717, 718, 719:
		return true
	}
	return false
}

// LostHint is the hint of an error for which Lost is true.
const LostHint = "Restart the process; a Loader continues from its state_dict. " +
	"The device is lost to this process: an earlier kernel of any library broke its context, " +
	"or the device failed. Find such a kernel with compute-sanitizer."

// Name returns the driver's name for a result.
func (d *Driver) Name(code int32) string {
	p := new(unsafe.Pointer)
	if d.nameOf == 0 || Call(d.nameOf, uintptr(code), uintptr(unsafe.Pointer(p))) != 0 ||
		*p == nil {
		return fmt.Sprintf("CUDA error %d", code)
	}
	return cString(*p)
}

// loadDriver binds the functions for page-locked memory.
func loadDriver() (*memoryDriver, error) {
	lib, err := Load()
	if err != nil {
		return nil, pageLockedError(err)
	}
	d := &memoryDriver{name: lib.Name}
	for _, f := range []struct {
		name string
		to   any
	}{
		{"cuDeviceGetCount", &d.deviceCount},
		{"cuDeviceGet", &d.deviceGet},
		{"cuDevicePrimaryCtxGetState", &d.primaryState},
		{"cuDevicePrimaryCtxRetain", &d.primaryRetain},
		{"cuDevicePrimaryCtxRelease_v2", &d.primaryRelease},
		{"cuCtxPushCurrent_v2", &d.push},
		{"cuCtxPopCurrent_v2", &d.pop},
		{"cuMemHostAlloc", &d.hostAlloc},
		{"cuMemFreeHost", &d.hostFree},
	} {
		p, err := lib.Symbol(f.name)
		if err != nil {
			return nil, pageLockedError(err)
		}
		Bind(f.to, p)
	}
	return d, nil
}

// pageLockedError changes an error of the driver into an error about page-locked memory.
func pageLockedError(err error) error {
	var e *robocache.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Op, c.Hint = "page-locked memory", robocache.Option("pin_memory", false)+" does without"
	return &c
}

// cString returns the text of a C string, at most 256 bytes.
func cString(p unsafe.Pointer) string {
	n := 0
	for n < 256 && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
