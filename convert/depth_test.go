package convert_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/calvin"
	"github.com/goatnote-inc/robocache/video"
)

// C8: depth in float32 is declared as a depth map in metres, and keeps its bits.
func TestFloatDepth(t *testing.T) {
	src := open(t, data(t, "calvin_like"))
	dst := filepath.Join(t.TempDir(), "set")
	report, err := ToLeRobot(t.Context(), src, dst, Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := open(t, dst)
	const key = "observation.depth_static"
	f := out.Info().Feature(key)
	if f.Kind != robocache.KindImage || f.DType != robocache.Float32 || f.Channels != 1 ||
		f.Depth == nil ||
		f.Depth.Unit != "m" {
		t.Errorf("read back as %+v", f)
	}
	told := 0
	for _, f := range report.Findings {
		if f.Code == "no-image-statistics" && f.Where["stream"] == key {
			told++
		}
	}
	if told != 1 {
		t.Errorf("that floats have no statistics is said %d times: %+v", told, report.Findings)
	}
	rows := rowsOf(0, src.Len(0))
	a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
	if err := errors.Join(src.Frames(t.Context(), key, rows, a),
		out.Frames(t.Context(), key, rows, b)); err != nil {
		t.Fatal(err)
	}
	spec := &video.Spec{Pixel: video.DepthM, Depth: f.Depth}
	for i := range a {
		x, y := make([]byte, 4*f.Height*f.Width), make([]byte, 4*f.Height*f.Width)
		err := errors.Join(video.DecodeImage(&a[i], spec, x),
			video.DecodeImage(&b[i], spec, y))
		if err != nil || !bytes.Equal(x, y) {
			t.Fatalf("row %d: %v", i, err)
		}
	}
}
