package robocache_test

import (
	"os"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestVersion checks that the Python package has the version of the engine.
func TestVersion(t *testing.T) {
	text, err := os.ReadFile("python/robocache/_version.py")
	if err != nil {
		t.Fatal(err)
	}
	if want := `__version__ = "` + robocache.Version + `"`; !strings.Contains(string(text), want) {
		t.Errorf("python/robocache/_version.py lacks %s", want)
	}
}
