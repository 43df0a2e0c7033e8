//go:build !linux

package bench

import "github.com/goatnote-inc/robocache"

func evict([]string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench load", Msg: "the page cache cannot be emptied on this system", Hint: "--cache-state warm"}
}

func resident([]string) (float64, bool) { return 0, false }
