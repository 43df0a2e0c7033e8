package plan

import (
	"testing"

	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// A renamed key is looked up under the dataset's own name: its noise (loader.L29) and the starts of
// its videos are those of the dataset alone.
func TestDatasetKeyOfRenamedSource(t *testing.T) {
	src := column.DataSource{
		Dataset: &renamed{oldKeys: map[string]string{"state": "observation.state"}},
	}
	for key, want := range map[string]string{"state": "observation.state", "action": "action"} {
		if got := src.DatasetKey(key); got != want {
			t.Errorf("DatasetKey(%q) = %q, want %q", key, got, want)
		}
	}
}
