//go:build !nocuda

package cudahost

import (
	"syscall"
	"time"

	"github.com/ebitengine/purego"
)

// Dlopen opens a library of the driver; Dlsym finds a function of it.
func Dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func Dlsym(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

// Call calls a function of the driver by the address that Symbol gave, with words: integers,
// addresses, handles; floats do not go this way. Unlike a function of purego.RegisterFunc it looks
// at no types, and costs a fraction: what is called for every launch goes this way. Memory whose
// address is passed lies on the heap, and the caller keeps it alive.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r)
}

// Callback gives an address by which a library of the driver calls fn, for the life of the process:
// few are made, once.
func Callback(fn any) uintptr { return purego.NewCallback(fn) }

// Bind makes a Go function, fn points to it, of the address that Symbol gave.
func Bind(fn any, address uintptr) { purego.RegisterFunc(fn, address) }

// Nap sleeps for less than a millisecond, which time.Sleep rounds up to one where the process is
// idle.
func Nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // woken early, the caller looks early
}
