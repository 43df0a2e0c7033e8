package diagnose

import (
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
)

// lag is how much later one motion is than another, in seconds: at + drift·t, t seconds of the
// first motion's clock after the grid's start.
type lag struct{ at, drift float64 }

func (l lag) of(t float64) float64 { return l.at + l.drift*t }

// pair looks for the offset and drift of one stream against another: whether the two move alike,
// and whether there is a finding. first is where the grid begins.
func (x *examination) pair(e int, a, b []motion, first int64) (alike, said bool) {
	p, q, best := likest(a, b)
	if p == nil {
		return false, false
	}
	found, r := settle(p, q, lag{at: best.lag}, first)
	line, drifts := drift(p, q, found, first)
	if !drifts {
		line = found
	}
	middle := line.of(float64(len(p.v)) / motionRate / 2)
	where := robocache.Where{
		"episode": x.ds.Info().EpisodeIndex(e),
		"stream":  q.f.Key,
		"beside":  p.f.Key,
	}
	hint := x.hint(q, line, first) + " takes it back, if this stream is the one that is wrong"
	// Half the coarser period is what such streams cannot tell; a weaker likeness tells less, and
	// so does a motion that is one jump (a gripper that is open or shut): it fell anywhere between
	// two samples, of either stream.
	blind := float64(max(p.step, q.step))/2e9*(1+math.Sqrt(p.jump()*q.jump())) + 0.1*(1-r)
	if math.Abs(middle) > max(blind, 0.002) {
		x.add(
			robocache.SeverityWarning,
			"stream-offset",
			where,
			0,
			hint,
			"moves %.1f ms after %s (correlation %.2f of its %s with the %s there)",
			middle*1e3,
			p.f.Key,
			r,
			q.kind,
			p.kind,
		)
		said = true
	}
	if drifts {
		span := float64(len(p.v)) / motionRate
		x.add(
			robocache.SeverityWarning,
			"stream-drift",
			where,
			0,
			hint,
			"drifts by %.0f ppm against %s (%.1f ms over %.1f s)",
			line.drift*1e6,
			p.f.Key,
			line.drift*span*1e3,
			span,
		)
		said = true
	}
	return true, said
}

// jump is the part of a motion's range that it covers between two samples, at most.
func (m *motion) jump() float64 {
	lo, hi, most := math.Inf(1), math.Inf(-1), 0.0
	for i, v := range m.raw {
		lo, hi = min(lo, v), max(hi, v)
		if i > 0 {
			most = max(most, math.Abs(v-m.raw[i-1]))
		}
	}
	if !(hi > lo) {
		return 0
	}
	return most / (hi - lo)
}

// likest finds the two motions of two streams that are most alike; none where none are, or where
// several say different lags.
func likest(a, b []motion) (p, q *motion, best peak) {
	var all []peak
	for i := range a {
		for j := range b {
			k := correlate(&a[i], &b[j], 0, len(a[i].v))
			if !k.clear {
				continue
			}
			all = append(all, k)
			if k.r > best.r {
				best, p, q = k, &a[i], &b[j]
			}
		}
	}
	for _, k := range all {
		// A swing and its own rate of change look alike a quarter of a period apart: then nothing
		// can be said.
		if k.r > best.r-0.03 && math.Abs(k.lag-best.lag) > 0.02 {
			return nil, nil, best
		}
	}
	return p, q, best
}

// taken is a motion with a lag taken off its timestamps.
func (m *motion) taken(l lag, first int64) *motion {
	out := *m
	out.sums = nil
	at := make([]int64, len(m.at))
	for i, s := range m.at {
		at[i] = first + int64(math.Round((float64(s-first)-l.at*1e9)/(1+l.drift)))
	}
	out.v, out.valid = onGrid(at, m.raw, first, len(m.v), 3*m.step)
	return &out
}

// settle measures a constant lag again, with what is known of it taken off: the peak then lies on a
// grid point, where it is least biased.
func settle(p, q *motion, l lag, first int64) (lag, float64) {
	r := 0.0
	for range 2 {
		k := correlate(p, q.taken(l, first), 0, len(p.v))
		if !k.clear {
			break
		}
		l.at, r = l.at+k.lag, k.r
	}
	return l, r
}

