package e2e

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/synth"
)

// writeSynth writes three short episodes with two H.264 cameras and returns the number of rows.
func writeSynth(t testing.TB, dir string) int64 {
	t.Helper()
	rep, err := synth.Write(
		t.Context(),
		dir,
		synth.Options{Episodes: 3, Seconds: 1.5, Cameras: 2, Codec: "h264", Seed: 4},
	)
	if err != nil {
		t.Fatal(err)
	}
	return rep.Frames
}

// converted converts a set unchanged, or with the episodes in another order and encoded again.
func converted(t testing.TB, from, to string, order []int) {
	t.Helper()
	opt := convert.Options{WriteOptions: robocache.WriteOptions{Episodes: order}}
	var options map[string]string
	if order != nil {
		options = map[string]string{"video_codec": "h264", "gop": "10"}
	}
	if _, err := toLeRobot(t.Context(), open(t, from), to, opt, options); err != nil {
		t.Fatal(err)
	}
}

// codeOf decodes the bar code of synth from a frame with channels first.
func codeOf(chw []byte, w, h int) (episode, row int, ok bool) {
	n := w * h
	hwc := make([]byte, 3*n)
	for i := range n {
		hwc[3*i], hwc[3*i+1], hwc[3*i+2] = chw[i], chw[n+i], chw[2*n+i]
	}
	return synth.ReadCode(hwc, w, h)
}

// wantClean fails if doctor finds an error or a warning.
func wantClean(t testing.TB, ds robocache.Dataset) {
	t.Helper()
	found, err := ds.(*lerobot.Dataset).Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Severity != robocache.SeverityInfo {
			t.Errorf("doctor: %s: %s (%v)", f.Code, f.Message, f.Where)
		}
	}
}
