package cli

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// TestSynthSameSamples: the same seed and options give the same samples, timestamps and losses in
// every format. A finding reports what a format cannot hold.
func TestSynthSameSamples(t *testing.T) {
	dir := t.TempDir()
	options := []string{
		"--episodes",
		"2",
		"--seconds",
		"3",
		"--cameras",
		"2",
		"--rates",
		"camera=30,joints=100,force=333",
		"--jitter",
		"2ms",
		"--gaps",
		"0.2",
		"--seed",
		"7",
		"--codec",
		"png",
		"--json",
	}
	made := func(format string) (robocache.Dataset, []robocache.Finding) {
		t.Helper()
		dst := filepath.Join(dir, format, "1.0.0")
		code, out, errs := call(
			t,
			append([]string{"synth", dst, "--format", format}, options...)...)
		var r struct{ Findings []robocache.Finding }
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
			t.Fatalf("%s: exit %d: %s%s", format, code, out, errs)
		}
		ds, err := mapping.Open(t.Context(), dst, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(format, err)
		}
		t.Cleanup(func() { ds.Close() })
		return ds, r.Findings
	}
	want, _ := made("mcap")
	lost := 0
	for _, format := range []string{"lerobot", "zarr", "rlds", "robomimic"} {
		ds, found := made(format)
		for e := range 2 {
			for _, key := range []string{"observation.state", "action"} {
				if got := column(t, ds, key, e); !slices.Equal(got, column(t, want, key, e)) ||
					len(got) == 0 {
					t.Errorf("%s: %s of episode %d differs", format, key, e)
				}
			}
			recorded := map[string]string{
				"observation.state":        "observation.state.recorded",
				"observation.images.cam_0": "observation.images.cam_0.recorded",
				"observation.images.cam_1": "observation.images.cam_1.recorded",
			}
			for key, held := range recorded {
				times, err := want.Times(t.Context(), e, key)
				if err != nil {
					t.Fatal(err)
				}
				if got := nanos(column(t, ds, held, e)); !slices.Equal(got, times) {
					t.Errorf(
						"%s: timestamps of %s in episode %d differ: %d rows, %d messages",
						format,
						key,
						e,
						len(got),
						len(times),
					)
				}
				lost += 90 - len(times)
			}
			for _, cam := range []string{"observation.images.cam_0", "observation.images.cam_1"} {
				if a, b := imagesOf(t, ds, cam, e), imagesOf(t, want, cam, e); !slices.Equal(a, b) {
					t.Errorf("%s: frames of %s in episode %d differ", format, cam, e)
				}
			}
		}
		for _, key := range []string{"observation.joints", "observation.force"} {
			after := 0
			for e := range 2 {
				times, err := want.Times(t.Context(), e, key)
				if err != nil {
					t.Fatal(err)
				}
				values := column(t, want, key, e)
				d := len(values) / len(times)
				var got []float64
				var at []int64
				rows, timestamps, counts := column(t, ds, key, e), column(t, ds, key+
					".recorded", e), column(t, ds, key+".count", e)
				k := len(timestamps) / len(counts)
				for r, n := range counts {
					at = append(at, nanos(timestamps[r*k:r*k+int(n)])...)
					got = append(got, rows[r*k*d:(r*k+int(n))*d]...)
				}
				if len(at) > len(times) || !slices.Equal(at, times[:len(at)]) ||
					!slices.Equal(got, values[:len(got)]) {
					t.Errorf(
						"%s: samples of %s in episode %d differ: %d of %d",
						format,
						key,
						e,
						len(at),
						len(times),
					)
					continue
				}
				after += len(times) - len(at)
			}
			i := slices.IndexFunc(
				found,
				func(f robocache.Finding) bool {
					return f.Code == "samples-after-last-row" && f.Where["stream"] == key
				},
			)
			if (i >= 0) != (after > 0) || i >= 0 && found[i].Count != int64(after) || after > 40 {
				t.Errorf("%s: %d samples of %s are in no row: %+v", format, after, key, found)
			}
		}
	}
	if lost == 0 {
		t.Error("no row was lost: the test does not see losses")
	}
	// On a grid the values differ, and a finding says so.
	for _, args := range [][]string{{"--hz", "20"}, {"--late", "100ms"}} {
		code, out, errs := call(
			t,
			append(
				append(
					[]string{"synth", filepath.Join(dir, "grid"+args[0]), "--format", "zarr"},
					options...),
				args...)...)
		var r struct{ Findings []robocache.Finding }
		if err := json.Unmarshal(
			[]byte(out),
			&r,
		); err != nil || code != exitDone ||
			!slices.ContainsFunc(
				r.Findings,
				func(f robocache.Finding) bool { return f.Code == "resampled" },
			) {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
}

func rowsIn(t *testing.T, ds robocache.Dataset, key string, e int) []robocache.Row {
	t.Helper()
	n, err := robocache.RowsIn(t.Context(), ds, e, ds.Info().Feature(key))
	if err != nil {
		t.Fatal(key, err)
	}
	rows := make([]robocache.Row, n)
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i}
	}
	return rows
}

// column returns the values of a numeric stream in an episode.
func column(t *testing.T, ds robocache.Dataset, key string, e int) []float64 {
	t.Helper()
	f := ds.Info().Feature(key)
	if f == nil {
		t.Fatalf("%s has no %s", ds.Info().Format, key)
	}
	rows := rowsIn(t, ds, key, e)
	b := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(t.Context(), key, rows, b); err != nil {
		t.Fatal(key, err)
	}
	return robocache.Float64s(nil, f.DType, b)
}

func nanos(seconds []float64) (out []int64) {
	for _, s := range seconds {
		out = append(out, int64(math.Round(s*1e9)))
	}
	return out
}

// imagesOf returns the bar code and the sum of the pixels of an episode's frames.
func imagesOf(t *testing.T, ds robocache.Dataset, key string, e int) (out []uint64) {
	t.Helper()
	rows := rowsIn(t, ds, key, e)
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), key, rows, refs); err != nil {
		t.Fatal(key, err)
	}
	spec := &video.Spec{Pixel: video.RGB8, Width: 128, Height: 96}
	for i := range refs {
		rgb := make([]byte, 3*128*96)
		if err := video.DecodeImage(&refs[i], spec, rgb); err != nil {
			t.Fatal(key, err)
		}
		_, row, ok := synth.ReadCode(rgb, 128, 96)
		if !ok || row != i {
			t.Fatalf("%s: frame %d shows row %d", key, i, row)
		}
		sum := uint64(0)
		for ; len(rgb) >= 8; rgb = rgb[8:] {
			sum = sum*31 + binary.LittleEndian.Uint64(rgb)
		}
		out = append(out, sum)
	}
	return out
}
