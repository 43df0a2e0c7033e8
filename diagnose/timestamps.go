package diagnose

import (
	"math"
	"time"

	"github.com/goatnote-inc/robocache"
)

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// checkTimestamps checks one clock of an episode (diagnose.D2). f is the first stream on it.
func (x *examination) checkTimestamps(e int, f *robocache.Feature, times []int64) {
	where := robocache.Where{"episode": x.ds.Info().EpisodeIndex(e), "stream": f.Key}
	if f.Clock != "" {
		where["clock"] = f.Clock
	}
	if len(times) == 0 {
		x.addFinding(
			robocache.SeverityInfo,
			"empty-stream",
			where,
			0,
			"",
			"no rows in this episode",
		)
		return
	}
	step, longest := robocache.Period(times), robocache.LongestStep(times)
	var repeated, gaps int64
	var widest, at int64
	var sum float64
	var steady int
	for i := 1; i < len(times); i++ {
		d := times[i] - times[i-1]
		switch {
		case d < 0:
			where["index"] = i
			x.addFinding(
				robocache.SeverityError,
				"timestamps-go-back",
				where,
				0,
				"",
				"timestamp %d is %.6f s before the previous one",
				i,
				seconds(-d),
			)
			return
		case d == 0:
			repeated++
		case longest > 0 && d > longest:
			gaps++
			if d > widest {
				widest, at = d, times[i-1]
			}
		default:
			sum += float64(d-step) * float64(d-step)
			steady++
		}
	}
	if repeated > 0 && !f.Latched {
		x.addFinding(
			robocache.SeverityWarning,
			"repeated-timestamps",
			where,
			repeated,
			"the last of equal timestamps is the sample of that time",
			"%d of %d timestamps repeat the one before",
			repeated,
			len(times),
		)
	}
	if gaps > 0 && !f.Latched {
		maxGap := time.Duration(3 * step).Round(time.Millisecond).String()
		x.addFinding(
			robocache.SeverityWarning,
			"gap",
			where,
			gaps,
			robocache.Option("align", "max_gap", maxGap)+" masks what lies in gaps",
			"%d gaps; the widest begins %.3f s after the first timestamp and lasts %.3f s (%.1f "+
				"periods of %.2f ms)",
			gaps,
			seconds(at-times[0]),
			seconds(widest),
			float64(widest)/float64(step),
			float64(step)/1e6,
		)
	}
	if steady > 2 {
		if jitter := math.Sqrt(sum / float64(steady)); jitter > 0.25*float64(step) {
			x.addFinding(
				robocache.SeverityInfo,
				"jitter",
				where,
				0,
				"",
				"steps vary by %.2f ms (standard deviation) about %.2f ms",
				jitter/1e6,
				float64(step)/1e6,
			)
		}
	}
}

// checkEnds reports streams that start late or end early compared with the others (diagnose.D2).
func (x *examination) checkEnds(e int, lines []streamTimes) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, l := range lines {
		if n := len(l.times); n > 0 && !l.feature.Latched {
			first, last = min(first, l.times[0]), max(last, l.times[n-1])
		}
	}
	seen := map[string]bool{}
	for _, l := range lines {
		n := len(l.times)
		step := robocache.Period(l.times)
		if n == 0 || step == 0 || l.feature.Latched || seen[l.feature.Clock] {
			continue
		}
		seen[l.feature.Clock] = true
		where := robocache.Where{"episode": x.ds.Info().EpisodeIndex(e), "stream": l.feature.Key}
		slack := max(3*step, 50_000_000)
		if late := l.times[0] - first; late > slack {
			x.addFinding(robocache.SeverityWarning, "late-start", where, 0,
				robocache.Option("align", "extent", "intersection")+" begins there; "+
					robocache.Option("align", "edge", "mask")+" masks what is before",
				"begins %.3f s after the first stream", seconds(late))
		}
		if early := last - l.times[n-1]; early > slack {
			x.addFinding(robocache.SeverityWarning, "early-end", where, 0,
				robocache.Option("align", "extent", "intersection")+" ends there; "+
					robocache.Option("align", "edge", "mask")+" masks what is after",
				"ends %.3f s before the last stream", seconds(early))
		}
	}
}
