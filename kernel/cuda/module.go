package cuda

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda/images"
)

// module is the kernels of one source file, loaded into a device.
type module struct {
	handle    uintptr
	early     bool // machine code for sm_90 or later, whose kernels wait with griddepcontrol
	functions map[string]*function
	err       error
}

// function is a kernel that is ready to be launched.
type function struct {
	handle     uintptr
	maxThreads int
	maxShared  int  // dynamic, in bytes
	early      bool // supports an early start; see module.early
}

// Attributes of functions (CUfunction_attribute).
const (
	attrFuncThreads   = 0
	attrFuncShared    = 1 // static, bytes
	attrFuncMaxShared = 8 // dynamic, bytes
)

// imageOverride replaces the images while kernels are developed on a machine with NVRTC. Tests set
// it (devsrc_test.go). It returns nil for a source that it does not replace.
var imageOverride func(source string, c chip) ([]byte, error)

// prepareKernel implements launcher. It stores the *function of the kernel in k.device.
func (g *gpu) prepareKernel(k *call) error {
	if k.device != nil {
		return nil
	}
	f, err := g.kernelFunction(k.kernel)
	if err != nil {
		return err
	}
	k.device = f
	return nil
}

// kernelFunction returns the kernel with the given name. It loads the module of its source file
// once; an error of loading is returned by later calls too.
func (g *gpu) kernelFunction(name string) (*function, error) {
	source := images.Source(name)
	if source == "" {
		return nil, robocache.Unsupported("CUDA", nil, "no image has kernel %s", name).
			WithHint("scripts/cuda-images.sh builds them")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.modules[source]
	if m == nil {
		m = g.loadModule(source)
		g.modules[source] = m
	}
	if m.err != nil {
		return nil, m.err
	}
	if f := m.functions[name]; f != nil {
		return f, nil
	}
	f, err := g.findFunction(m, name)
	if err == nil {
		m.functions[name] = f
	}
	return f, err
}

// loadModule tries the machine code that fits the chip best, then PTX, which the driver compiles.
func (g *gpu) loadModule(source string) *module {
	m := &module{functions: map[string]*function{}}
	list, err := images.For(source, g.chip.major, g.chip.minor)
	if imageOverride != nil {
		b, e := imageOverride(source, g.chip)
		if b != nil || e != nil {
			list = []images.Image{{Arch: g.chip.major*10 + g.chip.minor, Code: b}}
			err = e
		}
	}
	if err != nil {
		return &module{err: robocache.At(err, robocache.Where{"device": g.number})}
	}
	m.err = robocache.Unsupported("CUDA", robocache.Where{
		"device": g.number,
		"source": source,
	}, "no image for the chip").
		Expected("one of the images", g.name+", "+g.chip.String())
	for _, image := range list {
		handle := new(uintptr)
		code := g.relaxed(func() int32 {
			return cudahost.Call(
				g.f.ModuleLoadDataEx,
				ptr(handle),
				uintptr(unsafe.Pointer(unsafe.SliceData(image.Code))),
				0,
				0,
				0,
			)
		})
		runtime.KeepAlive(image.Code)
		if code == 0 {
			m.handle = *handle
			m.err = nil
			m.early = !image.PTX && image.Arch >= 90
			return m
		}
		m.err = robocache.At(
			g.driverError("load the image "+image.Name(), code),
			robocache.Where{"source": source},
		)
		if errors.Is(m.err, robocache.ErrResourceLimit) {
			break
		}
	}
	return m
}

// findFunction looks up a kernel in a module, reads its limits and allows it the maximal shared
// memory.
func (g *gpu) findFunction(m *module, name string) (*function, error) {
	b := append([]byte(name), 0)
	handle, v := new(uintptr), new(int32)
	f := &function{early: m.early}
	what := "find kernel " + name
	code := g.withContext(func() int32 {
		code := cudahost.Call(
			g.f.ModuleGetFunction,
			ptr(handle),
			m.handle,
			uintptr(unsafe.Pointer(&b[0])),
		)
		if code != 0 {
			return code
		}
		f.handle = *handle
		code = cudahost.Call(g.f.FuncGetAttribute, ptr(v), attrFuncThreads, f.handle)
		if code != 0 {
			return code
		}
		f.maxThreads = int(*v)
		code = cudahost.Call(g.f.FuncGetAttribute, ptr(v), attrFuncShared, f.handle)
		if code != 0 {
			return code
		}
		f.maxShared = g.chip.shared - int(*v)
		what = "allow shared memory to kernel " + name
		return cudahost.Call(
			g.f.FuncSetAttribute,
			f.handle,
			attrFuncMaxShared,
			uintptr(f.maxShared),
		)
	})
	runtime.KeepAlive(b)
	if code != 0 {
		return nil, g.driverError(what, code)
	}
	return f, nil
}
