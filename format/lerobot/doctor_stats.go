package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// statistics recounts every numeric feature, exactly, and compares with what the dataset says of itself.
func (doc *doctor) statistics(ctx context.Context) {
	d := doc.d
	said, err := d.Stats(ctx)
	if doc.unreadable(ctx, err, robocache.Where{"part": "statistics"}); said == nil && err == nil {
		doc.found(robocache.SeverityInfo, "no-stats", robocache.Where{"file": "meta/stats.json"}, "'robocache stats --write' writes them", "the dataset brings no statistics")
	}
	var episodes []int // that can be read
	for e := range d.eps.n() {
		if doc.wants(e) && !doc.bad[e] {
			episodes = append(episodes, e)
		}
	}
	for i := range d.info.Features {
		f := &d.info.Features[i]
		if f.Kind != robocache.KindNumeric || d.cols[i].src != fromColumn || f.DType == robocache.Bool || doc.failed != nil {
			continue
		}
		have, left, err := stats.Rows(ctx, d, f, episodes, 256<<20)
		if err != nil {
			doc.unreadable(ctx, err, robocache.Where{"stream": f.Key})
			continue
		}
		if left > 0 {
			doc.add("not-finite\x00"+f.Key, robocache.Finding{Severity: robocache.SeverityError, Code: "not-finite", Where: robocache.Where{"stream": f.Key}, Count: left, Message: "values that are NaN or infinite", Hint: "fix or drop the rows"})
		}
		if s := said[f.Key]; s != nil && have != nil && doc.chosen == nil && len(doc.bad) == 0 {
			doc.compare(f, s, have)
		}
		doc.progress(d.info.Frames / int64(len(d.info.Features)))
	}
}

// compare allows what float32 arithmetic and a histogram of 5,000 bins cost, and no more.
func (doc *doctor) compare(f *robocache.Feature, said, have *robocache.FeatureStats) {
	const hint = "'robocache stats --write' writes exact ones"
	where := robocache.Where{"file": "meta/stats", "stream": f.Key}
	if said.Count > 0 && said.Count != have.Count {
		doc.found(robocache.SeverityWarning, "stats-count", where, hint, "statistics of %d rows, there are %d", said.Count, have.Count)
	}
	for _, name := range []string{"min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"} {
		a, b := stats.Vector(said, name), stats.Vector(have, name)
		if a == nil || b == nil {
			continue
		}
		if len(a) != len(b) {
			doc.found(robocache.SeverityWarning, "stats-shape", where, hint, "%s has %d numbers, expected %d", name, len(a), len(b))
			continue
		}
		for c := range a {
			scale := math.Max(math.Abs(have.Min[c]), math.Abs(have.Max[c]))
			width := have.Max[c] - have.Min[c]
			allowed := 1e-5 * scale
			switch name {
			case "std":
				allowed = 0.01*have.Std[c] + 1e-6*scale
			case "q01", "q10", "q50", "q90", "q99":
				allowed = 0.01*width + 1e-5*scale
			}
			if diff := math.Abs(a[c] - b[c]); diff > allowed || math.IsNaN(diff) {
				w := robocache.Where{"file": "meta/stats", "stream": f.Key, "index": c}
				doc.found(robocache.SeverityWarning, "stats-wrong", w, hint, "%s is said to be %.6g, a recount gives %.6g", name, a[c], b[c])
			}
		}
	}
}
