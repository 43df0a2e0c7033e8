//go:build !cgo

package loader_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// TestNoDecoder checks that a build without a video decoder reports it before the first batch, and
// works if keys omit the cameras.
func TestNoDecoder(t *testing.T) {
	ds, err := robocache.Open(t.Context(), realdata.Path(t, "g1_h264_v30"))
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if _, err := loader.New(t.Context(), ds,
		loader.Config{Order: loader.Order{BatchSize: 2}}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "observation.images") {
		t.Error(err)
	}
	if _, err := loader.NewMap(t.Context(), ds, loader.Config{}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "observation.images") {
		t.Error(err)
	}
	l, err := loader.New(
		t.Context(),
		ds,
		loader.Config{
			Order:   loader.Order{BatchSize: 2},
			Windows: loader.Windows{Keys: []string{"action"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
