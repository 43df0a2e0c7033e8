package clouds_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/clouds"
)

// TestTimeUnits checks that times in ms, us and ns are not read as seconds, and that epoch times
// which float32 has rounded are an error.
func TestTimeUnits(t *testing.T) {
	scale := map[string]float64{"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}
	for unit, k := range scale {
		for _, base := range []float64{0, 1.7e9} {
			text := ""
			for i := range 4 {
				text += fmt.Sprintf("%.0f\n", (base+float64(i)*0.1)*k)
				if unit == "s" {
					text = strings.TrimSuffix(text, fmt.Sprintf("%.0f\n", base+float64(i)*0.1)) +
						fmt.Sprintf("%.1f\n", base+float64(i)*0.1)
				}
			}
			dir := timed(t, text)
			d, err := clouds.Open(t.Context(), dir, "kitti", robocache.OpenOptions{})
			if err != nil {
				t.Errorf("%s from %g: %v", unit, base, err)
				continue
			}
			times, err := d.Times(t.Context(), 0, "")
			want := make([]int64, 4)
			for i := range want {
				want[i] = int64(base)*1e9 + int64(i)*1e8
			}
			if err != nil || !slices.Equal(times, want) {
				t.Errorf("%s from %g: %v, want %v: %v", unit, base, times, want, err)
			}
			has := slices.ContainsFunc(
				d.Info().Findings,
				func(f robocache.Finding) bool { return f.Code == "timestamp-unit" },
			)
			if has != (unit != "s") {
				t.Errorf("%s from %g: %v", unit, base, d.Info().Findings)
			}
			d.Close()
		}
	}
	d, err := clouds.Open(
		t.Context(),
		timed(t, "0\n100\n200\n300\n"),
		"kitti",
		robocache.OpenOptions{Options: map[string]string{"timestamp_unit": "s"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if times, err := d.Times(t.Context(), 0, ""); err != nil || times[3] != 300e9 {
		t.Error(times, err)
	}
	_, err = clouds.Open(
		t.Context(),
		timed(t, "1700000000\n1700000000\n1700000128\n1700000128\n"),
		"kitti",
		robocache.OpenOptions{},
	)
	if !errors.Is(err, robocache.ErrNoClock) || !strings.Contains(err.Error(), "float32") ||
		!strings.Contains(err.Error(), "times.txt") {
		t.Error(err)
	}
}

// timed writes a folder of four scans with a list of times.
func timed(t *testing.T, text string) string {
	return folder(t, map[string][]byte{
		"velodyne/000000.bin": {},
		"velodyne/000001.bin": {},
		"velodyne/000002.bin": {},
		"velodyne/000003.bin": {},
		"times.txt":           []byte(text),
	})
}
