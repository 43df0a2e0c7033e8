package bench

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	_ "github.com/goatnote-inc/robocache/format/all"
)

// Every format can be measured: folders, single files, and rows without a stated rate.
func TestLoadFormats(t *testing.T) {
	for name, hz := range map[string]string{
		"aloha_like":                     "",
		"bridge_rlds":                    "",
		"calvin_like":                    "",
		"g1_v21":                         "",
		"mcap_robot/recording_zstd.mcap": "",
		"mcap_robot/recording_db3":       "", "robomimic_like/earliest_gzip.hdf5": "",
		"pointclouds/kitti":    "10",
		"pointclouds/nuscenes": "", "rosbag2": "", "diffusion_policy_zarr/replay_buffer.zarr": "10",
	} {
		w := Workload{
			URI:       realdata.Path(t, name),
			RowsHZ:    hz,
			BatchSize: 4,
			Workers:   2,
			Epochs:    1,
			Video:     "none",
		}
		out, err := LoadRun(t.Context(), w, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if out.Samples == 0 {
			t.Errorf("%s: no samples", name)
		}
		ds, err := w.openDataset(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Suite{URI: w.URI, Base: w}).describeSet(t.Context(), ds); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ds.Close()
	}
}

// A case that needs missing shared data reports that.
func TestFormatsWithoutSharedData(t *testing.T) {
	t.Setenv("ROBOCACHE_TESTDATA", "")
	for _, kind := range []string{"zarr", "rlds"} {
		_, err := (&Sets{Work: t.TempDir()}).formatData(t.Context(), kind)
		if !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), "ROBOCACHE_TESTDATA") {
			t.Error(err)
		}
	}
}
