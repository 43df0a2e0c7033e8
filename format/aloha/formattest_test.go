package aloha_test

import (
	"path/filepath"
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/aloha"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
)

// TestSuite runs the tests that every format must pass.
func TestSuite(t *testing.T) {
	dir := aloha.Data(t)
	for _, name := range []string{".", "episode_0.hdf5"} {
		t.Run(name, func(t *testing.T) {
			formattest.Run(t, formattest.Fixture{URI: filepath.Join(dir, name), Format: "aloha"})
		})
	}
}
