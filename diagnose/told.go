package diagnose

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// toldStream is what the findings of a format say about a stream of an episode.
type toldStream struct {
	severity robocache.Severity
	isWhole  bool         // a finding without a row
	rows     map[any]bool // rows that have a finding
}

// told holds what the format's own doctor and the opening found. The checks of this package meet
// the same causes again when they read the rows.
type told map[string]*toldStream

// newTold collects findings that name an episode.
func newTold(findings []robocache.Finding) told {
	out := told{}
	add := func(key string, f *robocache.Finding) {
		s := out[key]
		if s == nil {
			s = &toldStream{rows: map[any]bool{}}
			out[key] = s
		}
		if f.Severity == robocache.SeverityError || s.severity == "" {
			s.severity = f.Severity
		}
		if row, ok := f.Where["row"]; ok {
			s.rows[row] = true
		} else {
			s.isWhole = true
		}
	}
	for i := range findings {
		f := &findings[i]
		if e, ok := f.Where["episode"]; ok && f.Severity != robocache.SeverityInfo {
			add(fmt.Sprintf("%v\x00%v", e, f.Where["stream"]), f)
			add(fmt.Sprintf("%v\x00%s", e, f.Message), f)
		}
	}
	return out
}

// covers reports whether the format reported the fault of a finding of this package: it has a
// finding at least as severe about the same stream and row, or one with the same message.
func (t told) covers(f *robocache.Finding) bool {
	e := f.Where["episode"]
	if t[fmt.Sprintf("%v\x00%s", e, f.Message)] != nil {
		return true
	}
	s := t[fmt.Sprintf("%v\x00%v", e, f.Where["stream"])]
	if s == nil || f.Severity == robocache.SeverityError && s.severity != f.Severity {
		return false
	}
	row, ok := f.Where["row"]
	return !ok || s.isWhole || s.rows[row]
}

// addReadFault adds a finding of reading rows, unless the format reported its cause.
func (x *examination) addReadFault(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	message string,
) {
	f := robocache.Finding{Severity: sev, Code: code, Where: where, Message: message}
	if !x.told.covers(&f) {
		x.add(sev, code, where, 0, "", "%s", message)
	}
}
