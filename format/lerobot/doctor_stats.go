package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// blockRows is how many rows are read at once for a recount.
const blockRows = 1 << 14

// statistics recounts every numeric feature, exactly, and compares with what the dataset says of itself.
func (doc *doctor) statistics(ctx context.Context) error {
	d := doc.d
	said, err := d.Stats(ctx)
	if err != nil {
		if err := doc.unreadable(ctx, err, robocache.Where{"part": "statistics"}); err != nil {
			return err
		}
	}
	if said == nil && err == nil {
		doc.found(robocache.SeverityInfo, "no-stats", robocache.Where{"file": "meta/stats.json"}, "'robocache stats --write' writes them", "the dataset brings no statistics")
	}
	for i := range d.info.Features {
		f := &d.info.Features[i]
		if f.Kind != robocache.KindNumeric || d.cols[i].src != fromColumn || f.DType == robocache.Bool {
			continue
		}
		have, left, err := stats.Numeric(ctx, f.DType, f.Shape, doc.blocks(f), 256<<20)
		if err != nil {
			if err := doc.unreadable(ctx, err, robocache.Where{"stream": f.Key}); err != nil {
				return err
			}
			continue
		}
		if left > 0 {
			doc.add("not-finite\x00"+f.Key, robocache.Finding{Severity: robocache.SeverityError, Code: "not-finite", Where: robocache.Where{"stream": f.Key}, Count: left, Message: "values that are NaN or infinite", Hint: "fix or drop the rows"})
		}
		if s := said[f.Key]; s != nil && have != nil && doc.chosen == nil && len(doc.bad) == 0 {
			doc.compare(f, s, have)
		}
		if n := len(d.info.Features); n > 0 {
			doc.progress(d.info.Frames / int64(n))
		}
	}
	return nil
}

// blocks reads a feature's rows, episode by episode, without those that cannot be read.
func (doc *doctor) blocks(f *robocache.Feature) stats.Blocks {
	return func(ctx context.Context, yield func([]byte) error) error {
		rows := make([]robocache.Row, 0, blockRows)
		buf := make([]byte, blockRows*f.RowBytes())
		flush := func() error {
			if len(rows) == 0 {
				return nil
			}
			b := buf[:len(rows)*f.RowBytes()]
			if err := doc.d.Gather(ctx, f.Key, rows, b); err != nil {
				return err
			}
			rows = rows[:0]
			return yield(b)
		}
		for e := range doc.d.eps.n() {
			if !doc.wants(e) || doc.bad[e] {
				continue
			}
			for k := range doc.d.Len(e) {
				if rows = append(rows, robocache.Row{Episode: e, Index: k}); len(rows) == blockRows {
					if err := flush(); err != nil {
						return err
					}
				}
			}
		}
		return flush()
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
