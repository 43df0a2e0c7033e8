package robomimic_test

import (
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestSuite runs the tests that every format must pass.
func TestSuite(t *testing.T) {
	for _, path := range []string{
		"robomimic_like/earliest_contiguous.hdf5",
		"robomimic_like/latest_gzip_shuffle.hdf5",
	} {
		t.Run(path, func(t *testing.T) {
			formattest.Run(t, formattest.Fixture{URI: realdata.Path(t, path), Format: "robomimic"})
		})
	}
}
