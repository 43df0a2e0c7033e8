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
	c := countSteps(times)
	if c.backward > 0 {
		i := c.backward
		where["index"] = i
		x.addFinding(
			robocache.SeverityError,
			"timestamps-go-back",
			where,
			0,
			"",
			"timestamp %d is %.6f s before the previous one",
			i,
			seconds(times[i-1]-times[i]),
		)
		return
	}
	if c.repeated > 0 && !f.Latched {
		x.addFinding(
			robocache.SeverityWarning,
			"repeated-timestamps",
			where,
			c.repeated,
			"the last of equal timestamps is the sample of that time",
			"%d of %d timestamps repeat the one before",
			c.repeated,
			len(times),
		)
	}
	period := float64(c.period)
	if c.gaps > 0 && !f.Latched {
		maxGap := time.Duration(3 * c.period).Round(time.Millisecond).String()
		x.addFinding(
			robocache.SeverityWarning,
			"gap",
			where,
			c.gaps,
			robocache.Option("align", "max_gap", maxGap)+" masks what lies in gaps",
			"%d gaps; the widest begins %.3f s after the first timestamp and lasts %.3f s (%.1f "+
				"periods of %.2f ms)",
			c.gaps,
			seconds(c.widestAt-times[0]),
			seconds(c.widest),
			float64(c.widest)/period,
			period/1e6,
		)
	}
	if c.jitter > 0.25*period {
		x.addFinding(
			robocache.SeverityInfo,
			"jitter",
			where,
			0,
			"",
			"steps vary by %.2f ms (standard deviation) about %.2f ms",
			c.jitter/1e6,
			period/1e6,
		)
	}
}

// stepCounts describes the steps between the timestamps of a clock.
type stepCounts struct {
	period   int64
	backward int // index of the first timestamp that is before the previous one, or 0
	repeated int64
	gaps     int64
	widest   int64   // the widest gap
	widestAt int64   // timestamp before it
	jitter   float64 // standard deviation of the other steps; 0 if there are too few
}

// countSteps counts the steps of a clock, up to a step back.
func countSteps(times []int64) (c stepCounts) {
	c.period = robocache.Period(times)
	longest := robocache.LongestStep(times)
	var squares float64
	steady := 0
	for i := 1; i < len(times); i++ {
		step := times[i] - times[i-1]
		switch {
		case step < 0:
			c.backward = i
			return c
		case step == 0:
			c.repeated++
		case longest > 0 && step > longest:
			c.gaps++
			if step > c.widest {
				c.widest = step
				c.widestAt = times[i-1]
			}
		default:
			squares += float64(step-c.period) * float64(step-c.period)
			steady++
		}
	}
	if steady > 2 {
		c.jitter = math.Sqrt(squares / float64(steady))
	}
	return c
}

// checkEnds reports streams that start late or end early compared with the others (diagnose.D2).
func (x *examination) checkEnds(e int, lines []streamTimes) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, l := range lines {
		if n := len(l.times); n > 0 && !l.feature.Latched {
			first = min(first, l.times[0])
			last = max(last, l.times[n-1])
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
