//go:build !cgo || !linux

package turbojpeg

func isLinked() bool { return false }

func decodeNative(_, _ []byte, _, _, _ int) error { return nil }
