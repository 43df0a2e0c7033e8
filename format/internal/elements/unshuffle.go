//go:build !purego && (amd64 || arm64)

package elements

// unshuffleSize2, unshuffleSize4 and unshuffleSize8 reorder the first some of n elements of 2, 4 or 8 bytes.
// some must be a positive multiple of 16.

//go:noescape
func unshuffleSize2(dst, src *byte, n, some int)

//go:noescape
func unshuffleSize4(dst, src *byte, n, some int)

//go:noescape
func unshuffleSize8(dst, src *byte, n, some int)

// unshuffleBlocks reorders as many of the n elements as the assembly supports, and returns their
// number.
func unshuffleBlocks(dst, src []byte, n, size int) int {
	some := n &^ 15
	if some == 0 {
		return 0
	}
	switch size {
	case 2:
		unshuffleSize2(&dst[0], &src[0], n, some)
	case 4:
		unshuffleSize4(&dst[0], &src[0], n, some)
	case 8:
		unshuffleSize8(&dst[0], &src[0], n, some)
	default:
		return 0
	}
	return some
}
