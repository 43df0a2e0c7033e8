package loader

import "github.com/goatnote-inc/robocache/align"

// share lets columns of one clock, one rule and one window be made by one plan (A1).
func (l *layout) share() {
	for i := range l.columns {
		c := &l.columns[i]
		if !c.shares() {
			continue
		}
		for k := range i {
			d := &l.columns[k]
			if d.leader == k && d.shares() && d.feature.Clock == c.feature.Clock && d.rows == c.rows && d.steps == c.steps && d.aligns.offset == c.aligns.offset &&
				d.aligns.by == c.aligns.by && d.aligns.clock == c.aligns.clock && sameRule(d.aligns.opt, c.aligns.opt) {
				c.leader = k
				d.shared = append(d.shared, i)
				break
			}
		}
	}
}

// shares says whether the column's plan may be another's too: it depends on time alone, and its clock has a name.
func (c *column) shares() bool {
	return c.timed && c.source == fromTable && !c.spans && !c.when && c.feature.Clock != "" && !c.feature.Masked
}

func sameRule(a, b align.Options) bool {
	a.Stream, b.Stream = "", ""
	return a == b
}
