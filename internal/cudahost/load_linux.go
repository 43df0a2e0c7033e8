//go:build !nocuda

package cudahost

import (
	"syscall"
	"time"

	"github.com/ebitengine/purego"
)

// Dlopen opens a library.
func Dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// Dlsym returns the address of a function of a library.
func Dlsym(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

// Call calls a driver function by the address that Symbol returned. Arguments are words: integers,
// addresses and handles, but not floats. Call ignores types and is much cheaper than a function of
// purego.RegisterFunc, so it is used for every launch. Memory whose address is passed must be on
// the heap, and the caller must keep it alive.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r)
}

// Callback returns an address at which a library of the driver can call fn. The address is never
// freed, so callbacks must be created once.
func Callback(fn any) uintptr { return purego.NewCallback(fn) }

// Bind sets the function variable that fn points to. Calling it calls the driver function at
// address.
func Bind(fn any, address uintptr) { purego.RegisterFunc(fn, address) }

// Nap sleeps for less than a millisecond. time.Sleep rounds up to one millisecond if the process is
// idle.
func Nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal can end the sleep early, which is harmless
}
