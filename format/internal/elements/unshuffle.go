//go:build !purego && (amd64 || arm64)

package elements

// unshuffle2, unshuffle4 and unshuffle8 reorder the first some of n elements of 2, 4 or 8 bytes.
// some must be a positive multiple of 16.

//go:noescape
func unshuffle2(dst, src *byte, n, some int)

//go:noescape
func unshuffle4(dst, src *byte, n, some int)

//go:noescape
func unshuffle8(dst, src *byte, n, some int)

// unshuffleBlocks reorders as many of the n elements as the assembly supports, and returns their
// number.
func unshuffleBlocks(dst, src []byte, n, size int) int {
	some := n &^ 15
	if some == 0 {
		return 0
	}
	switch size {
	case 2:
		unshuffle2(&dst[0], &src[0], n, some)
	case 4:
		unshuffle4(&dst[0], &src[0], n, some)
	case 8:
		unshuffle8(&dst[0], &src[0], n, some)
	default:
		return 0
	}
	return some
}
