package loader

import (
	"context"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// skewed is a robot whose inertia was timestamped by a clock that is ahead and runs fast. Its
// values are those of the true times.
type skewed struct {
	*robot
	ahead int64
	ppm   float64
}

func (s *skewed) Times(ctx context.Context, e int, key string) ([]int64, error) {
	t, err := s.robot.Times(ctx, e, key)
	if key != "imu" && key != "pose" || len(t) == 0 {
		return t, err
	}
	first := t[0]
	for i := range t {
		t[i] = first + s.ahead + int64(math.Round(float64(t[i]-first)*(1+s.ppm*1e-6)))
	}
	return t, err
}

// TestDrift checks loader.L26 and align.A18: with its drift and offset configured, a stream of a
// wrong clock delivers the values of a correct clock. This holds on a grid, at the anchor's rows,
// in windows and in spans. Streams of one clock may be corrected differently.
func TestDrift(t *testing.T) {
	r := newRobot(1.5, 2.9)
	s := &skewed{newRobot(1.5, 2.9), 40e6, 250}
	both := func(v align.Nanos) map[string]align.Nanos {
		return map[string]align.Nanos{"imu": v, "pose": v}
	}
	drift := func(ppm float64) map[string]robocache.Drift {
		return map[string]robocache.Drift{"imu": {PPM: ppm}, "pose": {PPM: ppm}}
	}
	keys := []string{"joints", "imu", "pose"}
	for name, cfg := range map[string]options.Config{
		"rows": {Windows: options.Windows{Keys: keys}},
		"grid": {
			Align:   &align.Config{HZ: robocache.Rate{Num: 50, Den: 1}},
			Windows: options.Windows{Keys: keys},
		},
		"anchor": {Windows: options.Windows{Keys: keys, Anchor: "imu"}},
		"windows": {
			Windows: options.Windows{
				Keys: keys,
				Native: NativeWindows{
					{Key: "imu", Span: &[2]float64{-0.1, 0.1}, Count: 7},
					{Key: "pose", Span: &[2]float64{-0.05, 0}},
				},
			},
		},
		"deltas": {
			Windows: options.Windows{Keys: keys, Deltas: deltas("imu", []float64{-0.1, 0, 0.1})},
		},
	} {
		want := allOf(t, mustMap(t, r, cfg))
		a := align.Config{Offset: both(-40e6), Drift: drift(250)}
		if cfg.Align != nil {
			a.HZ = cfg.Align.HZ
		}
		cfg.Align = &a
		got := allOf(t, mustMap(t, s, cfg))
		if got.Rows != want.Rows {
			t.Fatalf("%s: %d samples, want %d", name, got.Rows, want.Rows)
		}
		for _, key := range keys {
			x, y := got.Tensor(key), want.Tensor(key)
			if len(x.Data) != len(y.Data) {
				t.Fatalf("%s: %s has %d bytes, want %d", name, key, len(x.Data), len(y.Data))
			}
			u, v := column.AsSlice[float64](x.Data), column.AsSlice[float64](y.Data)
			if key == "joints" {
				continue
			}
			for i := range u {
				// timestamps rounded to the nanosecond, at most 19 a second
				if math.Abs(u[i]-v[i]) > 1e-7 {
					t.Fatalf("%s: %s differs at %d: %v, want %v", name, key, i, u[i], v[i])
				}
			}
		}
	}
	// One of the two only: the other is as it was timestamped.
	cfg := options.Config{Align: &align.Config{
		HZ:     robocache.Rate{Num: 50, Den: 1},
		Extent: "joints",
		Offset: map[string]align.Nanos{"imu": -40e6},
		Drift:  map[string]robocache.Drift{"imu": {PPM: 250}},
	}, Windows: options.Windows{Keys: keys}}
	got := allOf(t, mustMap(t, s, cfg))
	cfg.Align = &align.Config{HZ: cfg.Align.HZ, Extent: "joints"}
	want, wrong := allOf(t, mustMap(t, r, cfg)), allOf(t, mustMap(t, s, cfg))
	off := func(a, b *layout.Batch, key string) (worst float64) {
		x, y := column.AsSlice[float64](a.Tensor(key).Data),
			column.AsSlice[float64](b.Tensor(key).Data)
		for i := range x {
			worst = max(worst, math.Abs(x[i]-y[i]))
		}
		return worst
	}
	if off(got, want, "imu") > 1e-7 || off(got, wrong, "pose") != 0 ||
		off(wrong, want, "imu") < 0.1 {
		t.Errorf(
			"imu is off by %g (uncorrected %g), pose differs from the uncorrected by %g",
			off(got, want, "imu"),
			off(wrong, want, "imu"),
			off(got, wrong, "pose"),
		)
	}
	if _, err := NewMap(
		bg,
		r,
		options.Config{
			Align:   &align.Config{Drift: map[string]robocache.Drift{"imu": {PPM: 1e9}}},
			Windows: options.Windows{Keys: keys},
		},
	); err == nil {
		t.Error("a clock of a thousand times the speed is taken")
	}
}
