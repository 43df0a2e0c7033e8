package edit

import "golang.org/x/sys/unix"

// NoExchange is a file system that cannot exchange two folders.
func NoExchange() {
	renameat2 = func(int, string, int, string, uint) error { return unix.EINVAL }
}

// SetStep has fn called before each step of an edit in place.
func SetStep(fn func(string)) { step = fn }
