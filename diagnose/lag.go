package diagnose

import (
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
)

// lag is the delay of one motion relative to another, in seconds: offset + drift·t. t is the time
// in seconds since the start of the grid, on the clock of the first motion.
type lag struct{ offset, drift float64 }

func (l lag) atTime(t float64) float64 { return l.offset + l.drift*t }

// comparePair measures the offset and drift of stream b relative to a. alike reports whether the
// two move alike, and said whether a finding was added. first is the start of the grid.
func (x *examination) comparePair(e int, a, b []motion, first int64) (alike, said bool) {
	p, q, best := bestPair(a, b)
	if p == nil {
		return false, false
	}
	found, r := refineLag(p, q, lag{offset: best.lag}, first)
	line, drifts := fitDrift(p, q, found, first)
	if !drifts {
		line = found
	}
	middle := line.atTime(float64(len(p.values)) / motionRate / 2)
	where := robocache.Where{
		"episode": x.ds.Info().EpisodeIndex(e),
		"stream":  q.feature.Key,
		"beside":  p.feature.Key,
	}
	hint := x.alignHint(q, line, first) + " corrects it, if this stream is the wrong one"
	// The lag cannot be measured better than half the longer period. It is less certain if the
	// correlation is lower, or if the motion is a single jump (a gripper that opens or closes),
	// which may lie anywhere between two samples of either stream.
	blind := float64(max(p.period, q.period))/2e9*(1+math.Sqrt(p.largestJump()*q.largestJump())) +
		0.1*(1-r)
	if math.Abs(middle) > max(blind, 0.002) {
		x.addFinding(
			robocache.SeverityWarning,
			"stream-offset",
			where,
			0,
			hint,
			"moves %.1f ms after %s (correlation %.2f of its %s with the %s there)",
			middle*1e3,
			p.feature.Key,
			r,
			q.kind,
			p.kind,
		)
		said = true
	}
	if drifts {
		span := float64(len(p.values)) / motionRate
		x.addFinding(
			robocache.SeverityWarning,
			"stream-drift",
			where,
			0,
			hint,
			"drifts by %.0f ppm against %s (%.1f ms over %.1f s)",
			line.drift*1e6,
			p.feature.Key,
			line.drift*span*1e3,
			span,
		)
		said = true
	}
	return true, said
}

// largestJump returns the largest change between two samples, as a fraction of the motion's range.
func (m *motion) largestJump() float64 {
	lo := math.Inf(1)
	hi := math.Inf(-1)
	most := 0.0
	for i, v := range m.samples {
		lo = min(lo, v)
		hi = max(hi, v)
		if i > 0 {
			most = max(most, math.Abs(v-m.samples[i-1]))
		}
	}
	if !(hi > lo) {
		return 0
	}
	return most / (hi - lo)
}

// bestPair returns the two motions of two streams that correlate best. It returns nil if none
// correlate clearly, or if several pairs give different lags.
func bestPair(a, b []motion) (p, q *motion, best peak) {
	var all []peak
	for i := range a {
		for j := range b {
			k := correlate(&a[i], &b[j], 0, len(a[i].values))
			if !k.clear {
				continue
			}
			all = append(all, k)
			if k.correlation > best.correlation {
				best = k
				p = &a[i]
				q = &b[j]
			}
		}
	}
	for _, k := range all {
		// A periodic motion and its own rate of change correlate a quarter of a period apart. Then
		// the lag is ambiguous.
		if k.correlation > best.correlation-0.03 && math.Abs(k.lag-best.lag) > 0.02 {
			return nil, nil, best
		}
	}
	return p, q, best
}

// shifted returns the motion with a lag subtracted from its timestamps.
func (m *motion) shifted(l lag, first int64) *motion {
	out := *m
	out.prefix = nil
	at := make([]int64, len(m.times))
	for i, s := range m.times {
		at[i] = first + int64(math.Round((float64(s-first)-l.offset*1e9)/(1+l.drift)))
	}
	out.values, out.valid = interpolateToGrid(at, m.samples, first, len(m.values), 3*m.period)
	return &out
}

// refineLag measures a constant lag again after the known part is subtracted. The peak then lies on
// a grid point, where the estimate is least biased.
func refineLag(p, q *motion, l lag, first int64) (lag, float64) {
	r := 0.0
	for range 2 {
		k := correlate(p, q.shifted(l, first), 0, len(p.values))
		if !k.clear {
			break
		}
		l.offset += k.lag
		r = k.correlation
	}
	return l, r
}

