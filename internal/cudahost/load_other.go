//go:build !linux || nocuda

package cudahost

import (
	"errors"
	"time"
)

// errPlatform is the error of builds that cannot open libraries at run time. The build tag nocuda
// also excludes the C library, so that the program can be linked statically.
var errPlatform = errors.New(
	"this build opens no library at run time: it is not for Linux, or was made with the tag nocuda",
)

func Dlopen(string) (uintptr, error)         { return 0, errPlatform }
func Dlsym(uintptr, string) (uintptr, error) { return 0, errPlatform }

// Call panics: no library was opened, so there is no address to call.
func Call(uintptr, ...uintptr) int32 { panic(errPlatform) }
func Callback(any) uintptr           { panic(errPlatform) }
func Bind(any, uintptr)              { panic(errPlatform) }

// Nap sleeps for d.
func Nap(d time.Duration) { time.Sleep(d) }
