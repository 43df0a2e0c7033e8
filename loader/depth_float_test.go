package loader

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// metric is a robot whose camera gives depth as float metres, uncoded.
type metric struct{ *robot }

func (m metric) Frames(
	_ context.Context,
	_ string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	for i, r := range rows {
		pix := make([]byte, 4*fakeW*fakeH)
		for k := range fakeW * fakeH {
			binary.LittleEndian.PutUint32(pix[4*k:], math.Float32bits(0.5+float32(r.Index)/8))
		}
		out[i] = robocache.FrameRef{
			Raw: &robocache.Raw{
				Pix:      pix,
				Height:   fakeH,
				Width:    fakeW,
				Channels: 1,
				DType:    robocache.Float32,
			},
		}
	}
	return nil
}

// Float depth without a code is depth also where image_size leaves no frame to be looked at first.
func TestFloatDepthStills(t *testing.T) {
	r := newRobot(1)
	f := r.info.Feature("cam")
	f.DType, f.Channels, f.Shape = robocache.Float32, 1, []int{fakeH, fakeW, 1}
	for _, size := range [][]int{nil, {2, 3}} {
		for unit, scale := range map[string]float32{"m": 1, "mm": 1000} {
			b := allOf(
				t,
				mustMap(
					t,
					metric{r},
					options.Config{
						Windows: options.Windows{Keys: []string{"cam"}},
						Images: options.Images{
							ImageSize: size,
							DepthUnit: options.DepthUnit(unit),
						},
					},
				),
			)
			x := b.Tensor("cam")
			if x.DType != robocache.Float32 || x.Shape[1] != 1 {
				t.Fatalf("%v %v", x.DType, x.Shape)
			}
			if got, want := column.Floats32(x.Data)[4*len(x.Data)/4/b.Rows], (0.5+
				4.0/8)*scale; got != want {
				t.Errorf("size %v, unit %s: row 4 is %v, expected %v", size, unit, got, want)
			}
		}
	}
}
