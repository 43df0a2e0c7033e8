package bag

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// chooseAnchor chooses the anchor: the topic and clock whose rows are the rows of the episode. It
// stores the name of that clock in Info.Clock. Without a suitable topic, anchor.topic is -1.
func (d *Dataset) chooseAnchor(ctx context.Context) {
	d.anchor.topic = -1
	d.anchor.clock = 0
	if want := d.opt.Anchor; want != "" {
		if !d.anchorAt(want) && !d.anchorAt(d.opt.Map.SourceKey(want)) {
			e := robocache.Misuse("open", nil, "anchor").
				Expected("a stream or a topic of the recordings", want)
			if len(d.topics) > 0 {
				e.Hint = "Pass the name of a stream or topic, for example " + d.topics[0].key
			}
			guard.Fail(e)
		}
	} else if d.restoredAnchor() {
		return
	} else {
		d.findAnchor(ctx)
	}
	if d.anchor.topic >= 0 {
		d.About.Clock = d.topics[d.anchor.topic].clocks[d.anchor.clock]
	}
}

// anchorAt makes the stream or topic with the given name the anchor. It reports whether there is
// one.
func (d *Dataset) anchorAt(name string) bool {
	for i, t := range d.topics {
		if name == t.name || name == t.key {
			d.anchor.topic = i
		}
	}
	if i, ok := d.byKey[name]; ok {
		d.anchor.topic, d.anchor.clock = d.streams[i].topic, d.streams[i].clock
	}
	return d.anchor.topic >= 0
}

// findAnchor chooses the first camera as the anchor. Without a camera, it chooses the topic with
// the best steadiness: fast, up to 60 Hz, and with an even period. Without such a topic, it chooses
// the first one that has fields and is not latched, or else the first one.
func (d *Dataset) findAnchor(ctx context.Context) {
	for i := range d.streams {
		s := &d.streams[i]
		k := d.About.Features[i].Kind
		isCamera := k == robocache.KindImage || k == robocache.KindVideo
		if t := d.topics[s.topic]; isCamera && !t.latched && !t.noImages {
			d.anchor.topic, d.anchor.clock = s.topic, s.clock
			return
		}
	}
	best := math.Inf(-1)
	for i, t := range d.topics {
		if t.latched || len(t.fields) == 0 || t.manyRows {
			continue
		}
		if k := t.fields[0].Feature.Kind; k == robocache.KindText || k == robocache.KindEvent {
			continue
		}
		if score := d.steadiness(ctx, t); score > best {
			best, d.anchor.topic = score, i
		}
	}
	if d.anchor.topic < 0 && len(d.topics) > 0 {
		isCandidate := func(t *topic) bool { return len(t.fields) > 0 && !t.latched }
		d.anchor.topic = max(0, slices.IndexFunc(d.topics, isCandidate))
		if len(d.topics[d.anchor.topic].clocks) == 0 {
			d.anchor.topic = -1
		}
	}
}

// steadiness returns the score of a topic as an anchor, by its first recording. The score is its
// rate up to the best rate of 60 Hz. Above, it falls with the rate, so that fast topics score low.
// It is reduced if the periods vary. Topics with fewer than three messages score below all others.
func (d *Dataset) steadiness(ctx context.Context, t *topic) float64 {
	rec := slices.IndexFunc(t.counts, func(n int64) bool { return n > 0 })
	if rec < 0 {
		return math.Inf(-1)
	}
	log := d.logTimes(ctx, rec, t)
	if len(log) < 3 {
		return -1e6 + float64(len(log))
	}
	gaps := make([]int64, len(log)-1)
	for i := range gaps {
		gaps[i] = log[i+1] - log[i]
	}
	slices.Sort(gaps)
	median := max(1, gaps[len(gaps)/2])
	rate := 1e9 / float64(median)
	p10, p90 := gaps[len(gaps)/10], gaps[len(gaps)*9/10]
	spread := float64(p90-p10) / float64(median)
	const best = 60    // Hz, the rate of fast cameras and control loops
	if rate > best+1 { // 1 is the tolerance of a rate that is measured
		rate = best * best / rate
	}
	return rate / (1 + spread)
}
