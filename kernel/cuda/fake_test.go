//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// fake is a driver that records what it must load and returns configured results.
type fake struct {
	g      *gpu
	result map[string]int32 // keyed by "ELF" and "PTX" for images, and by function otherwise
	log    []string
}

// newFake returns a driver of one chip whose functions append to the log and return the configured
// results.
func newFake(major, minor int) *fake {
	f := &fake{result: map[string]int32{}}
	lib := &cudahost.Driver{}
	f.g = &gpu{
		driver:  &driver{lib: lib},
		context: 7,
		modules: map[string]*module{},
		name:    "a chip",
		chip:    chip{major: major, minor: minor, shared: 1000},
	}
	answer := func(what string) uintptr {
		f.log = append(f.log, what)
		return uintptr(f.result[what])
	}
	fn := &f.g.f
	fn.CtxGetCurrent = purego.NewCallback(func(p *uintptr) uintptr { *p = 7; return 0 })
	fn.ThreadExchangeStreamCaptureMode = purego.NewCallback(
		func(p *int32) uintptr { *p = 2 - *p; return 0 },
	)
	fn.ModuleLoadDataEx = purego.NewCallback(func(h *uintptr, image *[4]byte) uintptr {
		*h = 9
		if string(image[1:4]) == "ELF" {
			return answer("ELF")
		}
		return answer("PTX")
	})
	fn.ModuleGetFunction = purego.NewCallback(
		func(h *uintptr, m uintptr, name *byte) uintptr { *h = 11; return answer("function") },
	)
	fn.FuncGetAttribute = purego.NewCallback(func(v *int32, what int32, f uintptr) uintptr {
		*v = map[int32]int32{attrFuncThreads: 512, attrFuncShared: 100}[what]
		return answer("attribute")
	})
	fn.FuncSetAttribute = purego.NewCallback(
		func(h uintptr, what, v int32) uintptr { return answer(fmt.Sprint("shared ", v)) },
	)
	fn.LaunchKernel = purego.NewCallback(
		func(
			h uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params *unsafe.Pointer, extra uintptr,
		) uintptr {
			return answer(
				fmt.Sprint(
					"launch ",
					h,
					gx,
					gy,
					gz,
					bx,
					by,
					bz,
					shared,
					stream,
					*(*byte)(*params),
					extra,
				),
			)
		},
	)
	fn.MemAlloc_v2 = purego.NewCallback(
		func(p *uintptr, n uintptr) uintptr { *p = 4096; return answer("alloc") },
	)
	fn.MemGetInfo_v2 = purego.NewCallback(func(a, b *uintptr) uintptr { *a, *b = 5, 6; return 0 })
	return f
}

// TestModules covers cuda.G1 and cuda.G2: first the image that fits, then PTX. The error names the
// image, and a driver that is too old.
func TestModules(t *testing.T) {
	f := newFake(9, 0)
	k := &call{kernel: "probe_add", grid: 3, block: 64, params: []byte{8}}
	if err := f.g.prepareKernel(k); err != nil ||
		!slices.Equal(f.log, []string{"ELF", "function", "attribute", "attribute", "shared 900"}) {
		t.Fatal(err, f.log)
	}
	if fn := k.device.(*function); fn.maxThreads != 512 || fn.maxShared != 900 || !fn.early {
		t.Errorf("%+v", fn)
	}
	f.log = nil
	if err := f.g.prepareKernel(&call{kernel: "probe_early"}); err != nil ||
		slices.Contains(f.log, "ELF") {
		t.Error("the module is loaded again:", err, f.log)
	}
	// A driver before CUDA 11.8 launches without attributes.
	f.log = nil
	if err := f.g.launchCall(k, 5); err != nil ||
		!slices.Equal(f.log, []string{"launch 11 3 1 1 64 1 1 0 5 8 0"}) {
		t.Error(err, f.log)
	}
	f.result["launch 11 3 1 1 64 1 1 0 5 8 0"] = 700 // CUDA_ERROR_ILLEGAL_ADDRESS
	if err := f.g.launchCall(k, 5); !errors.Is(err, robocache.ErrTemporary) ||
		!strings.Contains(err.Error(), "probe_add<<<3, 64, 0>>>") ||
		!strings.Contains(err.Error(), "Restart the process") {
		t.Error(err)
	}
	// A later chip uses PTX. Its kernels do not wait for the previous launch, so they must not
	// start early.
	f = newFake(12, 0)
	k = &call{kernel: "probe_early"}
	if err := f.g.prepareKernel(k); err != nil || f.log[0] != "PTX" || k.device.(*function).early {
		t.Error(err, f.log)
	}
	// The driver supports neither sm_90 code nor the version of the PTX.
	f = newFake(9, 0)
	f.result["ELF"], f.result["PTX"] = noBinary, ptxVersion
	err := f.g.prepareKernel(&call{kernel: "probe_add"})
	if !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "driver too old") ||
		!strings.Contains(err.Error(), "compute_80") ||
		!slices.Equal(f.log, []string{"ELF", "PTX"}) {
		t.Error(err, f.log)
	}
	if again := f.g.prepareKernel(&call{kernel: "probe_empty"}); again == nil || len(f.log) != 2 {
		t.Error("tried again:", again, f.log)
	}
	f = newFake(7, 5)
	if err := f.g.prepareKernel(&call{kernel: "probe_add"}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "no image for the chip") ||
		!strings.Contains(err.Error(), "sm_75") {
		t.Error(err)
	}
	// cuda.G8
	f.result["alloc"] = outOfMemory
	if _, err := f.g.allocMemory(100); !errors.Is(err, robocache.ErrResourceLimit) ||
		!strings.Contains(err.Error(),
			"memory budget: expected at most 5 bytes free of 6, found 100") {
		t.Error(err)
	}
}
