package zarr_test

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestSuite runs the tests that every format must pass.
func TestSuite(t *testing.T) {
	ten := robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}}
	for _, name := range []string{
		"diffusion_policy_zarr/replay_buffer.zarr",
		"diffusion_policy_zarr/replay_buffer.zarr.zip",
		"zarr/v2/data.zarr",
		"zarr/v3/data.zarr",
		"zarr/v3/data.zipped_from_parent.zarr.zip",
	} {
		t.Run(name, func(t *testing.T) {
			formattest.Run(
				t,
				formattest.Fixture{URI: realdata.Path(t, name), Format: "zarr", Options: ten},
			)
		})
	}
}
