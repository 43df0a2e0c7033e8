package plan

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Report collects messages and counts from opening and running a loader. Safe for concurrent use,
// except for Notes.
type Report struct {
	Notes   []string     // messages about chosen defaults; written at opening only
	Skipped atomic.Int64 // samples of bad episodes

	mu       sync.Mutex
	warnings []string
}

// addNote adds a note that is not in the list yet.
func (r *Report) addNote(s string) {
	if !slices.Contains(r.Notes, s) { // another source of a mixture may have added it
		r.Notes = append(r.Notes, s)
	}
}

// Warn adds a warning that is not in the list yet.
func (r *Report) Warn(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.warnings, s) {
		r.warnings = append(r.warnings, s)
	}
}

// ListWarnings returns the warnings so far.
func (r *Report) ListWarnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}
