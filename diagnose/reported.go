package diagnose

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// reportedStream summarizes the format's findings about a stream of an episode.
type reportedStream struct {
	severity robocache.Severity
	isWhole  bool         // whether a finding has no row
	rows     map[any]bool // rows with a finding
}

// reportedFaults holds the findings of opening and of the format's own doctor. The checks of this
// package meet the same faults again when they read the rows.
type reportedFaults map[string]*reportedStream

// newReportedFaults collects the findings that name an episode.
func newReportedFaults(findings []robocache.Finding) reportedFaults {
	out := reportedFaults{}
	add := func(key string, f *robocache.Finding) {
		s := out[key]
		if s == nil {
			s = &reportedStream{rows: map[any]bool{}}
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

// covers reports whether the format already reported the fault of f. It did if it has a finding at
// least as severe about the same stream and row, or one with the same message.
func (t reportedFaults) covers(f *robocache.Finding) bool {
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

// addReadFault adds a finding about reading rows, unless the format already reported the cause.
func (x *examination) addReadFault(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	message string,
) {
	f := robocache.Finding{Severity: sev, Code: code, Where: where, Message: message}
	if !x.reported.covers(&f) {
		x.addFinding(sev, code, where, 0, "", "%s", message)
	}
}
