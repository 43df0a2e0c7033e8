package loader_test

import (
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// TestRealOneDirectoryForAll checks that loaders with all kinds of options, and of several
// datasets, can share a cache directory. Each gets what it would decode, regardless of which loader
// wrote it.
func TestRealOneDirectoryForAll(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"g1_v30_exact", "g1_h264_v30"} {
		ds := testdata(t, name)
		ts := truthsOf(t, ds)
		var cameras []string
		for _, f := range ds.Info().Features {
			if f.Kind == robocache.KindVideo {
				cameras = append(cameras, f.Key)
			}
		}
		norms := func(mean float64) loader.Normalize {
			n := loader.Normalize{Keys: map[string]loader.Norm{}}
			for _, c := range cameras {
				n.Keys[c] = loader.Norm{
					Mode: "mean_std",
					Mean: []float64{mean},
					Std:  []float64{0.5},
				}
			}
			return n
		}
		for round := range 2 {
			for i, cfg := range []loader.Config{
				{},
				{CacheOptions: loader.CacheOptions{CacheFormat: "rgb"}},
				{Images: loader.Images{ImageSize: []int{48, 64}}},
				{Images: loader.Images{ImageSize: []int{64, 48}}},
				{
					Images:       loader.Images{ImageSize: []int{48, 64}},
					CacheOptions: loader.CacheOptions{CacheFormat: "yuv"},
				},
				{Images: loader.Images{ImageDType: "float32", ImageSize: []int{48, 64}}},
				{
					Images:     loader.Images{ImageDType: "float32", ImageSize: []int{48, 64}},
					Statistics: loader.Statistics{Normalize: norms(0.5)},
				},
				{
					Images:     loader.Images{ImageDType: "float32", ImageSize: []int{48, 64}},
					Statistics: loader.Statistics{Normalize: norms(0.25)},
				},
				{
					Windows: loader.Windows{Compat: "lerobot"},
					Images:  loader.Images{ImageSize: []int{48, 64}},
				},
				{
					Windows:      loader.Windows{Compat: "lerobot"},
					Images:       loader.Images{ImageSize: []int{48, 64}},
					CacheOptions: loader.CacheOptions{CacheFormat: "yuv"},
				},
				{
					Images: loader.Images{ImageSize: []int{48, 64}},
					Windows: loader.Windows{
						Deltas: loader.Deltas{
							{Key: cameras[0], Offsets: back(2, ds.Info().FPS.Float())},
						},
					},
				},
			} {
				t.Run(fmt.Sprint(name, " ", round, " ", i), func(t *testing.T) {
					cfg.Cache, cfg.Shuffle, cfg.Episodes, cfg.BatchSize, cfg.Seed, cfg.Threads, cfg.DropTail, cfg.Keys = dir, loader.Global, []int{
						0,
					}, 8, 3, 2, ds.Len(
						0,
					)-24, cameras
					if i%3 == 0 {
						cfg.Shuffle = loader.Pool
					}
					if s := equalsMap(t, ts, cfg, 1)[0]; round == 1 && s.FramesUnique > 0 {
						t.Errorf("%d frames were decoded that the directory has", s.FramesUnique)
					}
				})
			}
		}
	}
}
