package zarr_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// TestHTTP checks that a consolidated folder and an archive over http equal the local ones. A store
// that cannot be listed is an error that says so.
func TestHTTP(t *testing.T) {
	s, err := loopback.Serve(realdata.Path(t, "."), loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ten := robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}}
	local, err := robocache.Open(
		t.Context(),
		realdata.Path(t, "diffusion_policy_zarr/replay_buffer.zarr"),
		ten,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, name := range []string{"replay_buffer.zarr", "replay_buffer.zarr.zip"} {
		d, err := robocache.Open(t.Context(), s.URL+"/diffusion_policy_zarr/"+name, ten)
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range local.Info().Features {
			f := &local.Info().Features[i]
			if !bytes.Equal(stream(t, local, f, 1), stream(t, d, d.Info().Feature(f.Key), 1)) {
				t.Errorf("%s: %s differs", name, f.Key)
			}
		}
		d.Close()
	}
	if _, err := robocache.Open(t.Context(), s.URL+"/zarr/v3/data.zarr",
		robocache.OpenOptions{Format: "zarr", HZ: ten.HZ}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
}
