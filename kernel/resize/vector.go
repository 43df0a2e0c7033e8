package resize

import "math"

// tapLoad describes one load of 16 neighboring samples for each half of a group of eight outputs,
// and what the outputs take of it.
type tapLoad struct {
	first   [2]int32   // the first sample of the load of each half
	_       [2]int32   // aligns pick
	pick    [32]byte   // index into the load for each byte of the vector; 0x80 selects 0
	weights [16]uint32 // float32, or pairs of int16: their high parts, then their low parts
}

// lowBits is the number of bits of the low part of an integer weight. Both parts fit int16, so that
// a vector instruction multiplies and adds pairs.
const lowBits = 11

// splitWeight returns the parts of a weight: high × 2^lowBits + low.
func splitWeight(w int32) (high, low uint32) {
	return uint32(uint16(w >> lowBits)), uint32(w & (1<<lowBits - 1))
}

// Sizes of a vector instruction.
const (
	groupOutputs = 8  // outputs of a group
	halfOutputs  = 4  // outputs that share a load
	loadSamples  = 16 // samples of a load
)

// makeLoads sets the loads of the axis. A group of eight outputs needs a.steps loads, each with the
// next perLoad taps of every output. perLoad is 1 for float32, or 2 for pairs of int16. The axis
// has no loads if a load does not reach all its taps.
func (a *Axis) makeLoads(perLoad int) {
	taps := 0
	for i := range a.To {
		taps = max(taps, a.Count(i))
	}
	a.steps = (taps + perLoad - 1) / perLoad
	groups := (a.To + groupOutputs - 1) / groupOutputs
	if a.From < loadSamples {
		return
	}
	loads := make([]tapLoad, groups*a.steps)
	for n := range loads {
		firstOutput, firstTap := n/a.steps*groupOutputs, n%a.steps*perLoad
		if !a.fillLoad(&loads[n], firstOutput, firstTap, perLoad) {
			return
		}
	}
	a.loads = loads
}

// fillLoad sets a load for the outputs from firstOutput on, with perLoad taps of each from firstTap
// on. It returns false if the load does not reach all these taps.
func (a *Axis) fillLoad(load *tapLoad, firstOutput, firstTap, perLoad int) bool {
	for i := range load.pick {
		load.pick[i] = 0x80
	}
	for k := range min(groupOutputs, a.To-firstOutput) {
		output, half := firstOutput+k, k/halfOutputs
		if k%halfOutputs == 0 {
			first := int(a.First[output]) + firstTap
			load.first[half] = int32(max(min(first, a.From-loadSamples), 0))
		}
		for t := range min(perLoad, a.Count(output)-firstTap) {
			tap := firstTap + t
			sample := min(int(a.First[output])+tap, a.From-1) - int(load.first[half])
			if sample < 0 || sample >= loadSamples {
				return false
			}
			load.pick[4*k+4/perLoad*t] = byte(sample)
			if a.Floats != nil {
				load.weights[k] = math.Float32bits(a.Floats[int(a.Start[output])+tap])
				continue
			}
			high, low := splitWeight(a.Weights[int(a.Start[output])+tap])
			load.weights[k] |= high << (16 * t)
			load.weights[groupOutputs+k] |= low << (16 * t)
		}
	}
	return true
}

// makeRowPairs sets the pairs of weights of a vertical axis with integer weights.
func (a *Axis) makeRowPairs() {
	taps := 0
	for i := range a.To {
		taps = max(taps, a.Count(i))
	}
	a.steps = (taps + 1) / 2
	a.rowPairs = make([][2]uint32, a.To*a.steps)
	for i := range a.To {
		for t := range a.Count(i) {
			high, low := splitWeight(a.Weights[int(a.Start[i])+t])
			pair := &a.rowPairs[i*a.steps+t/2]
			pair[0] |= high << (t % 2 * 16)
			pair[1] |= low << (t % 2 * 16)
		}
	}
}

// setVectors prepares the axes for vector instructions.
func (s *Scaler) setVectors() {
	switch {
	case !hasVectors || s.Arithmetic == Bytes && s.X.Shift == 0:
	case s.Arithmetic == Floats:
		s.X.makeLoads(1)
	default:
		s.X.makeLoads(2)
		s.Y.makeRowPairs()
	}
}

// vectorRows is the layout of the rows that the first pass writes and the second pass reads.
type vectorRows struct {
	column int // first column of a row, a multiple of 8
	groups int // groups of 8 columns, which the first pass writes
	pitch  int // elements from one row to the next
	blocks int // blocks of 16 columns, which the second pass reads
}

// layOutRows returns the layout of the rows of a part.
func layOutRows(dst Plane) vectorRows {
	column := dst.Left &^ 7
	groups := (dst.Left + dst.Width - column + 7) / 8
	return vectorRows{column, groups, 8*groups + 16, (dst.Width + 15) / 16}
}

// storeRow writes row y of dst.
func (dst *Plane) storeRow(y int, line []byte) {
	to := dst.Pix[y*dst.Row:]
	if dst.Step == 1 {
		copy(to, line[:dst.Width])
		return
	}
	for x, v := range line[:dst.Width] {
		to[x*dst.Step] = v
	}
}
