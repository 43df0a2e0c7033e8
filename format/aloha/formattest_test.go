package aloha_test

import (
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/realdata"
)

// TestSuite: what every format promises.
func TestSuite(t *testing.T) {
	for _, path := range []string{"aloha_like", "aloha_like/episode_0.hdf5"} {
		t.Run(path, func(t *testing.T) {
			formattest.Run(t, formattest.Fixture{URI: realdata.Path(t, path), Format: "aloha"})
		})
	}
}
