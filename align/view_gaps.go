package align

import (
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// gaps is what a view masks of a stream, over its episodes.
type gaps struct {
	least, most int64 // max_gap, ns; 0 = none
	count       int64 // steps that are longer
	within      int64 // rows without a value in them
	outside     int64 // rows without a value before the first sample or after the last
	rows        int64
}

// gapsOf looks at one episode.
func gapsOf(timestamps, times []int64, limit int64, p *kernel.Plan) gaps {
	g := gaps{least: limit, most: limit, rows: int64(len(times))}
	for i, t := range times {
		switch {
		case p.Valid[i] != 0:
		case len(timestamps) == 0 || t < timestamps[0] || t > timestamps[len(timestamps)-1]:
			g.outside++
		default:
			g.within++
		}
	}
	for i := 1; i < len(timestamps) && limit > 0; i++ {
		if timestamps[i]-timestamps[i-1] > limit {
			g.count++
		}
	}
	return g
}

func (g *gaps) add(of *gaps) {
	switch {
	case of.most == 0:
	case g.most == 0:
		g.least, g.most = of.least, of.most
	default:
		g.least, g.most = min(g.least, of.least), max(g.most, of.most)
	}
	g.count, g.within, g.outside, g.rows = g.count+of.count, g.within+of.within, g.outside+of.outside, g.rows+of.rows
}

// byRhythm says that a stream's own rhythm is its max_gap.
func (v *Viewed) byRhythm(s *source) bool {
	kind := s.feature.Kind
	return v.opt.Rhythm && !s.opt.Hold && kind != robocache.KindText && kind != robocache.KindEvent && !v.cfg.MaxGap.Says(s.feature.Key)
}

// findGaps says what counts as a gap where nobody said it, and of each stream how many rows hold no value.
func (v *Viewed) findGaps() {
	probe := aligner{ds: v.src, cfg: v.cfg}
	var rule []string
	for i := range v.kept {
		if s, _ := probe.choose(v.kept[i]); v.byRhythm(&s) && v.gaps[i].most > 0 {
			rule = append(rule, v.kept[i].Key+" "+v.gaps[i].limit())
		}
	}
	// What is masked is told, and no fault: recordings with a gap somewhere are the rule.
	add := func(code string, where robocache.Where, count int64, message, hint string) {
		v.info.Findings = append(v.info.Findings, robocache.Finding{Severity: robocache.SeverityInfo, Code: code, Where: where, Message: message, Hint: hint, Count: count})
	}
	if rule != nil {
		add("max-gap", nil, int64(len(rule)), "a longer step than three periods of a stream (of its median step; 2 ms at least) counts as a gap: "+strings.Join(rule, ", "), `"max_gap" of --align says another length, 0 none`)
	}
	for i := range v.kept {
		g, key := &v.gaps[i], v.kept[i].Key
		where := robocache.Where{"stream": key}
		done := "they are masked in " + key + ValidSuffix
		if v.opt.DropInvalid {
			done = "they are left out, of all streams"
		}
		if g.within > 0 {
			add("rows-in-gaps", where, g.within, fmt.Sprintf("%d of %d rows lie in %d gaps (longer than %s): %s", g.within, g.rows, g.count, g.limit(), done), "")
		}
		if g.outside > 0 {
			add("rows-outside", where, g.outside, fmt.Sprintf("%d of %d rows lie before the first sample or after the last: %s", g.outside, g.rows, done), "")
		}
	}
}

// limit writes max_gap.
func (g *gaps) limit() string {
	ms := func(ns int64) string { return fmt.Sprintf("%.4g", float64(ns)/1e6) }
	if g.least == g.most {
		return ms(g.most) + " ms"
	}
	return ms(g.least) + " to " + ms(g.most) + " ms"
}
