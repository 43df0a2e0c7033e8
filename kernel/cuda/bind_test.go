package cuda

import (
	"testing"
	"unsafe"
)

// deep grows the stack of its goroutine.
//
//go:noinline
func deep(n int) byte {
	var room [4096]byte
	room[n%len(room)] = 1
	if n > 0 {
		room[0] += deep(n - 1)
	}
	return room[n%len(room)]
}

// TestAddressesStay checks that memory which the driver writes to does not move with a stack.
func TestAddressesStay(t *testing.T) {
	moved := make(chan bool)
	go func() { // a new goroutine has a small stack
		n := new(int32)
		was := ptr(n)
		deep(64)
		moved <- was != uintptr(unsafe.Pointer(n))
	}()
	if <-moved {
		t.Error("the address that a driver was given is not that of the variable any more")
	}
}
