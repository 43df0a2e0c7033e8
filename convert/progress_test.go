package convert_test

import (
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/synth"
)

// Every writer reports progress in rows, within episodes too. The last report covers all rows.
func TestProgressWithinEpisode(t *testing.T) {
	for _, format := range []string{"lerobot", "mcap", "rlds", "robomimic", "zarr", "delta"} {
		t.Run(format, func(t *testing.T) {
			src, err := synth.New(
				synth.Options{Episodes: 2, Seconds: 2, Cameras: 1, Width: 64, Height: 64},
			)
			if err != nil {
				t.Fatal(err)
			}
			var within bool
			var last robocache.Progress
			options := convert.Options{
				WriteOptions: robocache.WriteOptions{
					Threads: 1,
					Progress: func(p robocache.Progress) {
						if p.Done < last.Done || p.Episodes < last.Episodes {
							t.Errorf("%+v follows %+v", p, last)
						}
						within = within || p.Episodes == 0 && p.Done > 0 && p.Done < p.Total
						last = p
					},
				},
			}
			dst := filepath.Join(t.TempDir(), "out")
			if _, err := convert.Write(t.Context(), src, format, dst, options); err != nil {
				t.Fatal(err)
			}
			if !within {
				t.Error("no report within the first episode")
			}
			want := robocache.Progress{
				Done:          120,
				Total:         120,
				Unit:          "rows",
				Episodes:      2,
				TotalEpisodes: 2,
			}
			if last != want {
				t.Errorf("the last report is %+v, want %+v", last, want)
			}
		})
	}
}
