package loader

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/options"
)

// logged is a robot whose recorder has timestamped "imu" too, 40 ms late.
type logged struct{ *robot }

func (d logged) Capabilities() *robocache.Capabilities {
	own := *d.robot.Capabilities()
	own.Clocks = func(string) []string { return []string{"header", "log"} }
	own.TimesBy = func(_ context.Context, episode int, key, clock string) ([]int64, error) {
		times := slices.Clone(d.times(episode, key))
		for i := range times {
			if clock == "log" {
				times[i] += 40e6
			}
		}
		return times, nil
	}
	return &own
}

// TestMaskKeepsClocks checks that on_nan="mask" keeps the clocks of a stream.
func TestMaskKeepsClocks(t *testing.T) {
	hz := robocache.Rate{Num: 20, Den: 1}
	imu := func(how options.OnNaN, clock string) []byte {
		t.Helper()
		cfg := options.Config{
			Align:   &align.Config{Extent: "joints", Clock: map[string]string{"imu": clock}},
			Order:   options.Order{OnNaN: how},
			Windows: options.Windows{Keys: []string{"imu", "joints"}, Hz: &hz},
		}
		b, err := mustMap(t, logged{newRobot(3)}, cfg).Items(bg, []int64{20, 21, 22})
		if err != nil {
			t.Fatalf("on_nan=%s, clock %s: %v", how, clock, err)
		}
		defer b.Release()
		return bytes.Clone(b.Tensor("imu").Data)
	}
	want := imu(options.NaNAllow, "log")
	if got := imu(options.NaNMask, "log"); !bytes.Equal(got, want) {
		t.Errorf("on_nan=mask: values by the clock log are %v, want %v", got, want)
	}
	if bytes.Equal(want, imu(options.NaNMask, "header")) {
		t.Error("the clocks log and header give the same values")
	}
}
