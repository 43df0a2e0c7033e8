//go:build !purego

package checksum

import (
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/cpu"
)

const (
	block = 256 // bytes that one turn of the loop folds
	least = 2 * block
)

var fast = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasPCLMULQDQ

// constants carry 16 bytes over a distance, in bytes: of the multiplication in GF(2), what x^(8·distance ± 32) leaves, bits reversed.
type constants struct{ whole, part, lane [2]uint64 } // 256, 64 and 16 bytes

var folding = constants{whole: carry(block), part: carry(64), lane: carry(16)}

func carry(distance int) [2]uint64 { return [2]uint64{power(8*distance + 32), power(8*distance - 32)} }

// power is x^n modulo the polynomial, bits reversed, one place up as PCLMULQDQ of reversed numbers wants it.
func power(n int) uint64 {
	const poly = 0x04c11db7
	r := uint32(1)
	for range n {
		top := r >> 31
		r <<= 1
		if top != 0 {
			r ^= poly
		}
	}
	return uint64(bits.Reverse32(r)) << 1
}

// foldVPCLMUL folds blocks (two at least) of 256 bytes to 16 that have the same remainder, start being the register before them.
//
//go:noescape
func foldVPCLMUL(out *[16]byte, p *byte, blocks int, start uint32, k *constants)

// wide sums whole blocks, and says how many bytes they are.
func wide(crc uint32, b []byte) (uint32, int) {
	if !fast || len(b) < least {
		return crc, 0
	}
	var rest [16]byte
	blocks := len(b) / block
	foldVPCLMUL(&rest, &b[0], blocks, ^crc, &folding)
	// By the table: what is handed to hash/crc32 escapes to the heap.
	var sum uint32
	for _, v := range rest {
		sum = crc32.IEEETable[byte(sum)^v] ^ sum>>8
	}
	return ^sum, blocks * block
}
