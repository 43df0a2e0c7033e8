package zarr_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kzstd "github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/zarr"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

// small writes a store of few episodes. Its chunks of episode ends, timestamps and texts have about
// 256 bytes or less before compression.
func small(t *testing.T, episodes int) (string, robocache.Dataset) {
	t.Helper()
	src, err := synth.New(
		synth.Options{
			Episodes: episodes,
			Seconds:  0.5,
			Cameras:  1,
			Tasks:    []string{"push", "wait"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	dst := filepath.Join(t.TempDir(), "small.zarr")
	if _, err := zarr.Write(t.Context(), src, dst, robocache.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst, src
}

// TestFramesSayTheirSize checks that every zstd frame is a single segment with its content size,
// which numcodecs up to 0.16.1 needs.
func TestFramesSayTheirSize(t *testing.T) {
	for _, episodes := range []int{1, 3, 40} {
		dst, _ := small(t, episodes)
		frames, short := 0, 0
		err := filepath.WalkDir(dst, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var h kzstd.Header
			if err := h.Decode(b); err != nil {
				t.Errorf("%s: %v", path, err)
				return nil
			}
			d, _ := kzstd.NewReader(nil)
			defer d.Close()
			whole, err := d.DecodeAll(b, nil)
			if err != nil || !h.HasFCS || !h.SingleSegment ||
				h.FrameContentSize != uint64(len(whole)) {
				t.Errorf(
					"%s: content size %v of %d bytes, single segment %v: %v",
					path,
					h.HasFCS,
					len(whole),
					h.SingleSegment,
					err,
				)
			}
			if frames++; len(whole) < 256 {
				short++
			}
			return nil
		})
		if err != nil || frames < 5 || episodes < 32 && short == 0 {
			t.Errorf("%d frames, %d below 256 bytes: %v", frames, short, err)
		}
	}
}

// arraysOf reads every array of a store and prints its values.
const arraysOf = `
import sys, json, numpy as np, zarr, numcodecs
g = zarr.open_group(sys.argv[1], mode="r")
out = {}
for part in ("data", "meta"):
    for name in g[part]:
        a = g[part][name][...]
        out[part + "/" + name] = {"rows": len(a), "text": [str(x) for x in a.ravel()] if a.dtype.kind == "O" else [], "hex": a.tobytes().hex() if a.dtype.kind != "O" else ""}
print(json.dumps({"versions": [zarr.__version__, numcodecs.__version__], "arrays": out}))
`

// TestPinnedReader opens a store of three episodes with the zarr and numcodecs versions that
// diffusion_policy pins, and compares the values.
func TestPinnedReader(t *testing.T) {
	py := filepath.Join(realdata.Root(t), ".venv-zarr", "bin", "python")
	if _, err := os.Stat(py); err != nil {
		t.Skip(
			"skipped: no Python with diffusion_policy's zarr 2.12.0 and numcodecs 0.10.2 (make " +
				"test-zarr makes .venv-zarr)",
		)
	}
	dst, src := small(t, 3)
	var stderr bytes.Buffer
	cmd := exec.Command(py, "-c", arraysOf, dst)
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("the reader failed: %v\n%s", err, stderr.Bytes())
	}
	var got struct {
		Versions []string
		Arrays   map[string]struct {
			Rows int
			Text []string
			Hex  string
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	t.Log("zarr, numcodecs:", got.Versions)
	compared := 0
	for i := range src.Info().Features {
		f := &src.Info().Features[i]
		a, ok := got.Arrays["data/"+strings.TrimPrefix(
			strings.TrimPrefix(f.Key, "observation.images."),
			"observation.",
		)]
		if f.Kind != robocache.KindNumeric || !ok {
			continue
		}
		var want []byte
		for e := range 3 {
			want = append(want, stream(t, src, f, e)...)
		}
		if a.Hex != hex.EncodeToString(want) {
			t.Errorf("%s differs", f.Key)
		}
		compared++
	}
	var tasks []string
	for e := range 3 {
		ep, err := src.Episode(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, ep.Tasks...)
	}
	if read := got.Arrays["meta/episode_task"].Text; compared < 2 || !slices.Equal(read, tasks) ||
		got.Arrays["meta/episode_ends"].Rows != 3 {
		t.Errorf(
			"%d streams compared, tasks %q, %d ends: %v",
			compared,
			read,
			got.Arrays["meta/episode_ends"].Rows,
			slices.Sorted(maps.Keys(got.Arrays)),
		)
	}
}
