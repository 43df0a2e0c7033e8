package edit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// codes returns the row numbers in the images of an episode; -1 if none can be read.
func codes(t *testing.T, ds robocache.Dataset, key string, e int) (out []int) {
	t.Helper()
	f := ds.Info().Feature(key)
	rows := robocache.RowsOf(e, 0, ds.Len(e))
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), key, rows, refs); err != nil {
		t.Fatal(err)
	}
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	var buf []byte
	err := video.EachFrame(
		t.Context(),
		video.LibraryOf(ds),
		refs,
		video.Each{},
		func(at []int, pic video.Frame) (err error) {
			row := -1
			if pic != nil {
				if buf, err = video.ConvertTo(buf, pic, spec); err != nil {
					return err
				}
				if _, n, ok := synth.ReadCode(buf, f.Width, f.Height); ok {
					row = n
				}
			}
			for range at {
				out = append(out, row)
			}
			return nil
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// At every position in a GOP and in each cut mode, every row shows its own frame.
func TestCuts(t *testing.T) {
	skipDecoding(t)
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg to make groups of frames with")
	}
	if err := video.CanEncode(t.Context(),
		video.EncodeConfig{Width: 128, Height: 96, Rate: robocache.Rate{Num: 30, Den: 1}}); err !=
		nil {
		t.Skip(err)
	}
	base := made(
		t,
		"lerobot",
		synth.Options{Episodes: 1, Seconds: 2, Cameras: 1, Codec: "jpeg"},
		map[string]string{"images": "video", "gop": "2"},
	)
	const key = "observation.images.cam_0"
	for _, c := range []struct {
		name string
		args []string
		at   []int
	}{
		{"av1", nil, []int{1, 2, 5}},
		{
			"av1-long",
			[]string{
				"-c:v",
				"libsvtav1",
				"-g",
				"20",
				"-preset",
				"12",
				"-crf",
				"20",
				"-svtav1-params",
				"fast-decode=0",
			},
			[]int{1, 19, 20, 21, 40},
		},
		{
			"h264-long",
			[]string{
				"-c:v",
				"libx264",
				"-g",
				"20",
				"-bf",
				"0",
				"-crf",
				"23",
				"-sc_threshold",
				"0",
				"-vf",
				"setsar=0",
			},
			[]int{1, 19, 20, 21, 40},
		},
		{
			"h264-bframes",
			[]string{"-c:v", "libx264", "-g", "30", "-bf", "2", "-crf", "10"},
			[]int{1, 2, 3, 15, 16, 17, 29, 30, 31},
		},
		{
			"hevc-open",
			[]string{
				"-c:v",
				"libx265",
				"-x265-params",
				"keyint=8:min-keyint=8:open-gop=1:bframes=2:log-level=none",
				"-crf",
				"10",
				"-tag:v",
				"hvc1",
			},
			[]int{1, 2, 7, 8, 9, 10},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := filepath.Join(t.TempDir(), "set")
			if err := os.CopyFS(from, os.DirFS(base)); err != nil {
				t.Fatal(err)
			}
			mp4 := filepath.Join(from, "videos", key, "chunk-000", "file-000.mp4")
			if c.args != nil {
				args := append([]string{"-v", "error", "-y", "-i", mp4}, c.args...)
				if out, err := exec.Command("ffmpeg", append(args, "-fps_mode", "passthrough", mp4+
					".new.mp4")...).
					CombinedOutput(); err != nil {
					t.Skipf("%v %s", err, out)
				}
				if err := os.Rename(mp4+".new.mp4", mp4); err != nil {
					t.Fatal(err)
				}
			}
			src := open(t, from)
			n := src.Len(0)
			all := codes(t, src, key, 0)
			if slices.Contains(all, -1) {
				t.Fatalf("the source's codes cannot be read: %v", all)
			}
			for _, cut := range []string{edit.CutHidden, edit.CutExact, edit.CutSnap} {
				counts := edit.Counts{}
				for _, at := range c.at {
					dst := filepath.Join(t.TempDir(), fmt.Sprint(cut, at))
					r, err := edit.Run(t.Context(), &edit.Request{
						Sources: []string{from},
						DST:     dst,
						Cut:     cut,
						Stats:   "rows",
						Verbs: []edit.Verb{
							{
								Verb: "trim",
								From: fmt.Sprintf("%dr", at),
								To:   fmt.Sprintf("-%dr", at%3),
							},
						},
					})
					if err != nil {
						t.Fatal(cut, at, err)
					}
					p := r.Plan.Episodes[0]
					if cut != edit.CutSnap && (p.From != at || p.To != n-at%3) {
						t.Fatalf("%s %d: %+v", cut, at, p)
					}
					if got := codes(t, open(t, dst), key, 0); !slices.Equal(got, all[p.From:p.To]) {
						t.Errorf("%s at %d: %v", cut, at, got)
					}
					if cut == edit.CutHidden || cut == edit.CutExact && r.Video.Hidden > 0 {
						healthy(t, dst)
					}
					counts.Copied, counts.Hidden, counts.Frames, counts.Joined, counts.Encoded, counts.Rows = counts.Copied+r.Video.Copied, counts.Hidden+r.Video.Hidden, counts.Frames+r.Video.Frames, counts.Joined+r.Video.Joined, counts.Encoded+r.Video.Encoded, counts.Rows+r.Video.Rows
				}
				if cut == edit.CutSnap && counts.Encoded > 0 ||
					cut == edit.CutExact && counts.Hidden > 0 ||
					cut == edit.CutHidden && counts.Hidden == 0 {
					t.Errorf("%s: %+v", cut, counts)
				}
				if long := strings.HasSuffix(c.name, "-long"); cut == edit.CutExact && long &&
					(counts.Joined < 3 || counts.Encoded > 0 || counts.Rows > 60) {
					t.Errorf(
						"%s: %+v: more than the frames up to a key frame were encoded",
						cut,
						counts,
					)
				}
				t.Logf("%s: %+v", cut, counts)
			}
		})
	}
}
