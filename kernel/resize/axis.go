package resize

import "math"

// triangle is the bilinear filter, which falls linearly from 1 at x = 0 to 0 at x = ±1.
func triangle(x float64) float64 { return max(0, 1-math.Abs(x)) }

// lanczos3 is the Lanczos filter of radius 3.
func lanczos3(x float64) float64 {
	if x < -3 || x >= 3 {
		return 0
	}
	return sinc(x) * sinc(x/3)
}

// sinc returns sin(πx)/(πx), and 1 for x = 0.
func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// newAxis returns an axis without outputs.
func newAxis(from, to int) *Axis {
	return &Axis{From: from, To: to, First: make([]int32, 0, to), Start: make([]int32, 1, to+1)}
}

// addInts appends an output that is the sum of the samples from first on, with integer weights.
func (a *Axis) addInts(first int, weights ...int32) {
	a.First = append(a.First, int32(first))
	a.Weights = append(a.Weights, weights...)
	a.Start = append(a.Start, int32(len(a.Weights)))
}

// addFloats is addInts for float32 weights.
func (a *Axis) addFloats(first int, weights ...float32) {
	a.First = append(a.First, int32(first))
	a.Floats = append(a.Floats, weights...)
	a.Start = append(a.Start, int32(len(a.Floats)))
}

// padWeights sets the unexported fields of the axis, which the loops over pixels read.
func (a *Axis) padWeights(arithmetic Arithmetic) {
	if arithmetic == Fixed {
		for i, first := range a.First {
			second := min(first+1, int32(a.From-1))
			a.blends = append(a.blends, blend{first, second, a.Weights[2*i], a.Weights[2*i+1]})
		}
	}
	for i := range a.To {
		a.taps = max(a.taps, (a.Count(i)+3)&^3) // rounded up to a multiple of 4
	}
	a.padded = make([]uint64, a.To*a.taps)
	a.paddedReal = make([]float32, a.To*a.taps)
	for i := range a.To {
		for k := range a.Count(i) {
			at := int(a.Start[i]) + k
			if a.Floats != nil {
				a.paddedReal[i*a.taps+k] = a.Floats[at]
			} else {
				a.padded[i*a.taps+k] = uint64(int64(a.Weights[at]))
			}
		}
	}
}

// nearestAxis selects the sample at the center of each output. It adds the scale up instead of
// multiplying it, as Pillow does. The rounding errors of the sum decide about centers between two
// samples.
func nearestAxis(from, to int) *Axis {
	a := newAxis(from, to)
	scale := float64(from) / float64(to)
	for center := scale * 0.5; len(a.First) < to; center += scale {
		a.addInts(min(int(center), from-1), 1)
	}
	return a
}

// filterRows returns the first sample and the normalized weights of each output. f is the filter;
// it is 0 beyond radius. When the axis is scaled down, the filter is widened by the scale.
func filterRows(from, to int, radius float64, f func(float64) float64) ([]int, [][]float64) {
	scale := float64(from) / float64(to)
	widening := max(scale, 1)
	support := radius * widening
	firsts, rows := make([]int, to), make([][]float64, to)
	for i := range to {
		center := (float64(i) + 0.5) * scale
		lo := max(int(center-support+0.5), 0)
		hi := min(int(center+support+0.5), from)
		row, sum := make([]float64, hi-lo), 0.0
		for k := range row {
			row[k] = f((float64(k+lo) - center + 0.5) * (1 / widening))
			sum += row[k]
		}
		for k := range row {
			if sum != 0 {
				row[k] /= sum
			}
		}
		firsts[i], rows[i] = lo, row
	}
	return firsts, rows
}

// fixedWeights rounds weights, half away from zero, to integers with shift fractional bits.
func fixedWeights(row []float64, shift int32) []int32 {
	out := make([]int32, len(row))
	for i, v := range row {
		out[i] = int32(math.Round(v * float64(int64(1)<<shift)))
	}
	return out
}

// maxWeightBits is the number of fractional bits of Pillow's weights, and torch's maximum.
const maxWeightBits = 22

// pilAxis returns the axis of Pillow.
func pilAxis(from, to int, radius float64, f func(float64) float64) *Axis {
	firsts, rows := filterRows(from, to, radius, f)
	a := newAxis(from, to)
	a.Shift = maxWeightBits
	for i, row := range rows {
		a.addInts(firsts[i], fixedWeights(row, a.Shift)...)
	}
	return a
}

// torchAxis returns the axis of torch for uint8. Its weights have as many fractional bits as
// possible without the largest weight leaving int16.
func torchAxis(from, to int) *Axis {
	firsts, rows := filterRows(from, to, 1, triangle)
	largest := 0.0
	for _, row := range rows {
		for _, v := range row {
			largest = max(largest, v)
		}
	}
	a := newAxis(from, to)
	withBits := func(bits int32) int64 { return int64(0.5 + largest*float64(int64(1)<<bits)) }
	for a.Shift < maxWeightBits && withBits(a.Shift+1) <= math.MaxInt16 {
		a.Shift++
	}
	for i, row := range rows {
		a.addInts(firsts[i], fixedWeights(row, a.Shift)...)
	}
	return a
}

// tensorflowAxis returns the axis of TensorFlow's ScaleAndTranslate with the filter lanczos3. It
// computes in float32 as TensorFlow does; the conversions round each operation.
func tensorflowAxis(from, to int) *Axis {
	a := newAxis(from, to)
	inverse := 1 / (float32(to) / float32(from))
	widening := max(inverse, 1)
	narrowing := 1 / widening
	for i := range to {
		center := float32((float32(i) + 0.5) * inverse)
		reach := float32(3 * widening)
		lo := max(int(math.Ceil(float64(float32(center-reach)-0.5))), 0)
		hi := min(int(math.Floor(float64(float32(center+reach)-0.5))), from-1)
		row, sum := make([]float32, hi-lo+1), float32(0)
		for k := range row {
			x := math.Abs(float64(float32(float32(float32(lo+k)+0.5)-center) * narrowing))
			switch {
			case x > 3:
			case x <= 1e-3:
				row[k] = 1
			default:
				row[k] = float32(3 * math.Sin(math.Pi*x) * math.Sin(math.Pi*x/3) /
					(math.Pi * math.Pi * x * x))
			}
			sum += row[k]
		}
		for k := range row {
			row[k] *= 1 / sum
		}
		a.addFloats(lo, row...)
	}
	return a
}

// setCV2 sets the axes of cv2.resize. INTER_AREA averages the source samples of each cell when
// neither axis is enlarged; otherwise it interpolates. INTER_LINEAR averages when both axes are
// halved. A cell is the part of the source that one output covers.
func (s *Scaler) setCV2(k scalerKey) {
	wholeCells := k.fromWidth%k.toWidth == 0 && k.fromHeight%k.toHeight == 0
	across, down := k.fromWidth/k.toWidth, k.fromHeight/k.toHeight // samples per cell
	isHalf := wholeCells && across == 2 && down == 2
	isArea := k.filter == CV2Area && k.fromWidth >= k.toWidth && k.fromHeight >= k.toHeight
	switch {
	case isHalf || isArea && wholeCells:
		s.Arithmetic, s.Gain = Floats, 1/float32(across*down)
		if isHalf {
			s.Bias = 0.125 // rounds half up: sums are multiples of 1/4
		}
		s.X, s.Y = sumAxis(k.fromWidth, k.toWidth), sumAxis(k.fromHeight, k.toHeight)
	case isArea:
		s.Arithmetic = Floats
		s.X, s.Y = meanAxis(k.fromWidth, k.toWidth), meanAxis(k.fromHeight, k.toHeight)
	default:
		s.Arithmetic = Fixed
		isArea = k.filter == CV2Area
		s.X = cv2Linear(k.fromWidth, k.toWidth, isArea)
		s.Y = cv2Linear(k.fromHeight, k.toHeight, isArea)
		for i, first := range s.X.First { // columns are clamped with their weights, rows are not
			if first < 0 || int(first) >= k.fromWidth-1 {
				s.X.First[i] = int32(min(max(int(first), 0), k.fromWidth-1))
				s.X.Weights[2*i], s.X.Weights[2*i+1] = 1<<11, 0
			}
		}
	}
}

// sumAxis returns an axis whose results each cover the same whole number of samples, with weight 1
// for each sample.
func sumAxis(from, to int) *Axis {
	a := newAxis(from, to)
	n := from / to
	ones := make([]float32, n)
	for k := range ones {
		ones[k] = 1
	}
	for i := range to {
		a.addFloats(i*n, ones...)
	}
	return a
}

// meanAxis returns an axis whose results cover intervals, called cells, that may begin and end
// inside a sample. A fraction of a sample below 1/1000 is ignored, as in cv2.
func meanAxis(from, to int) *Axis {
	a := newAxis(from, to)
	scale := float64(from) / float64(to)
	for i := range to {
		begin := float64(float64(i) * scale) // the cell covers begin to end
		end := begin + scale
		width := min(scale, float64(from)-begin)
		hi := min(int(math.Floor(end)), from-1)
		lo := min(int(math.Ceil(begin)), hi)
		first, row := lo, []float32(nil)
		if part := float64(lo) - begin; part > 1e-3 {
			first, row = lo-1, append(row, float32(part/width))
		}
		for range hi - lo {
			row = append(row, float32(1/width))
		}
		if part := end - float64(hi); part > 1e-3 {
			row = append(row, float32(min(part, 1, width)/width))
		}
		a.addFloats(first, row...)
	}
	return a
}

// cv2Linear returns the two samples and weights of each output. With isArea, it uses cv2's rule for
// enlarging under INTER_AREA: an output lies on one sample, except where it crosses the border
// between two.
func cv2Linear(from, to int, isArea bool) *Axis {
	a := newAxis(from, to)
	a.Shift = 11
	inverse := float64(to) / float64(from)
	scale := 1 / inverse
	for i := range to {
		first, part := 0, float32(0) // left sample, and weight of the right one
		if isArea {
			first = int(math.Floor(float64(float64(i) * scale)))
			part = float32(float64(i+1) - float64(float64(first+1)*inverse))
			if part <= 0 {
				part = 0
			} else {
				part -= float32(math.Floor(float64(part)))
			}
		} else {
			part = float32(float64((float64(i)+0.5)*scale) - 0.5)
			first = int(math.Floor(float64(part)))
			part -= float32(first)
		}
		low := int32(math.RoundToEven(float64(float32(1-part) * (1 << 11))))
		a.addInts(first, low, int32(math.RoundToEven(float64(part*(1<<11)))))
	}
	return a
}
