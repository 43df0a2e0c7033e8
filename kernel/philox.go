package kernel

import "math"

// The constants of Philox4x32-10: factors of two words of the counter, and the steps of the key.
const (
	philoxFactor0 = 0xD2511F53
	philoxFactor2 = 0xCD9E8D57
	philoxStep0   = 0x9E3779B9
	philoxStep1   = 0xBB67AE85
)

// Philox computes one block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers:
// as easy as 1, 2, 3; SC 2011).
func Philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(counter[0])*philoxFactor0, uint64(counter[2])*philoxFactor2
		counter = [4]uint32{
			uint32(b>>32) ^ counter[1] ^ key[0],
			uint32(b),
			uint32(a>>32) ^ counter[3] ^ key[1],
			uint32(a),
		}
		key[0] += philoxStep0
		key[1] += philoxStep1
	}
	return counter
}

// The purpose of a draw is in the top two bits of the first counter word (kernel.K16).
const (
	drawNoise uint32 = iota << 30
	drawDropout
	drawScale
)

// Key returns the Philox key of all draws of the augmentation. It mixes seed, epoch and op once, on
// the host.
func (a *Augment) Key() [2]uint32 {
	x := Philox(
		[4]uint32{uint32(a.Epoch), uint32(a.Epoch >> 32), a.Op, 0},
		[2]uint32{uint32(a.Seed), uint32(a.Seed >> 32)},
	)
	return [2]uint32{x[0], x[1]}
}

// drawWords returns the four random words for a purpose, a row and a column of a sample. Four
// neighboring columns share them.
func drawWords(key [2]uint32, sample uint64, purpose uint32, row, col int) [4]uint32 {
	return Philox(
		[4]uint32{purpose | uint32(col>>2), uint32(row), uint32(sample), uint32(sample >> 32)},
		key,
	)
}

// DrawUniform returns a number in [0, 1) for a sample: a pure function of its arguments. op
// separates draws of different kinds.
func DrawUniform(seed, epoch uint64, op uint32, sample int64) float64 {
	a := Augment{Seed: seed, Epoch: epoch, Op: op}
	x := drawWords(a.Key(), uint64(sample), drawScale, 0, 0)
	return float64(x[0]) * 0x1p-32
}

// uniformFloat returns 24 of the bits as a number in [0, 1), which is exact in float32.
func uniformFloat(x uint32) float32 { return float32(x>>8) * 0x1p-24 }

// Gauss returns two standard normal numbers computed from two words. It uses the Box-Muller
// transform in float64 and rounds each number once. Other back ends may differ by 2 ulp.
func Gauss(x, y uint32) (float32, float32) {
	r := math.Sqrt(-2 * math.Log(float64(x>>8+1)*0x1p-24)) // in (0, 1]
	sin, cos := math.Sincos(2 * math.Pi * float64(uniformFloat(y)))
	return float32(r * cos), float32(r * sin)
}

// Scale returns the scale factor of a sample. It is 1 if the augmentation does not scale.
func (a *Augment) Scale(key [2]uint32, sample int64) float32 {
	if a.ScaleLo == 0 && a.ScaleHi == 0 {
		return 1
	}
	u := uniformFloat(drawWords(key, uint64(sample), drawScale, 0, 0)[0])
	return a.ScaleLo + float32(float32(a.ScaleHi-a.ScaleLo)*u)
}

// Drops reports whether a row of a sample becomes zeros.
func (a *Augment) Drops(key [2]uint32, sample int64, row int) bool {
	if !(a.Dropout > 0) {
		return false
	}
	words := drawWords(key, uint64(sample), drawDropout, row, 0)
	return uniformFloat(words[0]) < a.Dropout
}

// Normals fills g with standard normal numbers for columns col … col+len(g)-1 of one row of a
// sample. One block of Philox gives the numbers of four columns.
func (a *Augment) Normals(g []float32, key [2]uint32, sample int64, row, col int) {
	var four [4]float32
	for i := range g {
		if c := col + i; i == 0 || c&3 == 0 {
			x := drawWords(key, uint64(sample), drawNoise, row, c)
			four[0], four[1] = Gauss(x[0], x[1])
			four[2], four[3] = Gauss(x[2], x[3])
		}
		g[i] = four[(col+i)&3]
	}
}
