package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda/images"
)

// Alloc returns n bytes of device memory with undefined contents, at least 256-byte aligned. If n
// exceeds the free memory, it returns a ResourceLimit error with the free size.
func (d *Device) Alloc(n int) (uintptr, error) {
	if n < 0 {
		return 0, robocache.Misuse("CUDA", nil, "size").Expected("0 or more", fmt.Sprint(n))
	}
	if n == 0 {
		return 0, nil
	}
	return d.launcher.allocMemory(n)
}

// Free frees memory of Alloc. It waits until nothing on the device uses the memory.
func (d *Device) Free(addr uintptr) {
	if addr != 0 {
		d.launcher.freeMemory(addr)
	}
}

// CopyIn copies to the device in the order of the legacy stream, and waits.
func (d *Device) CopyIn(to uintptr, b []byte) error {
	return d.waitAfter(d.CopyInAsync(to, b, 0))
}

// waitAfter waits for the legacy stream, unless err is not nil.
func (d *Device) waitAfter(err error) error {
	if err != nil {
		return err
	}
	return d.launcher.waitStream(0)
}

// CopyOut copies from the device in the order of the legacy stream, and waits.
func (d *Device) CopyOut(b []byte, from uintptr) error {
	return d.waitAfter(d.CopyOutAsync(b, from, 0))
}

// Clear fills device memory with zeros in the order of the legacy stream, and waits.
func (d *Device) Clear(addr uintptr, n int) error {
	return d.waitAfter(d.ClearAsync(addr, n, 0))
}

// CopyInAsync copies from the host on a stream. The copy overlaps with other work if b is
// page-locked (cudahost.Host). b must not change until the copy is done.
func (d *Device) CopyInAsync(to uintptr, b []byte, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.launcher.copyIn(to, b, stream)
}

// CopyOutAsync copies to the host on a stream; see CopyInAsync.
func (d *Device) CopyOutAsync(b []byte, from uintptr, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.launcher.copyOut(b, from, stream)
}

// ClearAsync fills device memory with zeros, on a stream.
func (d *Device) ClearAsync(addr uintptr, n int, stream uintptr) error {
	if n == 0 {
		return nil
	}
	return d.launcher.clearMemory(addr, n, stream)
}

// Wait blocks until all work on the stream is done, and returns its error.
func (d *Device) Wait(stream uintptr) error { return d.launcher.waitStream(stream) }

// Memory returns the free and the total memory of the device, in bytes.
func (d *Device) Memory() (free, total int64, err error) {
	if d.gpu == nil {
		return 1 << 40, 1 << 40, nil
	}
	return d.gpu.memoryInfo()
}

// Name returns the driver's name of the device and its compute capability.
func (d *Device) Name() string {
	if d.gpu == nil {
		return "simulator"
	}
	return d.gpu.name + " (" + d.gpu.chip.String() + ")"
}

// Image returns the name of the compiled kernels that fit the device best: for example sm_90, or
// compute_80 if the driver compiles PTX. It returns "" if there are none.
func (d *Device) Image() string {
	c := d.launcher.chipInfo()
	list, err := images.For("probe", c.major, c.minor)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Name()
}

// Driver returns the CUDA version of the driver: 13000 is 13.0.
func (d *Device) Driver() int {
	if d.gpu == nil {
		return 0
	}
	return d.gpu.lib.CUDA()
}

// memoryInfo returns the free and the total memory of the device, in bytes.
func (g *gpu) memoryInfo() (free, total int64, err error) {
	words := new([2]uintptr)
	err = g.callDriver("read the memory size", g.f.MemGetInfo_v2, ptr(&words[0]), ptr(&words[1]))
	return int64(words[0]), int64(words[1]), err
}

// allocMemory implements launcher. It rounds up to whole words, because atomics on the last byte of
// a bit field need a whole word. The driver allocates multiples of 512 anyway, but
// compute-sanitizer checks the requested size.
func (g *gpu) allocMemory(n int) (uintptr, error) {
	p := new(uintptr)
	code := g.relaxed(
		func() int32 { return cudahost.Call(g.f.MemAlloc_v2, ptr(p), uintptr(n+3)&^3) },
	)
	if code == 0 {
		return *p, nil
	}
	err := g.driverError("allocate", code)
	if code == outOfMemory {
		free, total, _ := g.memoryInfo()
		return 0, robocache.ResourceLimit("CUDA", robocache.Where{"device": g.number},
			"memory budget").
			Expected(fmt.Sprintf("at most %d bytes free of %d", free, total), fmt.Sprint(n)).
			WithHint("smaller batches, or torch.cuda.empty_cache()")
	}
	return 0, err
}

