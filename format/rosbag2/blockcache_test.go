package rosbag2

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// TestDistantDB3 checks that a remote database is read in blocks. One request per page would be 634
// requests for this recording of 2.6 MB before the first value.
func TestDistantDB3(t *testing.T) {
	dir := realdata.Path(t, "mcap_robot/recording_db3")
	srv, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	far, err := Open(t.Context(), srv.URL, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	near, err := Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	for _, key := range []string{"joint_states.position", "imu.data.orientation"} {
		f := near.Info().Feature(key)
		at, err := near.Times(t.Context(), 0, key)
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]robocache.Row, len(at))
		for i := range rows {
			rows[i].Index = i
		}
		a, b := make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*f.RowBytes())
		if err := near.Gather(t.Context(), key, rows, a); err != nil {
			t.Fatal(err)
		}
		if err := far.Gather(t.Context(), key, rows, b); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s from afar differs (%v)", key, err)
		}
	}
	if n := srv.Requests(); n > 60 {
		t.Errorf("%d requests", n)
	}
}
