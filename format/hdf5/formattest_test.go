package hdf5_test

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestSuite runs the tests that every format must pass.
func TestSuite(t *testing.T) {
	for _, path := range []string{"hdf5_features/latest.hdf5"} {
		t.Run(path, func(t *testing.T) {
			formattest.Run(
				t,
				formattest.Fixture{
					URI:     realdata.Path(t, path),
					Format:  "hdf5",
					Options: robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
				},
			)
		})
	}
}
