package cuda

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// gpu is a device of the driver. It implements launcher.
type gpu struct {
	*driver
	number  int
	handle  int32
	context uintptr
	name    string
	chip    chip

	mu      sync.Mutex // guards modules
	modules map[string]*module
}

// Attributes of devices (CUdevice_attribute).
const (
	attrProcessors     = 16
	attrL2             = 38
	attrThreads        = 39
	attrMajor          = 75
	attrMinor          = 76
	attrSharedPerBlock = 97 // maximum that a block may opt into
)

// openGPU opens the device with the driver's number and retains its primary context.
func openGPU(number int) (*gpu, error) {
	d, err := loadDriver()
	if err != nil {
		return nil, err
	}
	n, err := d.countDevices()
	if err != nil {
		return nil, err
	}
	if number < 0 || number >= n {
		return nil, robocache.Misuse("CUDA", nil, "device %d", number).
			Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(number))
	}
	g := &gpu{driver: d, number: number, modules: map[string]*module{}}
	handle := new(int32)
	name := new([256]byte)
	context := new(uintptr)
	if code := cudahost.Call(d.f.DeviceGet, ptr(handle), uintptr(number)); code != 0 {
		return nil, g.driverError("find the device", code)
	}
	g.handle = *handle
	code := cudahost.Call(d.f.DeviceGetName, ptr(name), uintptr(len(name)-1), uintptr(g.handle))
	if code == 0 {
		g.name, _, _ = strings.Cut(string(name[:]), "\x00")
	}
	for attr, to := range map[int]*int{
		attrProcessors:     &g.chip.processors,
		attrL2:             &g.chip.l2,
		attrThreads:        &g.chip.threads,
		attrMajor:          &g.chip.major,
		attrMinor:          &g.chip.minor,
		attrSharedPerBlock: &g.chip.shared,
	} {
		v := new(int32)
		code := cudahost.Call(d.f.DeviceGetAttribute, ptr(v), uintptr(attr), uintptr(g.handle))
		if code != 0 {
			return nil, g.driverError(fmt.Sprintf("tell attribute %d", attr), code)
		}
		*to = int(*v)
	}
	if g.chip.major < 8 {
		return nil, robocache.Unsupported("CUDA", robocache.Where{"device": number},
			"no image for the chip").
			Expected("sm_80 or later", g.name+", "+g.chip.String())
	}
	code = cudahost.Call(d.f.DevicePrimaryCtxRetain, ptr(context), uintptr(g.handle))
	if code != 0 {
		return nil, g.driverError("make a context", code)
	}
	g.context = *context
	return g, nil
}

// driverError returns the error for a result of the driver, with the number of the device. what
// completes "could not".
func (g *gpu) driverError(what string, code int32) error {
	return robocache.At(g.driver.driverError(what, code), robocache.Where{"device": g.number})
}

// enter makes the device's context current on this thread and locks the goroutine to the thread.
// pushed reports whether the context was not current before. The caller must call leave, after an
// error too. On a framework's thread the primary context is already current.
func (g *gpu) enter() (pushed bool, code int32) {
	runtime.LockOSThread()
	s := scratch.Get().(*scratchWords)
	defer scratch.Put(s)
	if code = s.callDriver(g.f.CtxGetCurrent, ptr(&s.word)); code != 0 || s.word == g.context {
		return false, code
	}
	code = s.callDriver(g.f.CtxPushCurrent_v2, g.context)
	return code == 0, code
}

// leave undoes enter. pushed is the result of enter.
func (g *gpu) leave(pushed bool) {
	if pushed {
		s := scratch.Get().(*scratchWords)
		s.callDriver(g.f.CtxPopCurrent_v2, ptr(&s.word))
		scratch.Put(s)
	}
	runtime.UnlockOSThread()
}

// withContext runs f with the context current.
func (g *gpu) withContext(f func() int32) int32 {
	pushed, code := g.enter()
	if code == 0 {
		code = f()
	}
	g.leave(pushed)
	return code
}

// callDriver calls a function of the driver with the context current. what completes "could not",
// for example "allocate 5 bytes".
//
//go:uintptrescapes
func (g *gpu) callDriver(what string, f uintptr, args ...uintptr) error {
	if code := g.withContext(func() int32 { return cudahost.Call(f, args...) }); code != 0 {
		return g.driverError(what, code)
	}
	return nil
}

