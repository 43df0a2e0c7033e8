package zarr

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestFirstRowsDecideNothing checks that float images are recognized even if some episodes are
// black, and that every array is a stream of all episodes.
func TestFirstRowsDecideNothing(t *testing.T) {
	for name, c := range map[string]struct {
		value func(row int) float32
		kind  robocache.Kind
	}{
		"black first": {func(row int) float32 {
			return float32(row / 4 * 50)
		}, robocache.KindImage},
		"black last": {func(row int) float32 {
			return float32((19 - row) / 4 * 50)
		}, robocache.KindImage},
		"0 to 1":    {func(row int) float32 { return float32(row) / 20 }, robocache.KindNumeric},
		"all black": {func(int) float32 { return 0 }, robocache.KindNumeric},
	} {
		t.Run(name, func(t *testing.T) {
			var pix, ends []byte
			for row := range 20 {
				for range 8 * 8 * 3 {
					pix = binary.LittleEndian.AppendUint32(pix, math.Float32bits(c.value(row)))
				}
				if row%4 == 3 {
					ends = binary.LittleEndian.AppendUint64(ends, uint64(row+1))
				}
			}
			array := func(shape, chunks, dtype string) string {
				return fmt.Sprintf(
					`{"zarr_format":2,"shape":[%s],"chunks":[%s],"dtype":"%s","compressor":null,`+
						`"fill_value":0,"order":"C","filters":null}`,
					shape,
					chunks,
					dtype,
				)
			}
			d, err := OpenStore(t.Context(), mem(map[string]string{
				".zgroup":                   `{"zarr_format":2}`,
				"data/rgb/.zarray":          array("20,8,8,3", "20,8,8,3", "<f4"),
				"data/rgb/0.0.0.0":          string(pix),
				"data/state/.zarray":        array("20,3", "20,3", "<f4"), // without a chunk: zeros
				"meta/episode_ends/.zarray": array("5", "5", "<i8"),
				"meta/episode_ends/0":       string(ends),
			}), robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if f := d.Info().Feature("observation.rgb"); f == nil || f.Kind != c.kind {
				t.Errorf("%+v, want %s", f, c.kind)
			}
			for e := range 5 {
				rows := []robocache.Row{{Episode: e, Index: 3}}
				if err := d.Gather(t.Context(), "observation.state", rows, make([]byte, 12)); err !=
					nil {
					t.Error(e, err)
				}
			}
		})
	}
}
