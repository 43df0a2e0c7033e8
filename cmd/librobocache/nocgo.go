//go:build !cgo

package main

// Without cgo there is no C library to build. This file keeps `CGO_ENABLED=0 go build ./...`
// working, and prints the reason when the program runs.
func main() {
	panic("librobocache is a C library: build it with cgo and -buildmode=c-shared (make lib)")
}
