package edit

import "golang.org/x/sys/unix"

// NoExchange simulates a file system that cannot exchange two folders.
func NoExchange() {
	renameat2 = func(int, string, int, string, uint) error { return unix.EINVAL }
}

// SetStep sets the function that is called before each step of an edit in place.
func SetStep(fn func(string)) { beforeStep = fn }
