package robomimic_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/synth"
)

// TestRemote checks that the data of a batch in a remote file is requested together and equals the
// local file. Images are compressed, cached, or read each time.
func TestRemote(t *testing.T) {
	dir := t.TempDir()
	for _, codec := range []string{"raw", "png"} {
		if _, err := synth.Write(t.Context(), filepath.Join(dir, codec+".hdf5"),
			synth.Options{
				Format: "robomimic", Codec: codec, Episodes: 24, Seconds: 1,
				Width: 128, Height: 96, Cameras: 1, Seed: 1,
			}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := loopback.Serve(dir, loopback.Options{Latency: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, memory := range map[string]int64{"raw": 0, "raw.hdf5": 1 << 20, "png": 0} {
		opt := robocache.OpenOptions{
			Format:       "robomimic",
			HZ:           robocache.Rate{Num: 30, Den: 1},
			MemoryBudget: memory,
		}
		file := "/" + name[:3] + ".hdf5"
		far, err := robocache.Open(t.Context(), s.URL+file, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		near, err := robocache.Open(t.Context(), dir+file, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		var rows []robocache.Row
		for e := range 24 {
			rows = append(rows, robocache.Row{Episode: e, Index: e % 7})
		}
		s.MostAtOnce()
		get := func(ds robocache.Dataset) (state []byte, frames [][]byte) {
			f := ds.Info().Feature("observation.state")
			state = make([]byte, len(rows)*f.RowBytes())
			refs := make([]robocache.FrameRef, len(rows))
			if err := ds.Gather(t.Context(), f.Key, rows, state); err != nil {
				t.Fatal(err)
			}
			opened := s.MostAtOnce()
			if err := ds.Frames(t.Context(), "observation.images.cam_0", rows, refs); err != nil {
				t.Fatal(err)
			}
			if most := s.MostAtOnce(); ds == far && (opened < 4 || most < 4) {
				t.Errorf("%s: at most %d and %d requests at once", name, opened, most)
			}
			for _, r := range refs {
				if r.Raw != nil {
					frames = append(frames, r.Raw.Pix)
				} else {
					frames = append(frames, r.Encoded)
				}
			}
			return state, frames
		}
		state, frames := get(far)
		wantState, want := get(near)
		if !bytes.Equal(state, wantState) ||
			!bytes.Equal(bytes.Join(frames, nil), bytes.Join(want, nil)) ||
			len(want[0]) == 0 {
			t.Errorf("%s: other rows than those of the local file", name)
		}
	}
}
