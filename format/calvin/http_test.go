package calvin

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// TestHTTP checks that images over http are equal, and that a frame needs only a few requests.
func TestHTTP(t *testing.T) {
	dir := realdata.Path(t, "calvin_like")
	s, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	local, remote := open(t, dir, robocache.OpenOptions{}), open(t, s.URL, robocache.OpenOptions{})
	rows := make([]robocache.Row, 20)
	for i := range rows {
		rows[i] = robocache.Row{Episode: 1, Index: i}
	}
	a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
	if err := local.Frames(t.Context(), "observation.rgb_static", rows, a); err != nil {
		t.Fatal(err)
	}
	before := s.Requests()
	if err := remote.Frames(t.Context(), "observation.rgb_static", rows, b); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if !bytes.Equal(a[i].Raw.Pix, b[i].Raw.Pix) {
			t.Errorf("image %d differs", i)
		}
	}
	if n := s.Requests() - before; n > 5*int64(len(rows)) {
		t.Errorf("%d requests for %d frames", n, len(rows))
	}
}
