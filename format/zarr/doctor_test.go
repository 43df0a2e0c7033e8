package zarr

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestDiagnose: a whole store has no findings; a damaged chunk, NaN and timestamps that go back are found where they are.
func TestDiagnose(t *testing.T) {
	d := open(t, filepath.Join(realdata.Path(t, "diffusion_policy_zarr"), "replay_buffer.zarr"), ten)
	if found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true}); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
	one := strings.Repeat("\x00", 6) + "\xf0\x3f"
	two := strings.Repeat("\x00", 7) + "\x40"
	nan := strings.Repeat("\x00", 6) + "\xf8\x7f"
	meta := func(shape string) string {
		return fmt.Sprintf(`{"zarr_format":2,"shape":%s,"chunks":[2],"dtype":"<f8","compressor":null,"fill_value":0,"order":"C","filters":null}`, shape)
	}
	m := mem(map[string]string{".zgroup": `{"zarr_format":2}`, "meta/episode_ends/.zarray": strings.Replace(meta("[2]"), "<f8", "<i8", 1), "meta/episode_ends/0": "\x03\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00",
		"data/a/.zarray": meta("[6]"), "data/a/0": one + nan, "data/a/1": one, "data/a/2": one + one, "data/timestamp/.zarray": meta("[6]"), "data/timestamp/0": two + one, "data/timestamp/1": two + one, "data/timestamp/2": one + two})
	b, err := OpenStore(t.Context(), m, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	found, err := b.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	codes := map[string]int{}
	for _, f := range found {
		codes[f.Code]++
	}
	// The short chunk is met from both episodes.
	if err != nil || codes["bad-chunk"] != 2 || codes["not-finite"] != 1 || codes["timestamps-backwards"] != 1 {
		t.Error(found, err)
	}
}
