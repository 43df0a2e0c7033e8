package quality

import (
	"math"
	"math/bits"
	"slices"
)

// sparcMetric is the spectral arc length of the speed profile: the negative length of the curve of
// its normalised amplitude spectrum, up to 10 Hz and to the last frequency with an amplitude of
// 0.05. It is lower for less smooth motion. Known failure: it falls with the number of pauses.
var sparcMetric = metric{
	Metric: Metric{
		Name: "sparc", Group: GroupMotion, Worse: -1,
		Summary: "The spectral arc length of the speed: lower is less smooth.",
		Source:  "Balasubramanian et al., J. NeuroEngineering and Rehabilitation 12:112, 2015",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		return spectralArcLength(x.speed, 1/x.motion.period)
	},
}

const (
	sparcCutoff    = 10.0 // Hz
	sparcAmplitude = 0.05
	sparcPadding   = 2 // levels of zero padding: 4 times the length
	sparcRows      = 1 << 16
)

// spectralArcLength returns the SPARC of a speed profile at a rate in Hz. Profiles above sparcRows
// rows are averaged in groups first.
func spectralArcLength(speed []float64, rate float64) float64 {
	for len(speed) > sparcRows {
		half := make([]float64, len(speed)/2)
		for i := range half {
			half[i] = (speed[2*i] + speed[2*i+1]) / 2
		}
		speed, rate = half, rate/2
	}
	n := 1 << (bits.Len(uint(len(speed)-1)) + sparcPadding)
	limit := min(n/2, int(sparcCutoff/rate*float64(n)))
	amplitude := amplitudeSpectrum(speed, n, limit)
	peak := slices.Max(amplitude)
	if peak == 0 || limit == 0 {
		return math.NaN()
	}
	first, last := -1, 0
	for k, a := range amplitude {
		if a >= sparcAmplitude*peak {
			if first < 0 {
				first = k
			}
			last = k
		}
	}
	if last == first {
		return math.NaN()
	}
	length := 0.0
	step := 1 / float64(last-first)
	for k := first + 1; k <= last; k++ {
		length -= math.Hypot(step, (amplitude[k]-amplitude[k-1])/peak)
	}
	return length
}

// amplitudeSpectrum returns the amplitudes of frequencies 0 to limit of v, padded with zeros to n
// values, a power of two. It transforms n/2 complex numbers: even values are real parts, and odd
// values imaginary ones.
func amplitudeSpectrum(v []float64, n, limit int) []float64 {
	half := make([]complex128, n/2)
	for i := 0; i < len(v); i += 2 {
		odd := 0.0
		if i+1 < len(v) {
			odd = v[i+1]
		}
		half[i/2] = complex(v[i], odd)
	}
	transformFourier(half)
	amplitude := make([]float64, limit+1)
	sin, cos := math.Sincos(-2 * math.Pi / float64(n))
	turn, w := complex(cos, sin), complex(1, 0)
	for k := range amplitude {
		a, b := half[k%len(half)], half[(len(half)-k)%len(half)]
		b = complex(real(b), -imag(b))
		even, odd := (a+b)/2, (a-b)/complex(0, 2)
		x := even + w*odd
		amplitude[k] = math.Sqrt(real(x)*real(x) + imag(x)*imag(x))
		w *= turn
	}
	return amplitude
}

// transformFourier computes the discrete Fourier transform in place. The length must be a power of
// two.
func transformFourier(x []complex128) {
	n := len(x)
	shift := bits.UintSize - bits.Len(uint(n-1))
	for i := range x {
		if j := int(bits.Reverse(uint(i)) >> shift); i < j && n > 1 {
			x[i], x[j] = x[j], x[i]
		}
	}
	for size := 2; size <= n; size *= 2 {
		half := size / 2
		sin, cos := math.Sincos(-2 * math.Pi / float64(size))
		turn, w := complex(cos, sin), complex(1, 0)
		for k := range half {
			for i := k; i < n; i += size {
				even, odd := x[i], x[i+half]*w
				x[i], x[i+half] = even+odd, even-odd
			}
			w *= turn
		}
	}
}
