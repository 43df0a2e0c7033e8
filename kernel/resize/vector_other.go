//go:build !amd64 || purego

package resize

// hasVectors reports whether there is assembly for this architecture.
const hasVectors = false

// scaleVectors returns false: there are no vector instructions.
func (*Scaler) scaleVectors(Plane, []byte, int, *scratch) bool { return false }
