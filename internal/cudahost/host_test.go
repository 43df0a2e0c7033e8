package cudahost

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// fake is a driver of two devices that records its calls.
type fake struct {
	mu               sync.Mutex
	devices          int32
	active           int32 // the device with a context; -1: none
	retained, pushed int
	live             map[unsafe.Pointer][]byte
	fail             map[string]int32
	lastDevice       int32
}

func (f *fake) driver() *memoryDriver {
	code := func(op string) int32 { return f.fail[op] }
	locked := func(g func() int32) int32 { f.mu.Lock(); defer f.mu.Unlock(); return g() }
	return &memoryDriver{
		deviceCount: func(n *int32) int32 { *n = f.devices; return code("count") },
		deviceGet:   func(d *int32, i int32) int32 { *d = i + 10; return code("get") },
		primaryState: func(d int32, _ *uint32, active *int32) int32 {
			if d == f.active+10 {
				*active = 1
			}
			return 0
		},
		primaryRetain: func(c *uintptr, d int32) int32 {
			return locked(
				func() int32 {
					f.lastDevice = d - 10
					*c = 0xc0
					f.retained++
					return code("retain")
				},
			)
		},
		primaryRelease: func(int32) int32 {
			return locked(func() int32 { f.retained--; return 0 })
		},
		push: func(uintptr) int32 {
			return locked(func() int32 { f.pushed++; return code("push") })
		},
		pop: func(*uintptr) int32 {
			return locked(func() int32 { f.pushed--; return 0 })
		},
		hostAlloc: func(p *unsafe.Pointer, n uintptr, flags uint32) int32 {
			return locked(func() int32 {
				if c := code("alloc"); c != 0 {
					return c
				}
				if flags != portable || f.pushed == 0 || f.retained == 0 {
					return 201
				}
				m := make([]byte, n)
				m[0] = 0xff
				*p = unsafe.Pointer(unsafe.SliceData(m))
				f.live[*p] = m
				return 0
			})
		},
		hostFree: func(p unsafe.Pointer) int32 {
			return locked(func() int32 {
				if f.retained == 0 {
					return 201
				}
				delete(f.live, p)
				return 0
			})
		},
		name: func(c int32) string {
			if c == 999 {
				return "CUDA error 999"
			}
			return "CUDA_ERROR_OF_SORTS"
		},
	}
}

func newFake() *fake {
	return &fake{
		devices: 2,
		active:  -1,
		live:    map[unsafe.Pointer][]byte{},
		fail:    map[string]int32{},
	}
}

func TestAllocations(t *testing.T) {
	f := newFake()
	h, err := openHost(f.driver(), 1)
	if err != nil || f.lastDevice != 1 {
		t.Fatal(err, f.lastDevice)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				m, err := h.Alloc(100)
				if err != nil || len(m) != 100 || m[0] != 0 {
					t.Errorf("%v %d", err, len(m))
					return
				}
				h.Free(m)
			}
		})
	}
	wg.Wait()
	if len(f.live) != 0 || f.pushed != 0 {
		t.Errorf("%d live, %d contexts pushed", len(f.live), f.pushed)
	}
	// The context stays until memory in use is freed.
	m, err := h.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	h.Close()
	if f.retained != 1 {
		t.Fatal("the context went with memory in use")
	}
	if _, err := h.Alloc(8); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("after Close:", err)
	}
	h.Free(m)
	if f.retained != 0 || len(f.live) != 0 {
		t.Errorf("retained %d times, %d live", f.retained, len(f.live))
	}
	h.Free(nil)
	if _, err := h.Alloc(0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestDeviceInUse covers cudahost.H5: the device that a framework already uses.
func TestDeviceInUse(t *testing.T) {
	for active, want := range map[int32]int32{-1: 0, 0: 0, 1: 1} {
		f := newFake()
		f.active = active
		if _, err := openHost(f.driver(), -1); err != nil || f.lastDevice != want {
			t.Errorf("active %d: %v, device %d", active, err, f.lastDevice)
		}
	}
	if _, err := openHost(newFake().driver(), 2); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestFailures covers cudahost.H2.
func TestFailures(t *testing.T) {
	for op, class := range map[string]error{
		"count":  robocache.ErrUnsupported,
		"get":    robocache.ErrUnsupported,
		"retain": robocache.ErrUnsupported,
	} {
		f := newFake()
		f.fail[op] = 35
		if _, err := openHost(f.driver(), 0); !errors.Is(err, class) ||
			!strings.Contains(err.Error(), "CUDA_ERROR_OF_SORTS") {
			t.Errorf("%s: %v", op, err)
		}
	}
	f := newFake()
	f.devices = 0
	if _, err := openHost(f.driver(), -1); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "no device") {
		t.Error(err)
	}
	f = newFake()
	h, err := openHost(f.driver(), 0)
	if err != nil {
		t.Fatal(err)
	}
	f.fail["alloc"] = outOfMemory
	if _, err := h.Alloc(1 << 20); !errors.Is(err, robocache.ErrResourceLimit) || f.pushed != 0 {
		t.Error(err, f.pushed)
	}
	f.fail["alloc"], f.fail["push"] = 0, 999
	if _, err := h.Alloc(1); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "999") {
		t.Error(err)
	}
	h.Close()
	if f.retained != 0 {
		t.Error("failed allocations keep the context")
	}
}

// TestThisMachine covers cudahost.H2 on this machine, with or without a driver.
func TestThisMachine(t *testing.T) {
	h, err := Open(-1)
	if err != nil {
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrUnsupported) || e.Hint == "" {
			t.Fatalf("not told by class and hint: %v", err)
		}
		t.Skip("no page-locked memory here: ", err)
	}
	m, err := h.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	m[1<<20-1] = 1
	h.Free(m)
	h.Close()
}
