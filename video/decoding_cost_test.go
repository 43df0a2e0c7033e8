package video

import (
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestDecodingCost checks how many frames are decoded per frame in random order, and which codecs
// the engines of a GPU decode, for files of the test data.
func TestDecodingCost(t *testing.T) {
	for set, c := range map[string]struct {
		decoded float64 // (GOP + 1) / 2 if all GOPs have one length; 0: any
		why     string
		advised Codec
	}{
		"g1_v30_exact":         {1.5, "no GPU engine decodes av1", HEVC},
		"g1_h264_v30":          {15.2, "", H264},
		"gr00t_picknplace_v20": {0, "", H264},
	} {
		t.Run(set, func(t *testing.T) {
			e, decoded := firstVideo(t, realdata.Path(t, filepath.Join(set, "videos")))
			if c.decoded > 0 && math.Abs(decoded-c.decoded) > 0.06 || decoded < 1 {
				t.Errorf("%.2f frames are decoded for one, want %.2f", decoded, c.decoded)
			}
			if why := OffEngine(e); (why == "") != (c.why == "") || !strings.HasPrefix(why, c.why) {
				t.Errorf("OffEngine: %q, want %q", why, c.why)
			}
			if got := Advised(e); got != c.advised {
				t.Errorf("Advised: %s, want %s", got, c.advised)
			}
		})
	}
}

// firstVideo returns the sample entry of the first mp4 below dir, and its decoded frames per frame.
func firstVideo(t *testing.T, dir string) (*SampleEntry, float64) {
	t.Helper()
	var path string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && path == "" && strings.HasSuffix(p, ".mp4") {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("no mp4 below %s: %v", dir, err)
	}
	ix, err := ReadIndex(t.Context(), readFile(t, path), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &ix.Entries()[0], ix.DecodedPerFrame()
}

// TestEngineLimits checks the reasons why the engines of a GPU do not decode a video, and the
// advised codec.
func TestEngineLimits(t *testing.T) {
	for why, e := range map[string]*SampleEntry{
		"frames of 40×40: the engines decode h264 from 48×16": {Codec: H264, Width: 40, Height: 40},
		"no GPU engine decodes mp4v": {
			FourCC: "mp4v",
			Width:  640,
			Height: 480,
		},
	} {
		if got := OffEngine(e); !strings.HasPrefix(got, why) {
			t.Errorf("%q, not %q", got, why)
		}
		if got := Advised(e); got != map[bool]Codec{true: H264, false: HEVC}[e.Width < 144] {
			t.Error(got)
		}
	}
}
