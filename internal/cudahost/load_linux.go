package cudahost

import "github.com/ebitengine/purego"

// Dlopen opens a library of the driver; Dlsym finds a function of it.
func Dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func Dlsym(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }
