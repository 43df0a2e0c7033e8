package cudahost

import "github.com/ebitengine/purego"

func dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func dlsym(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }
