package defects

import "math"

// restSeconds returns the time in which no joint and no gripper moves.
func (e *episode) restSeconds() float64 {
	n := 0
	for i := 1; i < len(e.truth); i++ {
		if e.truth[i] == e.truth[i-1] {
			n++
		}
	}
	return float64(n) / rowsHz
}

// rmsJerk returns the RMS of the third difference of the joints, in rad/s³.
func (e *episode) rmsJerk() float64 {
	sum, n := 0.0, 0.0
	for i := 3; i < len(e.state); i++ {
		for j := range joints {
			d := e.state[i][j] - 3*e.state[i-1][j] + 3*e.state[i-2][j] - e.state[i-3][j]
			sum += d * d
			n++
		}
	}
	return math.Sqrt(sum/n) * rowsHz * rowsHz * rowsHz
}

// stateNoise returns the RMS difference of the state to the truth.
func (e *episode) stateNoise() float64 {
	sum, n := 0.0, 0.0
	for i := range e.state {
		for j := range joints {
			d := e.state[i][j] - e.truth[i][j]
			sum += d * d
			n++
		}
	}
	return math.Sqrt(sum / n)
}

// largestStep returns the largest step of a joint from row to row, in radians.
func (e *episode) largestStep() float64 {
	most := 0.0
	for i := 1; i < len(e.state); i++ {
		for j := range joints {
			most = max(most, math.Abs(e.state[i][j]-e.state[i-1][j]))
		}
	}
	return most
}

// sharpness returns the mean variance of the Laplacian of 4 images of a camera.
func (e *episode) sharpness(camera int) float64 {
	pix, total := make([]byte, side*side*3), 0.0
	for k := range 4 {
		e.render(camera, (2*k+1)*e.rows()/8, pix)
		sum, squares, n := 0.0, 0.0, 0.0
		for y := 1; y < side-1; y++ {
			for x := 1; x < side-1; x++ {
				at := 3*(y*side+x) + 1
				d := float64(pix[at-3]) + float64(pix[at+3]) + float64(pix[at-3*side]) +
					float64(pix[at+3*side]) - 4*float64(pix[at])
				sum, squares, n = sum+d, squares+d*d, n+1
			}
		}
		total += squares/n - sum*sum/n/n
	}
	return total / 4
}

// shake adds a tremor to the robot and its command, or white noise to its sensors.
func (e *episode) shake(amount float64, isTremor bool) {
	for j := range joints {
		phase := 2 * math.Pi * e.rng.Float64()
		for i := range e.state {
			v := amount * e.rng.NormFloat64()
			if isTremor {
				v = amount * math.Sin(2*math.Pi*6.3*float64(i)/rowsHz+phase)
				e.action[i][j] += v
				e.truth[i][j] += v
			}
			e.state[i][j] += v
		}
	}
}

// meanAndSpread returns the mean and the standard deviation.
func meanAndSpread(values []float64) (mean, spread float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		spread += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, math.Sqrt(spread)
}