// scratchWords is pooled memory that the driver reads and writes, so that a launch does not
// allocate.
type scratchWords struct {
	args   [16]uintptr
	word   uintptr
	launch launchConfig
	attr   launchAttribute
	param  unsafe.Pointer
}

var scratch = sync.Pool{New: func() any { return new(scratchWords) }}

// callDriver is cudahost.Call without an allocation for the arguments.
func (s *scratchWords) callDriver(f uintptr, args ...uintptr) int32 {
	return cudahost.Call(f, s.args[:copy(s.args[:], args)]...)
}

// launchConfig mirrors CUlaunchConfig.
type launchConfig struct {
	gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32
	stream                                              uintptr
	attrs                                               unsafe.Pointer
	count                                               uint32
}

// launchAttribute mirrors CUlaunchAttribute.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [64]byte
}

const attrEarly = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

// launchCall launches a kernel on a stream.
func (g *gpu) launchCall(k *call, stream uintptr) error {
	f, _ := k.device.(*function)
	if f == nil {
		if err := g.prepareKernel(k); err != nil {
			return err
		}
		f = k.device.(*function)
	}
	hasThreads := k.block > 0 && k.block <= uint32(f.maxThreads)
	if !hasThreads || int(k.shared) > f.maxShared || k.grid > math.MaxInt32 {
		return g.limitError(k, f)
	}
	s := scratch.Get().(*scratchWords)
	s.param = unsafe.Pointer(unsafe.SliceData(k.params))
	code := g.launchKernel(s, k, f, stream)
	runtime.KeepAlive(k.params)
	s.param, s.launch.attrs = nil, nil
	scratch.Put(s)
	if code != 0 {
		return g.driverError("launch "+k.String(), code)
	}
	return nil
}

// launchKernel calls the driver's launch function and returns its result. It uses cuLaunchKernelEx
// if the driver has it, because only this function supports an early start.
func (g *gpu) launchKernel(s *scratchWords, k *call, f *function, stream uintptr) int32 {
	if g.launchEx != 0 {
		s.launch = launchConfig{
			gridX:  k.grid,
			gridY:  1,
			gridZ:  1,
			blockX: k.block,
			blockY: 1,
			blockZ: 1,
			shared: k.shared,
			stream: stream,
		}
		if k.early && f.early {
			s.attr.id, s.attr.value[0] = attrEarly, 1
			s.launch.attrs = unsafe.Pointer(&s.attr)
			s.launch.count = 1
		}
	}
	pushed, code := g.enter()
	if code == 0 && g.launchEx != 0 {
		code = s.callDriver(g.launchEx, ptr(&s.launch), f.handle, ptr(&s.param), 0)
	} else if code == 0 {
		code = s.callDriver(
			g.f.LaunchKernel,
			f.handle,
			uintptr(k.grid),
			1,
			1,
			uintptr(k.block),
			1,
			1,
			uintptr(k.shared),
			stream,
			ptr(&s.param),
			0,
		)
	}
	g.leave(pushed)
	return code
}

// limitError returns the error of a launch that exceeds the kernel's limits. The driver's own error
// would be "invalid argument".
func (g *gpu) limitError(k *call, f *function) error {
	return robocache.Unsupported("CUDA", robocache.Where{"device": g.number}, "launch %s",
		k.String()).
		Expected(
			fmt.Sprintf(
				"1 to %d threads, at most %d bytes of shared memory, a grid below 2^31",
				f.maxThreads,
				f.maxShared,
			),
			fmt.Sprintf("%d, %d, %d", k.block, k.shared, k.grid),
		)
}

// chipInfo implements launcher.
func (g *gpu) chipInfo() chip { return g.chip }

// waitStream implements launcher.
func (g *gpu) waitStream(stream uintptr) error {
	return g.callDriver("finish a stream", g.f.StreamSynchronize, stream)
}

// isCapturing implements launcher. It returns false if the driver cannot answer.
func (g *gpu) isCapturing(stream uintptr) bool {
	pushed, code := g.enter()
	s := scratch.Get().(*scratchWords)
	s.word = 0
	if code == 0 {
		code = s.callDriver(g.f.StreamIsCapturing, stream, ptr(&s.word))
	}
	is := code == 0 && uint32(s.word) != 0
	scratch.Put(s)
	g.leave(pushed)
	return is
}
