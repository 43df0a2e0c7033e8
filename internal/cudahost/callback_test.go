package cudahost

import (
	"slices"
	"testing"
	"unsafe"
)

// TestCallback checks that a C library can call a Go function, which calls a C library again.
func TestCallback(t *testing.T) {
	libc, err := Dlopen("libc.so.6")
	if err != nil {
		t.Skip(err)
	}
	find := func(name string) uintptr {
		p, err := Dlsym(libc, name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	qsort, abs := find("qsort"), find("abs")
	calls := 0
	byMagnitude := Callback(func(a, b *int32) int32 {
		calls++
		return Call(abs, uintptr(uint32(*a))) - Call(abs, uintptr(uint32(*b)))
	})
	v := []int32{-7, 3, 5, -1}
	Call(qsort, uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)), 4, byMagnitude)
	if !slices.Equal(v, []int32{-1, 3, 5, -7}) || calls == 0 {
		t.Error(v, calls)
	}
}
