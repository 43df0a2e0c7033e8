package cudahost

import (
	"fmt"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/goatnote-inc/robocache"
)

var libraries = []string{"libcuda.so.1", "libcuda.so"}

// load opens the driver's library, once: it is never closed, because a framework in the process may use it too.
var load = sync.OnceValues(func() (*driver, error) { return loadFrom(libraries) })

func loadFrom(names []string) (*driver, error) {
	var lib uintptr
	var err error
	for _, name := range names {
		if lib, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			break
		}
	}
	if err != nil {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "page-locked memory", Msg: "there is no CUDA driver: " + err.Error(), Hint: "pin_memory=False does without"}
	}
	d := &driver{}
	for _, f := range []struct {
		name string
		to   any
	}{
		{"cuInit", &d.start}, {"cuDeviceGetCount", &d.deviceCount}, {"cuDeviceGet", &d.deviceGet}, {"cuDevicePrimaryCtxGetState", &d.primaryState},
		{"cuDevicePrimaryCtxRetain", &d.primaryRetain}, {"cuDevicePrimaryCtxRelease_v2", &d.primaryRelease}, {"cuCtxPushCurrent_v2", &d.push},
		{"cuCtxPopCurrent_v2", &d.pop}, {"cuMemHostAlloc", &d.hostAlloc}, {"cuMemFreeHost", &d.hostFree}, {"cuGetErrorName", &d.errorName},
	} {
		p, err := purego.Dlsym(lib, f.name)
		if err != nil {
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "page-locked memory", Msg: fmt.Sprintf("the CUDA driver lacks %s: %v", f.name, err), Hint: "a newer driver, or pin_memory=False"}
		}
		purego.RegisterFunc(f.to, p)
	}
	return d, nil
}
