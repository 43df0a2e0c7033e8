package loader

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// interrupted is a dataset of which the first reads of "action" fail for want of a network.
type interrupted struct {
	*holed
	failures int
}

func (d *interrupted) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) error {
	if key == "action" && d.failures > 0 {
		d.failures--
		return &robocache.Error{
			Class: robocache.ErrTemporary,
			Op:    "test",
			Msg:   "the network is down",
		}
	}
	return d.holed.Gather(ctx, key, rows, dst)
}

// TestFailedScanIsRepeated checks that a scan for NaN that failed is not remembered as clean.
func TestFailedScanIsRepeated(t *testing.T) {
	m, err := NewMap(
		bg,
		&interrupted{newHoled(), 1},
		options.Config{Windows: options.Windows{Keys: []string{"action"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// Row 2 of episode 1 is finite itself, rows 4 and 7 are not.
	if _, err := m.Items(bg, []int64{12}); !errors.Is(err, robocache.ErrTemporary) {
		t.Fatalf("without a network: %v, want a temporary error", err)
	}
	if _, err := m.Items(bg, []int64{12}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("with a network: %v, want malformed", err)
	}
}

// bare is a robot with one NaN in "joints".
type bare struct{ *robot }

func (d bare) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	err := d.robot.Gather(ctx, key, rows, dst)
	for i, r := range rows {
		if key == "joints" && r.Index == 3 {
			copy(column.AsSlice[float32](dst)[3*i:], []float32{float32(math.NaN())})
		}
	}
	return err
}

// TestMaskKeepsClouds checks that on_nan="mask" does not hide streams of varying length.
func TestMaskKeepsClouds(t *testing.T) {
	clouds := func(how options.OnNaN) (counts []int) {
		cfg := options.Config{
			Order:   options.Order{BatchSize: 4, OnNaN: how},
			Windows: options.Windows{Anchor: "points", Keys: []string{"points", "joints"}},
		}
		l, err := New(bg, bare{newRobot(3)}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				return counts
			}
			if err != nil {
				t.Fatalf("on_nan=%s: %v", how, err)
			}
			counts = append(counts, b.Tensor("points").Shape...)
			counts = append(counts, len(b.Tensor("points").Data))
			b.Release()
		}
	}
	want := clouds(options.NaNAllow)
	got := clouds(options.NaNMask)
	if len(want) < 8 {
		t.Fatalf("%d numbers", len(want))
	}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("clouds of on_nan=mask %v, want %v", got, want)
		}
	}
}
