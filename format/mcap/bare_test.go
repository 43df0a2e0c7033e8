package mcap

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestNoFeatures checks that a recording without messages is a dataset without streams, and that
// the list is empty and not null.
func TestNoFeatures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mcap")
	record(t, path, made())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:60], 0o666); err != nil {
		t.Fatal(err)
	}
	ds, err := Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if len(ds.Info().Features) != 0 || len(ds.Info().Findings) == 0 {
		t.Fatalf("%+v", ds.Info())
	}
	if told, err := json.Marshal(ds.Info()); err != nil ||
		!strings.Contains(string(told), `"features":[]`) {
		t.Errorf("%s %v", told, err)
	}
}
