package align

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// gaps counts the rows of a stream that have no value or repeat one, over the episodes of a view.
type gaps struct {
	least, most int64 // smallest and largest max_gap, in ns; 0 = none
	count       int64 // number of steps that are longer than max_gap
	within      int64 // rows inside gaps, which have no value
	outside     int64 // rows before the first sample or after the last, which have no value
	rows        int64
	shown       int64 // rows with a value
	repeated    int64 // rows among shown that repeat the sample of the previous row
	samples     int64 // samples between the first and the last row
}

// countGaps counts the rows of a stream in one episode. limit is its max_gap.
func countGaps(timestamps, times []int64, limit int64, p *kernel.Plan) gaps {
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
	for i := range times {
		if p.Valid[i] == 0 {
			continue
		}
		g.shown++
		copies := i > 0 && p.Valid[i-1] != 0 && p.Kind[i] == kernel.Copy &&
			p.Kind[i-1] == kernel.Copy
		if copies && p.Left[i] == p.Left[i-1] {
			g.repeated++
		}
	}
	for _, t := range timestamps {
		if len(times) > 0 && t >= times[0] && t <= times[len(times)-1] {
			g.samples++
		}
	}
	for i := 1; i < len(timestamps) && limit > 0; i++ {
		if timestamps[i]-timestamps[i-1] > limit {
			g.count++
		}
	}
	return g
}

// addCounts adds the counts of an episode.
func (g *gaps) addCounts(episode *gaps) {
	switch {
	case episode.most == 0:
	case g.most == 0:
		g.least, g.most = episode.least, episode.most
	default:
		g.least, g.most = min(g.least, episode.least), max(g.most, episode.most)
	}
	g.count += episode.count
	g.within += episode.within
	g.outside += episode.outside
	g.rows += episode.rows
	g.shown += episode.shown
	g.repeated += episode.repeated
	g.samples += episode.samples
}

// usesRhythm reports whether the max_gap of a stream follows from its own steps
// (ViewOptions.Rhythm).
func (v *Viewed) usesRhythm(s *source) bool {
	kind := s.feature.Kind
	return v.opt.Rhythm && !s.opt.Hold && kind != robocache.KindText &&
		kind != robocache.KindEvent &&
		!v.cfg.MaxGap.Says(s.feature.Key)
}

// findGaps adds findings: the max_gap of streams for which none was chosen, the rows without a value
// in each stream, and repeated frames.
func (v *Viewed) findGaps() {
	v.noteRhythms()
	for i := range v.kept {
		if !v.isIgnored(i) {
			v.findInvalid(&v.kept[i], &v.gaps[i])
			v.findRepeated(&v.kept[i], &v.gaps[i])
		}
	}
}

// noteRhythms adds a finding with the max_gap of the streams for which it follows from their steps.
func (v *Viewed) noteRhythms() {
	probe := aligner{ds: v.src, cfg: v.cfg}
	var limits []string
	for i := range v.kept {
		s, _ := probe.resolveOptions(v.kept[i])
		if v.usesRhythm(&s) && v.gaps[i].most > 0 && !v.isIgnored(i) {
			limits = append(limits, v.kept[i].Key+" "+v.gaps[i].limitText())
		}
	}
	if limits == nil {
		return
	}
	v.info.Findings = append(v.info.Findings, robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "max-gap",
		Message: "a step longer than three periods of a stream (of its median step; 2 ms at least) " +
			"counts as a gap: " + strings.Join(
			limits,
			", ",
		),
		Hint: "Pass " + robocache.Option("align", "max_gap", "100ms") +
			" for another length, or 0 for no gaps.",
		Count: int64(len(limits)),
	})
}

// findInvalid adds findings about the rows of a stream that have no value.
func (v *Viewed) findInvalid(f *robocache.Feature, g *gaps) {
	severity, treatment := robocache.SeverityWarning, "they are masked in "+f.Key+ValidSuffix
	hint := "Pass " + robocache.Option("drop_invalid", true) +
		" of convert to leave these rows out and split the episode there."
	if isFramed(f) {
		treatment += ", and their frames are black"
	}
	if v.opt.DropInvalid {
		severity, treatment, hint = robocache.SeverityInfo, "they are left out, of all streams", ""
	}
	add := func(code string, count int64, place string) {
		v.info.Findings = append(v.info.Findings, robocache.Finding{
			Severity: severity,
			Code:     code,
			Where:    robocache.Where{"stream": f.Key},
			Message:  fmt.Sprintf("%d of %d rows lie %s: %s", count, g.rows, place, treatment),
			Hint:     hint,
			Count:    count,
		})
	}
	if g.within > 0 {
		add("rows-in-gaps", g.within, fmt.Sprintf("in %d gaps (longer than %s)", g.count,
			g.limitText()))
	}
	if g.outside > 0 {
		add("rows-outside", g.outside, "before the first sample or after the last")
	}
}

// isFramed reports whether a stream has frames or point clouds, which are never interpolated.
func isFramed(f *robocache.Feature) bool {
	return f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage ||
		f.Kind == robocache.KindPointCloud
}

// findRepeated adds a finding about a stream of frames if at least a tenth of the rows repeat the
// frame of the previous row. It is a warning if the stream has too few frames for the grid, and a
// note if the cause is only phase or jitter.
func (v *Viewed) findRepeated(f *robocache.Feature, g *gaps) {
	if !isFramed(f) || f.Latched || g.shown == 0 || 10*g.repeated < g.shown {
		return
	}
	severity, hint := robocache.SeverityInfo, ""
	rate := v.cfg.HZ.Float() * float64(g.samples) / float64(g.shown)
	if 10*g.samples <= 9*g.shown {
		severity = robocache.SeverityWarning
		rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", rate), 64)
		hint = fmt.Sprintf("Pass %s, the rate of the stream, to show each frame once.",
			robocache.Option("hz", rounded))
	}
	v.info.Findings = append(v.info.Findings, robocache.Finding{
		Severity: severity,
		Code:     "frames-repeated",
		Where:    robocache.Where{"stream": f.Key},
		Message: fmt.Sprintf(
			"%d of %d rows (%.0f %%) repeat the frame of the row before: "+
				"the stream has about %.3g frames/s, the grid %s rows/s",
			g.repeated,
			g.shown,
			100*float64(g.repeated)/float64(g.shown),
			rate,
			v.cfg.HZ,
		),
		Hint:  hint,
		Count: g.repeated,
	})
}

// limitText formats max_gap.
func (g *gaps) limitText() string {
	ms := func(ns int64) string { return fmt.Sprintf("%.4g", float64(ns)/1e6) }
	if g.least == g.most {
		return ms(g.most) + " ms"
	}
	return ms(g.least) + " to " + ms(g.most) + " ms"
}
