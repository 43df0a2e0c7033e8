package lerobot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// writePairs writes a dataset of 36 episodes of 5 rows in 18 data files, two in each. These are
// more files than Open reads over a network. lengths are those of the first episodes in the table.
func writePairs(t *testing.T, perGroup int, lengths ...int64) string {
	t.Helper()
	s := newSynth(slices.Repeat([]int{5}, 36)...)
	s.perGroup, s.info = perGroup, `"total_frames": 180,`
	at := int64(0)
	for i := range s.episodes {
		e := &s.episodes[i]
		if i < len(lengths) {
			e.Length = lengths[i]
		}
		e.DataFile, e.From, e.To = int64(i/2), at, at+e.Length
		at = e.To
	}
	dir := s.write(t)
	for f := range 18 {
		name := filepath.Join(dir, fmt.Sprintf("data/chunk-000/file-%03d.parquet", f))
		writeRows(t, name, s.rows[10*f:10*f+10], perGroup)
	}
	return dir
}

// TestLengthsThatCancel checks a remote dataset of many files whose table has wrong lengths with
// the right sum. No row of an episode with a wrong length is delivered, and the rows of the others
// are correct.
func TestLengthsThatCancel(t *testing.T) {
	for name, lengths := range map[string][]int64{
		"right":        nil,
		"in two files": {5, 4, 6, 5},
		"first short":  {4, 6},
		"first long":   {6, 4},
		"empty":        {5, 0, 10, 5},
	} {
		for _, perGroup := range []int{1 << 20, 5, 4} {
			t.Run(fmt.Sprint(name, " ", perGroup), func(t *testing.T) {
				dir := writePairs(t, perGroup, lengths...)
				for e := range 36 {
					d, _ := openRemote(t, dir, 0)
					if d.Len(e) == 0 {
						continue
					}
					row := []robocache.Row{{Episode: e}}
					err := d.Gather(t.Context(), "observation.state", row, make([]byte, 12))
					_, timesErr := d.Times(t.Context(), e, "")
					if e < len(lengths) && lengths[e] != 5 {
						wantError(t, err, robocache.ErrMalformed, fmt.Sprintf("episode %d", e),
							fmt.Sprintf("%d rows", lengths[e]), "found 5")
						wantError(t, timesErr, robocache.ErrMalformed, fmt.Sprintf("episode %d", e))
						continue
					}
					if err != nil || timesErr != nil {
						t.Fatalf("episode %d: %v, %v", e, err, timesErr)
					}
					wantStates(t, d, e)
				}
			})
		}
	}
}

// TestRequestsOfComparing checks the cost of the comparison. It is zero if a file has a row group
// for each episode, and one read of a small column otherwise.
func TestRequestsOfComparing(t *testing.T) {
	for perGroup, most := range map[int]int64{5: 3, 1 << 20: 3} {
		d, srv := openRemote(t, writePairs(t, perGroup), 0)
		before := srv.Requests()
		wantStates(t, d, 7)
		if n := srv.Requests() - before; n > most {
			t.Errorf("%d rows a group: %d requests, want at most %d", perGroup, n, most)
		}
	}
}

// TestVideoOfLengthsThatCancel checks that no wrong frame is delivered if the wrong lengths of the
// table have the right sum, so that the frame count of the video agrees.
func TestVideoOfLengthsThatCancel(t *testing.T) {
	mp4 := filepath.Join(
		realData(t, "g1_h264_v30_bigdrift"),
		"videos/observation.images.cam_high/chunk-000/file-000.mp4",
	)
	b, err := os.ReadFile(mp4) // 1254 frames
	if err != nil {
		t.Fatal(err)
	}
	for _, isWrong := range []bool{false, true} {
		s := newSynth(slices.Repeat([]int{33}, 38)...)
		s.fps, s.info = "30", `"total_frames": 1254,`
		s.features = `"cam": {"dtype": "video", "shape": [120, 160, 3], "names": ["height", "width", "channels"]},`
		var episodes []camEpisode
		at := int64(0)
		for i, e := range s.episodes {
			if isWrong && i < 2 {
				e.Length += int64(1 - 2*i)
			}
			e.DataFile, e.From, e.To = int64(i/2), at, at+e.Length
			episodes = append(
				episodes,
				camEpisode{synthEpisode: e, From: float64(e.From) / 30, To: float64(e.To) / 30},
			)
			at = e.To
		}
		dir := s.write(t)
		writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), episodes, 10)
		for f := range 19 {
			name := filepath.Join(dir, fmt.Sprintf("data/chunk-000/file-%03d.parquet", f))
			writeRows(t, name, s.rows[66*f:66*f+66], 1<<20)
		}
		writeText(t, filepath.Join(dir, "videos/cam/chunk-000/file-000.mp4"), string(b))
		for _, e := range []int{0, 1, 2, 37} {
			d, _ := openRemote(t, dir, 0)
			out := make([]robocache.FrameRef, 1)
			err := d.Frames(t.Context(), "cam", []robocache.Row{{Episode: e, Index: 3}}, out)
			if isWrong {
				wantError(t, err, robocache.ErrMalformed, "file-000.parquet", "found 33")
			} else if err != nil || out[0].Ordinal != 33*e+3 {
				t.Errorf("episode %d: frame %d, %v", e, out[0].Ordinal, err)
			}
		}
	}
}
