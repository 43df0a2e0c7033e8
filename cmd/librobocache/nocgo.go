//go:build !cgo

package main

// Without cgo there is no C library to make: this keeps `CGO_ENABLED=0 go build ./...` whole, and
// says so when it is run.
func main() {
	panic("librobocache is a C library: build it with cgo and -buildmode=c-shared (make lib)")
}
