package cli

import (
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Each finding of a damaged dataset has a hint.
func TestFindingsHaveHints(t *testing.T) {
	findings := 0
	for name, path := range damaged(t) {
		for _, f := range hintsOf(t, path) {
			findings++
			if f.Severity != robocache.SeverityInfo && f.Hint == "" &&
				!strings.Contains(f.Message, "hint: ") {
				t.Errorf("%s: %s without a hint: %s", name, f.Code, f.Message)
			}
		}
	}
	if findings < 20 {
		t.Errorf("only %d findings", findings)
	}
}
