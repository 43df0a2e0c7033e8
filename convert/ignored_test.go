package convert_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
)

const lidarPoints = "points"

// clouded is a dataset with a lidar. It has one scan for every 9 camera frames, and none in the
// second half.
type clouded struct{ *holed }

func newClouded(t *testing.T) *clouded {
	t.Helper()
	d := &clouded{newHoled(t, 0, 0, 1)}
	d.info.Features = append(d.info.Features, robocache.Feature{
		Key:   lidarPoints,
		Kind:  robocache.KindPointCloud,
		DType: robocache.Float32,
		Shape: []int{-1, 3},
		Clock: "lidar",
	})
	return d
}

func (d *clouded) Times(ctx context.Context, e int, key string) ([]int64, error) {
	if key != lidarPoints {
		return d.holed.Times(ctx, e, key)
	}
	times, err := d.Dataset.Times(ctx, e, holedCamera)
	var out []int64
	for k := 0; k < len(times); k += 9 {
		if k <= len(times)/4 || k+9 >= len(times) {
			out = append(out, times[k])
		}
	}
	return out, err
}

func (d *clouded) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{GatherRagged: d.GatherRagged}
}

func (d *clouded) GatherRagged(
	_ context.Context,
	_ string,
	rows []robocache.Row,
) ([]byte, []int, error) {
	return make([]byte, len(rows)*12), slices.Repeat([]int{1}, len(rows)), nil
}

// TestDroppedStreamIsIgnored checks that a stream that the format cannot hold causes no findings
// about rates or gaps, no mask, and no split of episodes. A format that can hold it reports them.
func TestDroppedStreamIsIgnored(t *testing.T) {
	for format, keeps := range map[string]bool{
		"lerobot":   false,
		"robomimic": false,
		"zarr":      false,
		"delta":     false,
		"rlds":      true,
		"mcap":      true,
	} {
		for _, dropInvalid := range []bool{false, true} {
			hz := robocache.Rate{Num: 30, Den: 1}
			opt := convert.Options{
				WriteOptions: robocache.WriteOptions{FPS: hz},
				Align:        &align.Config{HZ: hz},
				DropInvalid:  dropInvalid,
			}
			if format == "lerobot" { // encoding takes longer than the rest
				opt.Options = map[string]string{"images": "images"}
			}
			src := newClouded(t)
			r, err := convert.Write(
				t.Context(),
				src,
				format,
				filepath.Join(t.TempDir(), "out"),
				opt,
			)
			if err != nil {
				t.Fatal(format, err)
			}
			said := slices.ContainsFunc(r.Findings, func(f robocache.Finding) bool {
				return f.Where["stream"] == lidarPoints &&
					slices.Contains(
						[]string{"frames-repeated", "rows-in-gaps", "rows-outside"},
						f.Code,
					)
			})
			if said != keeps {
				t.Errorf(
					"%s, DropInvalid %t: a finding about the dropped stream's rate: %t\n%+v",
					format,
					dropInvalid,
					said,
					r.Findings,
				)
			}
			if slices.Contains(r.Dropped, lidarPoints) == keeps {
				t.Errorf("%s: dropped %v", format, r.Dropped)
			}
			if cut := r.Episodes > src.Info().Episodes; cut != (keeps && dropInvalid) {
				t.Errorf(
					"%s, DropInvalid %t: %d episodes of %d",
					format,
					dropInvalid,
					r.Episodes,
					src.Info().Episodes,
				)
			}
			if f := finding(r.Findings, "max-gap"); f == nil ||
				strings.Contains(f.Message, lidarPoints) != keeps {
				t.Errorf("%s: %+v", format, f)
			}
		}
	}
}
