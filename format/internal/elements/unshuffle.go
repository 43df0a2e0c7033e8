//go:build !purego && (amd64 || arm64)

package elements

// unshuffle2, 4 and 8 make the first some of n elements of that many bytes; some is a multiple of
// 16, and not 0.

//go:noescape
func unshuffle2(dst, src *byte, n, some int)

//go:noescape
func unshuffle4(dst, src *byte, n, some int)

//go:noescape
func unshuffle8(dst, src *byte, n, some int)

// unshuffled makes the first elements of n, and returns how many it made.
func unshuffled(dst, src []byte, n, size int) int {
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
