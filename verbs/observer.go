package verbs

import (
	"io"

	"github.com/goatnote-inc/robocache"
)

// Observer receives the progress and the notes of a running verb. The zero Observer discards
// everything. A verb calls its functions one at a time.
type Observer struct {
	// Progress receives the amount of work that is done.
	Progress func(robocache.Progress)
	// Note receives text for people, of one or several lines.
	Note func(text string)
	// Terminal receives the output of child processes that show their own progress; nil discards
	// it.
	Terminal io.Writer
}

// progress passes p to o.Progress, if there is one.
func (o Observer) progress(p robocache.Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}

// note passes text to o.Note, if there is one.
func (o Observer) note(text string) {
	if o.Note != nil && text != "" {
		o.Note(text)
	}
}

// countIn returns a function that reports a count of units as progress.
func (o Observer) countIn(unit string) func(done, total int64) {
	return func(done, total int64) {
		o.progress(robocache.Progress{Done: done, Total: total, Unit: unit})
	}
}
