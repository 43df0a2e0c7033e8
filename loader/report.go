package loader

import (
	"slices"
	"sync"
	"sync/atomic"
)

// report collects what opening and running a loader have to tell.
type report struct {
	notes   []string     // what was chosen without being asked for; written by opening alone
	skipped atomic.Int64 // samples of bad episodes

	mu       sync.Mutex
	warnings []string
}

// note adds a note, unless it is known.
func (r *report) note(s string) {
	if !slices.Contains(r.notes, s) { // of another source of a mixture
		r.notes = append(r.notes, s)
	}
}

// warn adds a warning, unless it is known.
func (r *report) warn(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.warnings, s) {
		r.warnings = append(r.warnings, s)
	}
}

// listWarnings returns the warnings so far.
func (r *report) listWarnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}
