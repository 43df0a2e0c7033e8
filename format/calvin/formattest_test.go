package calvin_test

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestSuite runs the tests that every format must pass, for both kinds of episodes.
func TestSuite(t *testing.T) {
	for name, opt := range map[string]robocache.OpenOptions{
		"runs":    {},
		"windows": {Options: map[string]string{"language": "episodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			formattest.Run(
				t,
				formattest.Fixture{
					URI:     realdata.Path(t, "calvin_like"),
					Format:  "calvin",
					Options: opt,
				},
			)
		})
	}
}
