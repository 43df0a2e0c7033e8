package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/verbs"
)

// newProgress returns a function that prints the progress of a verb to stderr. With --json it
// prints nothing.
func newProgress(cmd *cobra.Command, verb string) func(robocache.Progress) {
	if !showsProgress(cmd) {
		return func(robocache.Progress) {}
	}
	return progressTo(cmd.ErrOrStderr(), verb)
}

// progressTo returns a function that prints the progress of a verb. On a terminal it rewrites one
// line with the rate and the remaining time. Otherwise it prints at most one line per minute.
func progressTo(w io.Writer, verb string) func(robocache.Progress) {
	if isTerminal(w) {
		return progressBar(w, verb)
	}
	return progressLines(w, verb, time.Now)
}

// showsProgress reports whether a verb shows progress, which it does unless --json is given.
func showsProgress(cmd *cobra.Command) bool {
	asJSON := cmd.Flags().Lookup("json")
	return asJSON == nil || asJSON.Value.String() != "true"
}

// NewObserver returns an observer that prints progress and notes of a verb to w.
func NewObserver(w io.Writer, verb string) verbs.Observer {
	o := verbs.Observer{
		Progress: progressTo(w, verb),
		Note:     func(text string) { fmt.Fprintln(w, strings.TrimSuffix(text, "\n")) },
	}
	if isTerminal(w) {
		o.Terminal = w
	}
	return o
}

// observerOf returns the observer of a command.
func observerOf(cmd *cobra.Command) verbs.Observer {
	o := NewObserver(cmd.ErrOrStderr(), cmd.Name())
	o.Progress = newProgress(cmd, cmd.Name())
	return o
}

// progressBar returns a function that rewrites one line of w and clears it at the end.
func progressBar(w io.Writer, verb string) func(robocache.Progress) {
	var bar *progressbar.ProgressBar
	return func(p robocache.Progress) {
		if bar == nil {
			bar = progressbar.NewOptions64(p.Total,
				progressbar.OptionSetWriter(w),
				progressbar.OptionSetDescription(verb),
				progressbar.OptionShowCount(),
				progressbar.OptionShowIts(),
				progressbar.OptionSetItsString(p.Unit),
				progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionClearOnFinish(),
			)
		}
		if p.Total != bar.GetMax64() { // ChangeMax64 renders, which would throttle Set64
			bar.ChangeMax64(p.Total)
		}
		_ = bar.Set64(p.Done)
		if p.Done >= p.Total {
			_ = bar.Finish()
		}
	}
}

// progressLines returns a function that writes a line to w if a minute has passed since the last
// one.
func progressLines(w io.Writer, verb string, now func() time.Time) func(robocache.Progress) {
	start := now()
	last := start
	return func(p robocache.Progress) {
		t := now()
		if t.Sub(last) < time.Minute || p.Done == 0 {
			return
		}
		last = t
		rate := float64(p.Done) / t.Sub(start).Seconds()
		left := time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second)).
			Round(time.Second)
		fmt.Fprintf(
			w,
			"%s: %d of %d %s, %.1f %s/s, %s left\n",
			verb,
			p.Done,
			p.Total,
			p.Unit,
			rate,
			p.Unit,
			left,
		)
	}
}
