package zarr

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestDiagnose expects no findings for an intact store. It expects findings for a damaged chunk and
// for timestamps that go backwards.
func TestDiagnose(t *testing.T) {
	d := open(
		t,
		filepath.Join(realdata.Path(t, "diffusion_policy_zarr"), "replay_buffer.zarr"),
		ten,
	)
	if found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true}); err != nil ||
		len(found) != 0 {
		t.Error(found, err)
	}
	one := strings.Repeat("\x00", 6) + "\xf0\x3f"
	two := strings.Repeat("\x00", 7) + "\x40"
	nan := strings.Repeat("\x00", 6) + "\xf8\x7f"
	meta := func(shape string) string {
		return fmt.Sprintf(
			`{"zarr_format":2,"shape":%s,"chunks":[2],"dtype":"<f8","compressor":null,"fill_value":0,"order":"C","filters":null}`,
			shape,
		)
	}
	m := mem(map[string]string{
		".zgroup":                   `{"zarr_format":2}`,
		"meta/episode_ends/.zarray": strings.Replace(meta("[2]"), "<f8", "<i8", 1),
		"meta/episode_ends/0":       "\x03\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00",
		"data/a/.zarray": meta(
			"[6]",
		),
		"data/a/0":               one + nan,
		"data/a/1":               one,
		"data/a/2":               one + one,
		"data/timestamp/.zarray": meta("[6]"),
		"data/timestamp/0":       two + one,
		"data/timestamp/1":       two + one,
		"data/timestamp/2":       one + two,
	})
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
	// The damaged chunk is reported for both episodes.
	if err != nil || codes["bad-chunk"] != 2 || codes["timestamps-backwards"] != 1 {
		t.Error(found, err)
	}
}

// TestNotFinite checks that the doctor reports the first NaN of a stream and the count, once.
func TestNotFinite(t *testing.T) {
	const one = "\x00\x00\x00\x00\x00\x00\xf0\x3f"
	const nan = "\x00\x00\x00\x00\x00\x00\xf8\x7f"
	array := `{"zarr_format":2,"shape":%s,"chunks":%[1]s,"dtype":"%s","compressor":null,"fill_value":0,"order":"C","filters":null}`
	d, err := OpenStore(t.Context(), mem(map[string]string{
		".zgroup":                   `{"zarr_format":2}`,
		"meta/episode_ends/.zarray": fmt.Sprintf(array, "[2]", "<i8"),
		"meta/episode_ends/0":       "\x02\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00",
		"data/action/.zarray":       fmt.Sprintf(array, "[4,2]", "<f8"),
		"data/action/0.0":           one + one + one + one + one + one + one + nan,
		"data/state/.zarray":        fmt.Sprintf(array, "[4,2]", "<f8"),
		"data/state/0.0":            one + one + nan + one + one + one + nan + nan,
	}), ten)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all, err := diagnose.Run(t.Context(), d, robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range all {
		if f.Code == "not-finite" {
			found = append(found, fmt.Sprintf("%s: %s (%d)", f.Where, f.Message, f.Count))
		}
	}
	want := []string{
		"episode 1, stream action, row 1, index 1: 1 values are NaN or infinite; the first is " +
			"element 1: NaN (1)",
		"episode 0, stream observation.state, row 1, index 0: 3 values are NaN or infinite; the " +
			"first is element 0: NaN (3)",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
