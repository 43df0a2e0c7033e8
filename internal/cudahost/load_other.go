//go:build !linux

package cudahost

import "errors"

var errPlatform = errors.New("CUDA is used on Linux")

func dlopen(string) (uintptr, error)         { return 0, errPlatform }
func dlsym(uintptr, string) (uintptr, error) { return 0, errPlatform }
