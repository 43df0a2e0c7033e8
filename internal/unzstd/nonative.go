//go:build !cgo || !linux

package unzstd

// Native reports whether libzstd is linked.
func Native() bool { return false }

func unzstdFrames(dst, src []byte, need int, sums Sums) (int, error) {
	return unzstdPure(dst, src, need, sums)
}
