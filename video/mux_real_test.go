package video

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestConcatRealEpisodes joins the episodes of the real v2.x datasets, and compares every frame
// with the oracle of its episode (video.V9).
func TestConcatRealEpisodes(t *testing.T) {
	t.Parallel() // most of the work is in other programs
	tool(t, "ffmpeg")
	root := dataDir(t)
	for set, rate := range map[string]robocache.Rate{
		"g1_v21":               {Num: 30, Den: 1},
		"gr00t_picknplace_v20": {Num: 20, Den: 1},
	} {
		paths, _ := filepath.Glob(filepath.Join(root, set, "videos", "*", "*", "*.mp4"))
		if len(paths) == 0 {
			t.Logf("%s is not here", set)
			continue
		}
		slices.Sort(paths)
		if testing.Short() {
			paths = paths[:2]
		}
		var parts []Part
		var want []string
		for _, p := range paths {
			f := fileOf(t, p)
			parts = append(parts, Part{f, 0, f.Index.NumFrames()})
			oracle, _ := filepath.Glob(
				filepath.Join(
					root,
					set,
					"oracle",
					"*"+strings.TrimSuffix(filepath.Base(p), ".mp4")+"*.framemd5",
				),
			)
			if len(oracle) != 1 {
				t.Fatalf("%s: %d oracles", p, len(oracle))
			}
			b, err := os.ReadFile(oracle[0])
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, digests(string(b))...)
		}
		var out bytes.Buffer
		if err := Concat(t.Context(), &out, parts, rate); err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		path := filepath.Join(t.TempDir(), "all.mp4")
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		ix := indexOf(t, path)
		for k := range ix.NumFrames() {
			if got, want := ix.TimeNS(k), rate.Nanos(int64(k)); got != want {
				t.Fatalf("%s: frame %d at %d ns, want %d", set, k, got, want)
			}
		}
		got := digests(
			string(
				runTool(
					t,
					"ffmpeg",
					"-v",
					"error",
					"-nostdin",
					"-i",
					path,
					"-map",
					"0:v:0",
					"-fps_mode",
					"passthrough",
					"-pix_fmt",
					"yuv420p",
					"-f",
					"framemd5",
					"-",
				),
			),
		)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d frames, oracle %d, or they differ", set, len(got), len(want))
		}
		t.Logf("%s: %d episodes, %d frames", set, len(paths), len(got))
	}
}

// digests returns the last column of a framemd5.
func digests(text string) (h []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			h = append(h, strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:]))
		}
	}
	return h
}
