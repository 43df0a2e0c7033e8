package rosbag2_test

import (
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func TestFormat(t *testing.T) {
	for _, name := range []string{
		"mcap_robot/recording_db3",
		"mcap_robot/recording_db3/recording_db3.db3",
		"rosbag2/cpp/topics_and_services.db3", "rosbag2/py/sqlite3/wbag", "rosbag2/py/mcap/wbag",
		"rosbag2/py/sqlite3/reindex_test_bags",
		"rosbag2/tests/sqlite3/cdr_test",
		"rosbag2/tests/mcap/cdr_test", "rosbag2/tests/sqlite3/bag_with_topics_and_service_events",
	} {
		formattest.Run(t, formattest.Fixture{URI: realdata.Path(t, name), Format: "rosbag2"})
	}
}
