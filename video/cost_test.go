package video

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the files of the test data cost to decode in random order, and which of them a GPU's engines take.
func TestDecodingCost(t *testing.T) {
	root := dataDir(t)
	for set, c := range map[string]struct {
		decoded float64 // (GOP + 1) / 2 where GOPs are even
		why     string
		advised Codec
	}{
		"g1_v30_exact":         {1.5, "no GPU engine is used for av1", HEVC},
		"g1_h264_v30":          {15.2, "", H264},
		"gr00t_picknplace_v20": {0, "", H264},
	} {
		var path string
		_ = filepath.Walk(filepath.Join(root, set, "videos"), func(p string, i os.FileInfo, err error) error {
			if err == nil && path == "" && strings.HasSuffix(p, ".mp4") {
				path = p
			}
			return nil
		})
		ix, err := ReadIndex(t.Context(), readFile(t, path), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		e := &ix.Entries()[0]
		if n := ix.DecodedPerFrame(); c.decoded > 0 && math.Abs(n-c.decoded) > 0.06 || n < 1 {
			t.Errorf("%s: %.2f frames are decoded for one, not %.2f", set, n, c.decoded)
		}
		if why := OffEngine(e); (why == "") != (c.why == "") || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %q, not %q", set, why, c.why)
		}
		if got := Advised(e); got != c.advised {
			t.Errorf("%s: %s, not %s", set, got, c.advised)
		}
	}
	for why, e := range map[string]*SampleEntry{
		"frames of 40×40: engines take h264 from 48×16 on": {Codec: H264, Width: 40, Height: 40},
		"no GPU engine is used for mp4v":                   {FourCC: "mp4v", Width: 640, Height: 480},
	} {
		if got := OffEngine(e); !strings.HasPrefix(got, why) {
			t.Errorf("%q, not %q", got, why)
		}
		if got := Advised(e); got != map[bool]Codec{true: H264, false: HEVC}[e.Width < 144] {
			t.Error(got)
		}
	}
}
