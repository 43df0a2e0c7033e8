package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
)

// progressKey marks the context of a verb that shows its progress beside --json: a caller in the process asked for both.
type progressKey struct{}

func withProgress(ctx context.Context) context.Context {
	return context.WithValue(ctx, progressKey{}, true)
}

// newProgress returns a function that shows how far a verb is, on stderr: on a terminal one line that is rewritten, with rate
// and remaining time; elsewhere at most one line a minute. With --json it shows nothing.
func newProgress(cmd *cobra.Command, verb string) func(robocache.Progress) {
	w := cmd.ErrOrStderr()
	switch {
	case !showsProgress(cmd):
		return func(robocache.Progress) {}
	case isTerminal(w):
		return progressBar(w, verb)
	}
	return progressLines(w, verb, time.Now)
}

// showsProgress reports whether a verb shows progress: not with --json, unless a caller in the process asked for both.
func showsProgress(cmd *cobra.Command) bool {
	asJSON := cmd.Flags().Lookup("json")
	return asJSON == nil || asJSON.Value.String() != "true" || cmd.Context().Value(progressKey{}) != nil
}

// inUnit adapts show to the callbacks that count one thing.
func inUnit(show func(robocache.Progress), unit string) func(done, total int64) {
	return func(done, total int64) { show(robocache.Progress{Done: done, Total: total, Unit: unit}) }
}

// progressBar returns a function that rewrites one line of w, and clears it at the end.
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
		if p.Total != bar.GetMax64() { // which renders, so that Set64 would be throttled
			bar.ChangeMax64(p.Total)
		}
		_ = bar.Set64(p.Done)
		if p.Done >= p.Total {
			_ = bar.Finish()
		}
	}
}

// progressLines returns a function that writes a line to w if a minute has passed since the last one.
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
		left := time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(w, "%s: %d of %d %s, %.1f %s/s, %s left\n", verb, p.Done, p.Total, p.Unit, rate, p.Unit, left)
	}
}
