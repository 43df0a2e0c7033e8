//go:build !cgo || !linux

package turbojpeg

func isLinked() bool { return false }

// decodeNative is never called in this build, because isLinked returns false.
func decodeNative(_, _ []byte, _, _, _ int) error { return nil }
