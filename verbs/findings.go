package verbs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Verdict is implemented by the results of verbs that find things.
type Verdict interface {
	// HasFindings reports whether the verb found an error or a warning, or left out episodes. It is
	// the exit code 3 of the command line.
	HasFindings() bool
}

// AnyWrong reports whether one of the findings is an error or a warning.
func AnyWrong(findings []robocache.Finding) bool {
	return slices.ContainsFunc(findings, func(f robocache.Finding) bool {
		return f.Severity == robocache.SeverityError || f.Severity == robocache.SeverityWarning
	})
}

// FindingsText lists findings for people, errors first. It is empty if there are none; else it ends
// with a newline.
func FindingsText(findings []robocache.Finding) string {
	var b strings.Builder
	for _, severity := range []robocache.Severity{
		robocache.SeverityError, robocache.SeverityWarning, robocache.SeverityInfo,
	} {
		for _, f := range findings {
			if f.Severity != severity {
				continue
			}
			fmt.Fprintf(&b, "%-8s %s: %s\n", f.Severity, f.Code, f.Message)
			if len(f.Where) > 0 {
				fmt.Fprintf(&b, "         at %s\n", f.Where)
			}
			if advice := f.Advice(); advice != "" {
				fmt.Fprintf(&b, "         hint: %s\n", advice)
			}
		}
	}
	return b.String()
}
