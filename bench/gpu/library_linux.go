//go:build !nocuda

package gpu

import "github.com/ebitengine/purego"

// openLibrary opens a shared library of the driver. The library is never closed.
func openLibrary(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// bindSymbol makes the function that fn points to call a symbol of the library. It leaves *fn nil
// if there is no such symbol.
func bindSymbol(library uintptr, name string, fn any) {
	if address, err := purego.Dlsym(library, name); err == nil {
		purego.RegisterFunc(fn, address)
	}
}
