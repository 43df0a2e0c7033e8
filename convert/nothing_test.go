package convert_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
)

// convert.C6: a dataset without any stream that can be written is rejected by every format. No
// files remain.
func TestNothingLeft(t *testing.T) {
	src, err := robocache.Open(
		t.Context(),
		data(t, "pointclouds/kitti"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, format := range []string{"lerobot", "robomimic", "zarr"} {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := Write(t.Context(), src, format, dst, Options{FPS: src.Info().FPS}, nil)
		if !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%s: %v", format, err)
		}
		if _, err := os.Lstat(dst); err == nil && len(tree(t, dst)) > 0 {
			t.Errorf("%s: files are left at the destination", format)
		}
	}
	_, err = Write(t.Context(), src, "mcap", filepath.Join(t.TempDir(), "out"), Options{},
		nil)
	if err != nil {
		t.Errorf("mcap keeps point clouds: %v", err)
	}
}
