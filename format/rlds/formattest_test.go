package rlds_test

import (
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/rlds"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// TestSuite runs the suite of all formats on real data from every level of its folders, on one
// split, and on ragged, float64 and depth streams of our writer. It also runs on every kind that
// tensorflow-datasets writes.
func TestSuite(t *testing.T) {
	real := realdata.Path(t, "bridge_rlds")
	for _, dir := range []string{
		real,
		filepath.Join(real, "bridge_dataset"),
		filepath.Join(real, "bridge_dataset", "1.0.0"),
	} {
		formattest.Run(t, formattest.Fixture{URI: dir, Format: "rlds"})
	}
	formattest.Run(
		t,
		formattest.Fixture{
			URI:    real,
			Format: "rlds",
			Options: robocache.OpenOptions{
				MemoryBudget: 1 << 20,
				Options:      map[string]string{"split": "val"},
			},
		},
	)
	dir, _ := write(t, onRows(mixed(t)), robocache.WriteOptions{})
	formattest.Run(t, formattest.Fixture{URI: dir, Format: "rlds"})
	if kinds := rlds.TFDSKinds(t); kinds != "" {
		formattest.Run(
			t,
			formattest.Fixture{
				URI:     kinds,
				Format:  "rlds",
				Options: robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
			},
		)
	}
}

// TestHTTP reads the folder of a version from a server that cannot list, by ranges.
func TestHTTP(t *testing.T) {
	dir := filepath.Join(realdata.Path(t, "bridge_rlds"), "bridge_dataset", "1.0.0")
	s, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	local, remote := open(t, dir, robocache.OpenOptions{}), open(t, s.URL, robocache.OpenOptions{})
	same(t, local, remote, nil)
}
