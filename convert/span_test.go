package convert_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/synth"
)

// apart is a dataset in which one stream was recorded an hour later.
type apart struct {
	robocache.Dataset
	key string
}

func (a *apart) Times(ctx context.Context, e int, key string) ([]int64, error) {
	out, err := a.Dataset.Times(ctx, e, key)
	if key == a.key {
		out = append([]int64(nil), out...)
		for i := range out {
			out[i] += 3600e9
		}
	}
	return out, err
}

// Streams without a common time range are rejected by name, with the timestamps that do not
// overlap, by every writer that needs one grid. No files remain.
func TestNoSharedSpan(t *testing.T) {
	made := synthetic(t, bent)
	key := ""
	for _, f := range made.Info().Features {
		if f.Clock != "" && f.Kind == robocache.KindNumeric {
			key = f.Key
		}
	}
	src := &apart{made, key}
	times, err := src.Times(t.Context(), 0, key)
	if err != nil {
		t.Fatal(err)
	}
	hz := robocache.Rate{Num: 20, Den: 1}
	for _, format := range []string{"lerobot", "robomimic", "rlds", "zarr"} {
		dst := filepath.Join(t.TempDir(), "new", "out")
		_, err := Write(t.Context(), src, format, dst, Options{FPS: hz}, nil)
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrMisuse) || !errors.As(err, &e) ||
			!strings.Contains(e.Msg, "share no span") ||
			!strings.Contains(e.Msg, key) ||
			!strings.Contains(e.Msg, fmt.Sprintf("%d.%09d s", times[0]/1e9, times[0]%1e9)) ||
			!strings.Contains(e.Hint, "union") {
			t.Errorf("%s: %v", format, err)
		}
		if _, err := os.Stat(filepath.Dir(dst)); !os.IsNotExist(err) {
			t.Errorf("%s: a folder is left", format)
		}
	}
	opt := Options{Align: &align.Config{HZ: hz, Extent: key}, Images: "images"}
	if _,
		err := Write(t.Context(), src, "zarr", filepath.Join(t.TempDir(), "out"), opt, nil); err !=
		nil && strings.Contains(err.Error(), "share no span") {
		t.Errorf("another extent: %v", err)
	}
}

// The error for a format without a writer lists the formats that have one.
func TestWrites(t *testing.T) {
	for name, class := range map[string]error{
		"foo":     robocache.ErrUnsupported,
		"calvin":  robocache.ErrUnsupported,
		"lerobot": nil,
		"hdf5":    nil,
		"mcap":    nil,
	} {
		_, err := convert.Writer(name)
		var e *robocache.Error
		if class == nil && err != nil ||
			class != nil &&
				(!errors.Is(err, class) || !errors.As(err, &e) ||
					!strings.Contains(e.Hint, "lerobot, mcap") ||
					strings.Contains(e.Hint, "calvin")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A topic that ends early, or has few messages, shortens the grid. A finding names it and counts
// what is left out.
func TestSpanDropped(t *testing.T) {
	src := synthetic(t, synth.Options{
		Episodes: 2,
		Seconds:  2,
		Cameras:  -1,
		Seed:     3,
		Late:     1200 * time.Millisecond,
		Rates:    map[string]float64{"camera": 30, "joints": 100},
	})
	dst := filepath.Join(t.TempDir(), "out")
	r, err := Write(
		t.Context(),
		src,
		"robomimic",
		dst,
		Options{FPS: robocache.Rate{Num: 20, Den: 1}},
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(
		r.Findings,
		func(f robocache.Finding) bool { return f.Code == "span-dropped" },
	)
	if at < 0 || r.Findings[at].Count == 0 || r.Findings[at].Hint == "" ||
		!strings.Contains(r.Findings[at].Message, "observation.joints") {
		t.Errorf("%+v", r.Findings)
	}
	same := synthetic(t, synth.Options{
		Episodes: 2,
		Seconds:  2,
		Cameras:  -1,
		Rates:    map[string]float64{"camera": 30, "joints": 100},
	})
	r, err = Write(
		t.Context(),
		same,
		"robomimic",
		dst+"2",
		Options{FPS: robocache.Rate{Num: 20, Den: 1}},
		nil,
	)
	if err != nil ||
		slices.ContainsFunc(
			r.Findings,
			func(f robocache.Finding) bool { return f.Code == "span-dropped" },
		) {
		t.Errorf("%v %+v", err, r)
	}
}
