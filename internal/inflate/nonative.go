//go:build !cgo || !linux

package inflate

// Native reports whether libdeflate is linked.
func Native() bool { return false }

func inflateStream(kind Kind, dst, src []byte) (written, read int, err error) {
	return inflatePure(kind, dst, src)
}
