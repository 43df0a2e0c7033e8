package rosbag2

import (
	"testing"

	"github.com/goatnote-inc/robocache/format/formattest"
	"github.com/goatnote-inc/robocache/internal/realdata"
)

func TestFormat(t *testing.T) {
	for _, name := range []string{"mcap_robot/recording_db3", "rosbag2/py/sqlite3/wbag", "rosbag2/tests/sqlite3/cdr_test", "rosbag2/tests/mcap/cdr_test"} {
		formattest.Run(t, formattest.Fixture{URI: realdata.Path(t, name), Format: Name})
	}
}
