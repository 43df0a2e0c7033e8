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

// makeLoads sets the loads of the axis. perLoad is the number of taps of an output per load: 1 for
// float32, or 2. The axis has no loads if a load does not reach all its taps.
func (a *Axis) makeLoads(perLoad int) {
	taps := 0
	for i := range a.To {
		taps = max(taps, a.Count(i))
	}
	a.steps = (taps + perLoad - 1) / perLoad
	groups := (a.To + 7) / 8
	if a.From < 16 {
		return
	}
	loads := make([]tapLoad, groups*a.steps)
	for n := range loads {
		load, step := &loads[n], n%a.steps
		for i := range load.pick {
			load.pick[i] = 0x80
		}
		for k := range 8 {
			output, half := n/a.steps*8+k, k/4
			if output >= a.To {
				break
			}
			if k%4 == 0 {
				first := int(a.First[output]) + step*perLoad
				load.first[half] = int32(max(min(first, a.From-16), 0))
			}
			for t := range min(perLoad, a.Count(output)-step*perLoad) {
				tap := step*perLoad + t
				at := min(int(a.First[output])+tap, a.From-1) - int(load.first[half])
				if at < 0 || at > 15 {
					return
				}
				load.pick[4*k+4/perLoad*t] = byte(at)
				if a.Floats != nil {
					load.weights[k] = math.Float32bits(a.Floats[int(a.Start[output])+tap])
					continue
				}
				high, low := splitWeight(a.Weights[int(a.Start[output])+tap])
				load.weights[k] |= high << (16 * t)
				load.weights[8+k] |= low << (16 * t)
			}
		}
	}
	a.loads = loads
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

// vectorRows is the layout of rows between the passes: pitch elements apart, from a column that is
// a multiple of 8. The second pass reads and writes 16 elements at a time.
type vectorRows struct{ column, groups, pitch, blocks int }

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
