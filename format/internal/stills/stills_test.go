package stills

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// TestVideoImages checks that rows of a video are returned in order. A row that is requested twice
// is returned twice. Each image equals the one of a single request.
func TestVideoImages(t *testing.T) {
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip("skipped: no decoder: ", err)
	}
	ds, err := lerobot.Open(t.Context(), realdata.Path(t, "g1_v21"), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	var f *robocache.Feature
	for i := range ds.Info().Features {
		if ds.Info().Features[i].Kind == robocache.KindVideo {
			f = &ds.Info().Features[i]
			break
		}
	}
	pool := video.NewPool(0)
	defer pool.Close()
	r := New(ds, pool)
	rows := []robocache.Row{
		{Episode: 0, Index: 3},
		{Episode: 0, Index: 3},
		{Episode: 0, Index: 5},
		{Episode: 0, Index: 1},
	}
	var got [][]byte
	err = r.Each(t.Context(), f, rows, func(i int, ref *robocache.FrameRef) error {
		if i != len(got) || ref.Raw == nil || ref.Raw.Channels != 3 || ref.Raw.Height != f.Height ||
			ref.Raw.Width != f.Width {
			t.Errorf("row %d: %+v", i, ref)
		}
		got = append(got, bytes.Clone(ref.Raw.Pix))
		return nil
	})
	if err != nil || len(got) != len(rows) {
		t.Fatal(err, len(got))
	}
	for i := range rows {
		one := New(ds, pool)
		err := one.Each(t.Context(), f, rows[i:i+1], func(_ int, ref *robocache.FrameRef) error {
			if !bytes.Equal(ref.Raw.Pix, got[i]) {
				t.Errorf("row %d is another image", i)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(got[0], got[1]) || bytes.Equal(got[0], got[2]) || bytes.Equal(got[0], got[3]) {
		t.Error("images are mixed up")
	}
}
