package quality

import "math/bits"

// hashCount is the number of frames of a camera that are hashed, evenly spaced over the episode.
const hashCount = 4

// gridHash returns the difference hash of a grid: 8 rows of 8 bits, each set if a cell is darker
// than the next cell to the right, of 9 × 8 cells. Source: Krawetz 2013, dHash.
func gridHash(grid []byte, columns, rows int) (hash uint64) {
	var sum, n [8][9]int
	for i, v := range grid {
		y, x := i/columns*8/rows, i%columns*9/columns
		sum[y][x] += int(v)
		n[y][x]++
	}
	for y := range 8 {
		for x := range 8 {
			hash <<= 1
			// Means are compared by products, without a division.
			if sum[y][x]*n[y][x+1] < sum[y][x+1]*n[y][x] {
				hash |= 1
			}
		}
	}
	return hash
}

// mirrorHash returns the hash of the mirrored image, if no two cells are equal: each row of bits is
// reversed and inverted.
func mirrorHash(hash uint64) uint64 {
	return ^bits.ReverseBytes64(bits.Reverse64(hash))
}

// hashDistance returns the mean number of bits in which the frames of two rows differ, or NaN if
// they have no frames to compare.
func hashDistance(t *Table, i, j int, mirrored bool) float64 {
	sum, n := 0.0, 0.0
	for c := range cameraCount(t) {
		a, b := cameraOf(t, i, c), cameraOf(t, j, c)
		for k := 0; a != nil && b != nil && k < hashCount; k++ {
			h := uint64(a[k])
			if mirrored {
				h = mirrorHash(h)
			}
			sum += float64(bits.OnesCount64(h ^ uint64(b[k])))
			n++
		}
	}
	return ratio(sum, n)
}
