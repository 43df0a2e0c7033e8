package loader

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// turner is a robot whose "pose" is a rotation vector about one axis that jumps from π to -π, and a
// width behind it.
type turner struct{ *robot }

func newTurner() *turner {
	r := &turner{newRobot(4)}
	r.info.Feature("pose").Rotations = []robocache.Rotation{{At: 0, Form: robocache.FormRotVec}}
	return r
}

var axle = [3]float64{0.48, -0.6, 0.64}

func turnedBy(t int64) float64 { return math.Remainder(5*float64(t-epoch)*1e-9, 2*math.Pi) }

func (r *turner) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if key != "pose" {
		return r.robot.Gather(ctx, key, rows, dst)
	}
	for i, row := range rows {
		t := r.times(row.Episode, key)[row.Index]
		for k := range 4 {
			v := float64(t-epoch) * 1e-9
			if k < 3 {
				v = axle[k] * turnedBy(t)
			}
			binary.LittleEndian.PutUint64(dst[8*(4*i+k):], math.Float64bits(v))
		}
	}
	return nil
}

// TestRotationsInBatches: on a timeline, and in a window of a span resampled to a count, rotation
// vectors are turned and the width is linear.
func TestRotationsInBatches(t *testing.T) {
	for name, cfg := range map[string]options.Config{
		"timeline": {
			Align: &align.Config{
				HZ:     robocache.Rate{Num: 200, Den: 1},
				MaxGap: align.PerKey[align.Nanos]{All: 20e6},
			},
			Windows: options.Windows{Keys: []string{"pose"}},
			Order:   options.Order{BatchSize: 64},
		},
		"window": {
			Align: &align.Config{MaxGap: align.PerKey[align.Nanos]{All: 20e6}},
			Windows: options.Windows{
				Keys:   []string{"cam", "pose"},
				Anchor: "cam",
				Native: NativeWindows{{Key: "pose", Span: &[2]float64{-0.2, 0}, Count: 16}},
			},
			Order: options.Order{BatchSize: 8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ds := newTurner()
			l, err := New(context.Background(), ds, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			seen, jumps := 0, 0
			for {
				b, err := l.Next(context.Background())
				if err != nil {
					break
				}
				pose, pad := field(t, b, "pose"), field(t, b, "pose_is_pad")
				for i := range len(pose) / 32 {
					if pad[i] != 0 {
						continue
					}
					at := func(k int) float64 {
						return math.Float64frombits(binary.LittleEndian.Uint64(pose[8*(4*i+k):]))
					}
					along := at(0)*axle[0] + at(1)*axle[1] + at(2)*axle[2]
					want := math.Remainder(5*at(3), 2*math.Pi) // the width is the time
					if d := math.Abs(math.Remainder(along-want, 2*math.Pi)); d > 1e-6 {
						t.Fatalf("turned by %g at %g s, want %g", along, at(3), want)
					}
					if math.Abs(want) > math.Pi-0.01 {
						jumps++
					}
					seen++
				}
				b.Release()
			}
			if seen < 400 || jumps == 0 {
				t.Errorf("%d rows, %d of them at a jump", seen, jumps)
			}
		})
	}
}

func field(t *testing.T, b *layout.Batch, key string) []byte {
	t.Helper()
	for i := range b.Tensors {
		if b.Tensors[i].Key == key {
			return b.Tensors[i].Data
		}
	}
	t.Fatalf("no %s in the batch", key)
	return nil
}