// Attributes of addresses (CUpointer_attribute).
const (
	attrMemory  = 2 // 1 = page-locked host memory, which every device can access
	attrOrdinal = 9
)

// checkOwner checks with the driver that an address is memory of this device. A kernel that
// accesses other memory would break the context.
func (g *gpu) checkOwner(addr uintptr) error {
	s := scratch.Get().(*scratchWords)
	defer scratch.Put(s)
	ask := func(attr uintptr) (int, int32) {
		s.word = 0
		code := g.withContext(
			func() int32 { return s.callDriver(g.f.PointerGetAttribute, ptr(&s.word), attr, addr) },
		)
		return int(int32(s.word)), code
	}
	if kind, code := ask(attrMemory); code == 0 && kind == 1 {
		return nil
	}
	e := robocache.Misuse("CUDA", nil, "must be on the same device").
		Expected(fmt.Sprintf("memory of device %d", g.number), "memory that no device knows")
	switch number, code := ask(attrOrdinal); {
	case code == invalidValue:
		return e
	case code != 0:
		return g.driverError("tell whose memory an address is", code)
	case number != g.number:
		e.Got = fmt.Sprintf("memory of device %d", number)
		return e
	}
	return nil
}

// freeMemory implements launcher.
func (g *gpu) freeMemory(addr uintptr) {
	_ = g.relaxed(func() int32 { return cudahost.Call(g.f.MemFree_v2, addr) })
}

// relaxed runs f with relaxed capture mode. If a graph is being captured on this thread, f may
// otherwise be forbidden, although it is not part of the graph.
func (g *gpu) relaxed(f func() int32) int32 {
	return g.withContext(func() int32 {
		mode := new(int32)
		*mode = captureRelaxed
		if code := cudahost.Call(g.f.ThreadExchangeStreamCaptureMode, ptr(mode)); code != 0 {
			return code
		}
		code := f()
		cudahost.Call(g.f.ThreadExchangeStreamCaptureMode, ptr(mode))
		return code
	})
}

// uploadBytes implements launcher. It copies on its own stream, because the legacy stream must not
// be used while another one is captured.
func (g *gpu) uploadBytes(b []byte) (uintptr, error) {
	addr, err := g.allocMemory(len(b))
	if err != nil {
		return 0, err
	}
	s := new(uintptr)
	code := g.relaxed(func() int32 {
		if code := cudahost.Call(g.f.StreamCreate, ptr(s), 1); code != 0 {
			return code
		}
		code := cudahost.Call(
			g.f.MemcpyHtoDAsync_v2,
			addr,
			uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)),
			*s,
		)
		waited := cudahost.Call(g.f.StreamSynchronize, *s)
		if code == 0 {
			code = waited
		}
		cudahost.Call(g.f.StreamDestroy_v2, *s)
		return code
	})
	runtime.KeepAlive(b)
	if code != 0 {
		g.freeMemory(addr)
		return 0, g.driverError(fmt.Sprintf("copy a table of %d bytes", len(b)), code)
	}
	return addr, nil
}

// clearMemory implements launcher.
func (g *gpu) clearMemory(addr uintptr, n int, stream uintptr) error {
	return g.callDriver("clear memory", g.f.MemsetD8Async, addr, 0, uintptr(n), stream)
}

// copyIn implements launcher.
func (g *gpu) copyIn(to uintptr, b []byte, stream uintptr) error {
	return g.callDriver(
		"copy to the device",
		g.f.MemcpyHtoDAsync_v2,
		to,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)),
		stream,
	)
}

// copyOut implements launcher.
func (g *gpu) copyOut(b []byte, from uintptr, stream uintptr) error {
	return g.callDriver(
		"copy from the device",
		g.f.MemcpyDtoHAsync_v2,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		from,
		uintptr(len(b)),
		stream,
	)
}
