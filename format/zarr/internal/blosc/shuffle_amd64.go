//go:build !purego

package blosc

// Interleaving by SSE2, which every amd64 has. Each takes planes (rows of bits) of n bytes, and does 16 bytes of each a block.

//go:noescape
func planes2(dst, src *byte, n, blocks int)

//go:noescape
func planes4(dst, src *byte, n, blocks int)

//go:noescape
func planes8(dst, src *byte, n, blocks int)

//go:noescape
func bitRows(dst, src *byte, n, blocks int)

// fastPlanes undoes byte shuffle of the first elements, and says of how many.
func fastPlanes(dst, src []byte, n, size int) int {
	blocks := n / 16
	if blocks == 0 || len(src) < n*size || len(dst) < n*size {
		return 0
	}
	switch size {
	case 2:
		planes2(&dst[0], &src[0], n, blocks)
	case 4:
		planes4(&dst[0], &src[0], n, blocks)
	case 8:
		planes8(&dst[0], &src[0], n, blocks)
	default:
		return 0
	}
	return 16 * blocks
}

// fastBits makes bytes of the first rows of bits of one plane, and says of how many bytes of a row.
func fastBits(dst, rows []byte, row int) int {
	blocks := row / 16
	if blocks == 0 || len(rows) < 8*row || len(dst) < 8*row {
		return 0
	}
	bitRows(&dst[0], &rows[0], row, blocks)
	return 16 * blocks
}
