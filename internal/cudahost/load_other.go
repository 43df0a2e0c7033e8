//go:build !linux || nocuda

package cudahost

import (
	"errors"
	"time"
)

// The tag nocuda leaves out what opens libraries at run time, and with it the C library: such a
// program is static.
var errPlatform = errors.New(
	"this build opens no library at run time: it is not for Linux, or was made with the tag nocuda",
)

func Dlopen(string) (uintptr, error)         { return 0, errPlatform }
func Dlsym(uintptr, string) (uintptr, error) { return 0, errPlatform }

// No library was opened, so there is no address to call.
func Call(uintptr, ...uintptr) int32 { panic(errPlatform) }
func Callback(any) uintptr           { panic(errPlatform) }
func Bind(any, uintptr)              { panic(errPlatform) }

// Nap is time.Sleep.
func Nap(d time.Duration) { time.Sleep(d) }
