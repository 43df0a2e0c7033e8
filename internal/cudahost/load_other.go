//go:build !linux

package cudahost

import "errors"

var errPlatform = errors.New("CUDA is used on Linux")

func Dlopen(string) (uintptr, error)         { return 0, errPlatform }
func Dlsym(uintptr, string) (uintptr, error) { return 0, errPlatform }
