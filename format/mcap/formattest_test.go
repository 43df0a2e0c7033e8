package mcap_test

import (
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestFormat runs the suite of all formats on a file, a folder, and recordings that are cut into
// episodes.
func TestFormat(t *testing.T) {
	root := realdata.Path(t, "mcap_robot")
	formattest.Run(
		t,
		formattest.Fixture{URI: filepath.Join(root, "recording_lz4.mcap"), Format: "mcap"},
		formattest.Fixture{URI: root, Format: "mcap"},
		formattest.Fixture{
			URI:    filepath.Join(root, "recording_zstd.mcap"),
			Format: "mcap",
			Options: robocache.OpenOptions{
				Options: map[string]string{"episodes_by": "table:0.5-1.5,1.5-3", "clock": "log"},
			},
		},
	)
}

func init() { container.Poison = true } // readers of records that were already released see zeros
