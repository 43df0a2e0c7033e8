package cli

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
)

// The decoding cost of frames is measured, and another encoding is tried.
func TestDecodeCost(t *testing.T) {
	set := realdata.Path(t, "g1_v30_exact")
	costSpan = 100 * time.Millisecond
	defer func() { costSpan = 2 * time.Second }()
	code, out, errs := call(
		t,
		"inspect",
		set,
		"--decode-cost",
		"--codec",
		"h264",
		"--gop",
		"4",
		"--json",
	)
	if code != exitDone {
		t.Fatal(code, errs)
	}
	var r struct {
		Streams  []inspect.Stream
		Decoding *inspect.Decoding `json:"decode_cost"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Streams {
		if s.Codec != "" &&
			(math.Abs(s.Decoded-1.5) > 0.01 || s.NVDEC == nil || *s.NVDEC ||
				!strings.Contains(s.NotNVDEC, "av1")) {
			t.Errorf("%+v", s)
		}
	}
	d := r.Decoding
	if d == nil || len(d.Streams) != 1 || d.Trial == nil || d.Trial.Problem != "" ||
		len(d.Trial.Streams) != 1 {
		t.Fatalf("%+v", d)
	}
	is, trial := d.Streams[0], d.Trial.Streams[0]
	if math.Abs(is.Decoded-1.5) > 0.01 || is.CPU == nil || is.CPU.Samples == 0 || is.CPU.CPU <= 0 ||
		is.Bytes < 1000 {
		t.Errorf("%+v", is)
	}
	if trial.Decoded != 2.5 || trial.CPU == nil || trial.SizeRatio <= 0.01 || trial.SizeRatio > 3 ||
		trial.PSNR < 30 ||
		trial.LeastPSNR > trial.PSNR {
		t.Errorf("%+v", trial)
	}
	if _, err := video.OpenDevice(0); err != nil && (is.GPU != nil || is.NoGPU == "") {
		t.Errorf("no GPU is here: %+v", is)
	}
	if !strings.HasSuffix(d.Trial.Command, "DST --codec h264 --gop 4") {
		t.Error(d.Trial.Command)
	}
	if code, out, errs = call(t, "inspect", set, "--decode-cost"); code != exitDone ||
		!strings.Contains(out, "128 frames of episode 2 as hevc, GOP 8") ||
		!strings.Contains(out, "decoded on the CPU: no GPU engine decodes av1") {
		t.Error(code, out, errs)
	}
}

func TestDecodeCostRefused(t *testing.T) {
	set := realdata.Path(t, "g1_v30_exact")
	for say, c := range map[string][]string{
		"--decode-cost is of the whole dataset": {set, "--decode-cost", "--episode", "1"},
		"go with --decode-cost":                 {set, "--codec", "hevc"},
		"expected av1, h264 or hevc":            {set, "--decode-cost", "--codec", "vp9"},
		"(at least 1)":                          {set, "--decode-cost", "--gop", "0"},
		"the dataset has no video": {
			realdata.Path(t, "robomimic_like"),
			"--decode-cost",
		},
	} {
		code, _, errs := call(t, append([]string{"inspect"}, c...)...)
		if want := map[bool]int{
			true:  12,
			false: exitMisuse,
		}[strings.Contains(say, "no video")]; code != want ||
			!strings.Contains(errs, say) {
			t.Errorf("%v: exit code %d, %q", c, code, errs)
		}
	}
}

// Long distances between key frames are reported, but not as a fault.
func TestDoctorTellsOfLongGOPs(t *testing.T) {
	code, out, _ := call(t, "doctor", realdata.Path(t, "g1_h264_v30"))
	if code != exitDone ||
		!strings.Contains(out, "long-gop: a frame in random order makes 15.2 be decoded") ||
		!strings.Contains(out, "robocache edit reencode SRC DST --codec=h264 --gop=8") {
		t.Error(code, out)
	}
	if _, out,
		_ = call(t, "doctor", realdata.Path(t, "g1_v30_exact")); strings.Contains(out, "long-gop") {
		t.Error(out)
	}
}