// drift fits a line through the lags of pieces, and again with that line taken off; it says whether
// it is one.
func drift(p, q *motion, l lag, first int64) (lag, bool) {
	const pieces = 8
	n := len(p.v)
	if n < pieces*2*motionRate {
		return l, false
	}
	var rest float64
	for range 3 {
		bent := q.taken(l, first)
		var at, lags []float64
		var mean, middle float64
		for k := range pieces {
			if piece := correlate(p, bent, k*n/pieces, (k+1)*n/pieces); piece.clear {
				at, lags = append(
					at,
					(float64(k)+0.5)*float64(n)/pieces/motionRate,
				), append(
					lags,
					piece.lag,
				)
			}
		}
		if len(at) < 5 {
			return l, false
		}
		for i := range at {
			mean, middle = mean+lags[i]/float64(len(at)), middle+at[i]/float64(len(at))
		}
		var slope float64
		slope, rest = fit(at, lags)
		l.at, l.drift = l.at+mean-slope*middle, l.drift+slope
	}
	moved := math.Abs(l.drift) * float64(n) / motionRate
	return l, moved > 0.003 && moved > 5*rest
}

// hint is what align= takes to bring the streams of a motion's clock back, as JSON that Python
// reads too.
func (x *examination) hint(q *motion, l lag, first int64) string {
	// Where the stream's first timestamp lies on the other clock: align counts drift from there.
	start := (float64(q.first-first)/1e9 - l.at) / (1 + l.drift)
	return x.correction(q.f, -l.of(start), l.drift)
}

// correction returns the option align for all streams on the clock of f: seconds are added to their
// timestamps, and a drift (s/s) is taken off.
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
				c.Drift[g.Key] = number(fixed(drift*1e6, 1))
			}
		}
	}
	return robocache.Option("align", c)
}

// offsetText writes an offset to the microsecond: in seconds, with the unit if it is longer than a
// day (robocache.ParseDuration).
func offsetText(seconds float64) any {
	text := fixed(seconds, 6)
	if math.Abs(seconds) < 86_400 {
		return json.Number(text)
	}
	return text + "s"
}

// peak is the best lag of one motion against another: s, positive where the second is later.
type peak struct {
	lag, r float64
	clear  bool
}

// correlate finds the lag at which grid points from … to-1 of a fit b best.
func correlate(a, b *motion, from, to int) peak {
	most := int(motionLag * motionRate)
	r := make([]float64, 2*most+1)
	p, q := a.running(), b.running()
	for k := -most; k <= most; k++ {
		lo, hi := max(from, -k), min(to, len(b.v)-k)
		var s sums
		if p.whole && q.whole {
			s = p.between(q, a, b, max(lo, p.from, q.from-k), min(hi, p.to, q.to-k), k)
		} else {
			s = holed(a, b, lo, hi, k)
		}
		if d := (s.aa - s.a*s.a/s.n) * (s.bb - s.b*s.b/s.n); s.n > float64(to-from)/2 &&
			s.n >= 100 &&
			d > 0 {
			r[k+most] = (s.ab - s.a*s.b/s.n) / math.Sqrt(d)
		}
	}
	top := 0
	for k := range r {
		if math.Abs(r[k]) > math.Abs(r[top]) {
			top = k
		}
	}
	if r[top] < 0 { // an axis that points the other way
		for k := range r {
			r[k] = -r[k]
		}
	}
	if r[top] < clearPeak || top == 0 || top == len(r)-1 {
		return peak{}
	}
	// Down the sides of the peak; what is higher beyond is another one.
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
	// A flat top says nothing about where it is.
	if min(r[lo], r[hi]) > r[top]-0.05 {
		return peak{}
	}
	shift := 0.0
	if c := r[top-1] - 2*r[top] + r[top+1]; c < 0 {
		shift = 0.5 * (r[top-1] - r[top+1]) / c
	}
	return peak{lag: (float64(top-most) + shift) / motionRate, r: r[top], clear: true}
}
