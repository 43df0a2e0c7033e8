package aloha

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
)

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Data gives external tests access to data.
var Data = data

// data returns the shared data, or data of the same layout from testdata/make.py.
func data(t *testing.T) string {
	t.Helper()
	dir, ok := realdata.Find(t, "aloha_like")
	if ok {
		return dir
	}
	py := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no shared data, and no .venv with h5py to make some: ", err)
	}
	dir = filepath.Join(t.TempDir(), "aloha_like")
	if out, err := exec.CommandContext(t.Context(), py, "testdata/make.py", dir).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func open(t *testing.T, opt robocache.OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), data(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestReal compares both episodes with h5py. Images must end at the end of their JPEG (aloha.A1 to
// aloha.A3).
func TestReal(t *testing.T) {
	d := open(t, robocache.OpenOptions{})
	info, dir := d.Info(), d.Info().URI
	if info.Episodes != 2 || info.Frames != 160 || info.FPS.Float() != 50 ||
		len(info.Features) != 5 {
		t.Fatalf("%+v", info)
	}
	paths := map[string]string{
		"action":           "action",
		"observation.qpos": "observations/qpos",
		"observation.qvel": "observations/qvel",
	}
	for e := range 2 {
		var o struct {
			Objects map[string]struct {
				SHA string `json:"sha256"`
			} `json:"objects"`
			JPEG map[string]map[string]struct {
				Length int    `json:"length"`
				Shape  []int  `json:"shape"`
				RGB    string `json:"rgb_sha256"`
			} `json:"jpeg_rgb"`
		}
		b, err := os.ReadFile(filepath.Join(dir, "oracle", fmt.Sprintf("episode_%d.json", e)))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatal(err)
		}
		rows := make([]robocache.Row, d.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		for key, path := range paths {
			got := make([]byte, len(rows)*info.Feature(key).RowBytes())
			if err := d.Gather(t.Context(), key, rows, got); err != nil {
				t.Fatal(err)
			}
			if sum(got) != o.Objects[path].SHA {
				t.Error(e, key)
			}
		}
		for cam, images := range o.JPEG {
			refs := make([]robocache.FrameRef, len(rows))
			if err := d.Frames(t.Context(), "observation.images."+cam, rows, refs); err != nil {
				t.Fatal(err)
			}
			for row, want := range images {
				var k int
				json.Unmarshal([]byte(row), &k)
				ref := &refs[k]
				if len(ref.Encoded) != want.Length {
					t.Errorf("%d bytes, want %d", len(ref.Encoded), want.Length)
				}
				rgb := make([]byte, want.Shape[0]*want.Shape[1]*3)
				if err := video.DecodeImage(ref, &video.Spec{}, rgb); err != nil {
					t.Fatal(err)
				}
				if sum(rgb) != want.RGB {
					t.Error("other pixels", e, cam, row)
				}
			}
		}
	}
}

// TestChannelOrder checks that the option channel_order swaps red and blue of the cameras that it
// names, and of no others (aloha.A5).
func TestChannelOrder(t *testing.T) {
	plain, swapped := open(
		t,
		robocache.OpenOptions{},
	), open(
		t,
		robocache.OpenOptions{Options: map[string]string{"channel_order": "cam_high=bgr"}},
	)
	rgb := func(d *Dataset, key string) []byte {
		ref := make([]robocache.FrameRef, 1)
		if err := d.Frames(t.Context(), key, []robocache.Row{{Episode: 0, Index: 3}}, ref); err !=
			nil {
			t.Fatal(err)
		}
		out := make([]byte, 320*240*3)
		if err := video.DecodeImage(&ref[0], &video.Spec{}, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := rgb(plain, "observation.images.cam_high"), rgb(swapped, "observation.images.cam_high")
	for i := 0; i < len(a); i += 3 {
		if a[i] != b[i+2] || a[i+1] != b[i+1] || a[i+2] != b[i] {
			t.Fatal("pixel", i/3)
		}
	}
	if sum(rgb(plain, "observation.images.cam_low")) !=
		sum(rgb(swapped, "observation.images.cam_low")) {
		t.Error("the other camera was swapped too")
	}
	for _, bad := range []string{"grb", "cam_left=bgr"} {
		if _, err := Open(
			t.Context(),
			data(t),
			robocache.OpenOptions{Options: map[string]string{"channel_order": bad}},
		); !errors.Is(
			err,
			robocache.ErrMisuse,
		) {
			t.Error(bad, err)
		}
	}
}

// TestOneFile opens a single file as a dataset of one episode. --rows-hz overrides the default rate
// (aloha.A4).
func TestOneFile(t *testing.T) {
	d, err := robocache.Open(
		t.Context(),
		filepath.Join(data(t), "episode_1.hdf5"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 30, Den: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ts, err := d.Times(t.Context(), 0, "")
	if err != nil || len(ts) != 90 || ts[3] != 100_000_000 {
		t.Error(ts, err)
	}
	if d.Info().Format != "aloha" || len(d.Info().Findings) != 0 {
		t.Errorf("%+v", d.Info())
	}
}
