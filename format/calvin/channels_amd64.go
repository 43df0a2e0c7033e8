//go:build !purego

package calvin

import "golang.org/x/sys/cpu"

// threeOfSix copies the first three bytes of every six: 48 bytes a block, of which it writes 24 and four zeros.
//
//go:noescape
func threeOfSix(dst, src *byte, blocks int)

// fourOfEight copies the first four bytes of every eight: 64 bytes a block, of which it writes 32.
//
//go:noescape
func fourOfEight(dst, src *byte, blocks int)

// channelsFast does the pixels of CALVIN's own arrays that fill whole blocks, and says how many they are.
func channelsFast(dst, src []byte, step, width int) int {
	switch {
	case step == 6 && width == 3 && cpu.X86.HasSSSE3:
		if blocks := min(len(src)/48, (len(dst)-4)/24); blocks > 0 {
			threeOfSix(&dst[0], &src[0], blocks)
			return 8 * blocks
		}
	case step == 8 && width == 4:
		if blocks := min(len(src)/64, len(dst)/32); blocks > 0 {
			fourOfEight(&dst[0], &src[0], blocks)
			return 8 * blocks
		}
	}
	return 0
}
