package plan

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Report collects what opening and running a loader have to tell.
type Report struct {
	Notes   []string     // what was chosen without being asked for; written by opening alone
	Skipped atomic.Int64 // samples of bad episodes

	mu       sync.Mutex
	warnings []string
}

// note adds a note, unless it is known.
func (r *Report) note(s string) {
	if !slices.Contains(r.Notes, s) { // of another source of a mixture
		r.Notes = append(r.Notes, s)
	}
}

// Warn adds a warning, unless it is known.
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
