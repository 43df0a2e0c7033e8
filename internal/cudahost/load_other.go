//go:build !linux

package cudahost

import "github.com/goatnote-inc/robocache"

func load() (*driver, error) {
	return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "page-locked memory", Msg: "page-locked memory is for Linux", Hint: "pin_memory=False does without"}
}
