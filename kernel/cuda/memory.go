package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda/images"
)

// Alloc gives n bytes of the device's memory, at least 256-byte aligned, with whatever was there
// before. More than is free is a ResourceLimit that says how much there is, before the driver is
// asked.
func (d *Device) Alloc(n int) (uintptr, error) {
	if n < 0 {
		return 0, robocache.Misuse("CUDA", nil, "size").Expected("0 or more", fmt.Sprint(n))
	}
	if n == 0 {
		return 0, nil
	}
	return d.on.alloc(n)
}

// Free gives memory of Alloc back, once nothing on the device uses it: it waits for that.
func (d *Device) Free(addr uintptr) {
	if addr != 0 {
		d.on.free(addr)
	}
}

// CopyIn copies to the device, after what the legacy stream has, and waits.
func (d *Device) CopyIn(to uintptr, b []byte) error {
	return d.waited(d.CopyInAsync(to, b, 0))
}

// waited waits for the legacy stream, which something was put on.
func (d *Device) waited(err error) error {
	if err != nil {
		return err
	}
	return d.on.wait(0)
}

// CopyOut copies from the device, after what the legacy stream has, and waits.
func (d *Device) CopyOut(b []byte, from uintptr) error {
	return d.waited(d.CopyOutAsync(b, from, 0))
}

// Clear sets device memory to zero, after what the legacy stream has, and waits.
func (d *Device) Clear(addr uintptr, n int) error {
	return d.waited(d.ClearAsync(addr, n, 0))
}

// CopyInAsync copies from the host on a stream. It overlaps with other work if b is page-locked
// (cudahost.Host), and b must stay as it is until the stream has come past it.
func (d *Device) CopyInAsync(to uintptr, b []byte, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.on.copyIn(to, b, stream)
}

// CopyOutAsync copies to the host on a stream; see CopyInAsync.
func (d *Device) CopyOutAsync(b []byte, from uintptr, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.on.copyOut(b, from, stream)
}

// ClearAsync sets device memory to zero, on a stream.
func (d *Device) ClearAsync(addr uintptr, n int, stream uintptr) error {
	if n == 0 {
		return nil
	}
	return d.on.clear(addr, n, stream)
}

// Wait returns when all that was put on the stream is done, with its error.
func (d *Device) Wait(stream uintptr) error { return d.on.wait(stream) }

// Memory is how many bytes of the device are free, and how many it has.
func (d *Device) Memory() (free, total int64, err error) {
	if d.gpu == nil {
		return 1 << 40, 1 << 40, nil
	}
	return d.gpu.memory()
}

// Name is what the driver calls the device, and its compute capability.
func (d *Device) Name() string {
	if d.gpu == nil {
		return "simulator"
	}
	return d.gpu.name + " (" + d.gpu.chip.String() + ")"
}

// Image is which of the compiled kernels fit the device best: sm_90, or compute_80 where the driver
// compiles PTX; "" without any.
func (d *Device) Image() string {
	c := d.on.sm()
	list, err := images.For("probe", c.major, c.minor)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Name()
}

// Driver is the CUDA version of the driver: 13000 is 13.0.
func (d *Device) Driver() int {
	if d.gpu == nil {
		return 0
	}
	return d.gpu.lib.CUDA()
}

func (g *gpu) memory() (free, total int64, err error) {
	words := new([2]uintptr)
	err = g.do("tell its memory", g.f.MemGetInfo_v2, ptr(&words[0]), ptr(&words[1]))
	return int64(words[0]), int64(words[1]), err
}

// alloc takes whole words: atomics have no smaller ones, and that of the last byte of a bit field
// must not lie outside (the driver gives multiples of 512 anyway, but compute-sanitizer goes by
// what was asked).
func (g *gpu) alloc(n int) (uintptr, error) {
	p := new(uintptr)
	code := g.relaxed(
		func() int32 { return cudahost.Call(g.f.MemAlloc_v2, ptr(p), uintptr(n+3)&^3) },
	)
	if code == 0 {
		return *p, nil
	}
	err := g.fail("allocate", code)
	if code == outOfMemory {
		free, total, _ := g.memory()
		return 0, robocache.ResourceLimit("CUDA", robocache.Where{"device": g.number}, "memory budget").
			Expected(fmt.Sprintf("at most %d bytes free of %d", free, total), fmt.Sprint(n)).
			WithHint("smaller batches, or torch.cuda.empty_cache()")
	}
	return 0, err
}

// Attributes of addresses (CUpointer_attribute).
const (
	attrMemory  = 2 // 1 = page-locked memory of the host, which every device reaches
	attrOrdinal = 9
)

// owns asks the driver whose memory an address is: a kernel that touches another's would break the
// context.
func (g *gpu) owns(addr uintptr) error {
	s := scratch.Get().(*scratchWords)
	defer scratch.Put(s)
	ask := func(attr uintptr) (int, int32) {
		s.word = 0
		code := g.within(
			func() int32 { return s.call(g.f.PointerGetAttribute, ptr(&s.word), attr, addr) },
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
		return g.fail("tell whose memory an address is", code)
	case number != g.number:
		e.Got = fmt.Sprintf("memory of device %d", number)
		return e
	}
	return nil
}

func (g *gpu) free(addr uintptr) {
	_ = g.relaxed(func() int32 { return cudahost.Call(g.f.MemFree_v2, addr) })
}

// relaxed runs f where a graph may be being captured on this thread, which forbids what f does
// although it is no part of the graph.
func (g *gpu) relaxed(f func() int32) int32 {
	return g.within(func() int32 {
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

// upload copies on a stream of its own: the legacy one may not be touched while another is
// captured.
func (g *gpu) upload(b []byte) (uintptr, error) {
	addr, err := g.alloc(len(b))
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
		if waited := cudahost.Call(g.f.StreamSynchronize, *s); code == 0 {
			code = waited
		}
		cudahost.Call(g.f.StreamDestroy_v2, *s)
		return code
	})
	runtime.KeepAlive(b)
	if code != 0 {
		g.free(addr)
		return 0, g.fail(fmt.Sprintf("copy a table of %d bytes", len(b)), code)
	}
	return addr, nil
}

func (g *gpu) clear(addr uintptr, n int, stream uintptr) error {
	return g.do("clear memory", g.f.MemsetD8Async, addr, 0, uintptr(n), stream)
}

func (g *gpu) copyIn(to uintptr, b []byte, stream uintptr) error {
	return g.do(
		"copy to the device",
		g.f.MemcpyHtoDAsync_v2,
		to,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)),
		stream,
	)
}

func (g *gpu) copyOut(b []byte, from uintptr, stream uintptr) error {
	return g.do(
		"copy from the device",
		g.f.MemcpyDtoHAsync_v2,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		from,
		uintptr(len(b)),
		stream,
	)
}