// fitDrift fits a line through the lags of pieces, and repeats this after subtracting the line. It
// also reports whether the drift is significant.
func fitDrift(p, q *motion, l lag, first int64) (lag, bool) {
	const pieces = 8
	n := len(p.values)
	if n < pieces*2*motionRate {
		return l, false
	}
	var rest float64
	for range 3 {
		bent := q.shifted(l, first)
		var at, lags []float64
		var mean, middle float64
		for k := range pieces {
			piece := correlate(p, bent, k*n/pieces, (k+1)*n/pieces)
			if piece.clear {
				center := (float64(k) + 0.5) * float64(n) / pieces / motionRate // seconds
				at = append(at, center)
				lags = append(lags, piece.lag)
			}
		}
		if len(at) < 5 {
			return l, false
		}
		for i := range at {
			mean += lags[i] / float64(len(at))
			middle += at[i] / float64(len(at))
		}
		var slope float64
		slope, rest = fitLine(at, lags)
		l.offset += mean - slope*middle
		l.drift += slope
	}
	moved := math.Abs(l.drift) * float64(n) / motionRate
	return l, moved > 0.003 && moved > 5*rest
}

// alignHint returns the align= option that corrects the streams on a motion's clock, as JSON that
// Python accepts too.
func (x *examination) alignHint(q *motion, l lag, first int64) string {
	// start is the first timestamp of the stream on the other clock: align counts drift from there.
	start := (float64(q.start-first)/1e9 - l.offset) / (1 + l.drift)
	return x.correction(q.feature, -l.atTime(start), l.drift)
}

// correction returns the option align for all streams on the clock of f. offset is in seconds and
// is added to their timestamps; drift is in s/s and is removed.
func (x *examination) correction(f *robocache.Feature, offset, drift float64) string {
	type number = json.Number
	c := struct {
		Offset map[string]any    `json:"offset,omitempty"`
		Drift  map[string]number `json:"drift,omitempty"`
	}{map[string]any{}, map[string]number{}}
	info := x.ds.Info()
	for i := range info.Features {
		if g := &info.Features[i]; g.Key == f.Key || g.Clock == f.Clock && !g.Default {
			if offset != 0 {
				c.Offset[g.Key] = offsetText(offset)
			}
			if drift != 0 {
				c.Drift[g.Key] = number(formatFixed(drift*1e6, 1))
			}
		}
	}
	return robocache.Option("align", c)
}

// offsetText returns an offset in seconds, rounded to microseconds. It has a unit if it is longer
// than a day, as robocache.ParseDuration requires.
func offsetText(seconds float64) any {
	text := formatFixed(seconds, 6)
	if math.Abs(seconds) < 86_400 {
		return json.Number(text)
	}
	return text + "s"
}

// peak is the best lag of one motion relative to another in seconds; positive if the second is
// later.
type peak struct {
	lag, correlation float64
	clear            bool
}

// correlate finds the lag at which the grid points [from, to) of a fit b best.
func correlate(a, b *motion, from, to int) peak {
	most := int(motionLag * motionRate)
	r := make([]float64, 2*most+1)
	p := a.runningSums()
	q := b.runningSums()
	for k := -most; k <= most; k++ {
		lo := max(from, -k)
		hi := min(to, len(b.values)-k)
		var s pairSums
		if p.isContiguous && q.isContiguous {
			s = p.sumsBetween(q, a, b, max(lo, p.from, q.from-k), min(hi, p.to, q.to-k), k)
		} else {
			s = sumPoints(a, b, lo, hi, k)
		}
		variances := (s.aa - s.a*s.a/s.n) * (s.bb - s.b*s.b/s.n)
		hasPoints := s.n > float64(to-from)/2 && s.n >= 100
		if hasPoints && variances > 0 {
			r[k+most] = (s.ab - s.a*s.b/s.n) / math.Sqrt(variances)
		}
	}
	top := 0
	for k := range r {
		if math.Abs(r[k]) > math.Abs(r[top]) {
			top = k
		}
	}
	if r[top] < 0 { // the axes point in opposite directions
		for k := range r {
			r[k] = -r[k]
		}
	}
	if r[top] < clearPeak || top == 0 || top == len(r)-1 {
		return peak{}
	}
	// Walk down both sides of the peak. A high value outside is another peak.
	lo, hi := top, top
	for lo > 0 && r[lo-1] <= r[lo] {
		lo--
	}
	for hi < len(r)-1 && r[hi+1] <= r[hi] {
		hi++
	}
	for k := range r {
		if (k < lo || k > hi) && math.Abs(r[k]) > 0.9*r[top] {
			return peak{}
		}
	}
	// The position of a flat peak is unknown.
	if min(r[lo], r[hi]) > r[top]-0.05 {
		return peak{}
	}
	shift := 0.0
	if c := r[top-1] - 2*r[top] + r[top+1]; c < 0 {
		shift = 0.5 * (r[top-1] - r[top+1]) / c
	}
	return peak{lag: (float64(top-most) + shift) / motionRate, correlation: r[top], clear: true}
}
