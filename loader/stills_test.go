package loader

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Still frames: each distinct row of a batch is decoded once, and stands wherever a window wants
// it.
func TestStills(t *testing.T) {
	f := newFake(30, 25).withStills()
	offsets := []int{-2, -1, 0}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 10},
			Runtime: options.Runtime{Threads: 3},
			Windows: options.Windows{
				Keys:   []string{"img", "index"},
				Deltas: deltas("img", []float64{-0.2, -0.1, 0}),
			},
		},
	)
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rows, err := l.Rows(b.Indices)
		if err != nil {
			t.Fatal(err)
		}
		img := b.Tensor("img")
		const plane = fakeW * fakeH
		for i, r := range rows {
			for k, o := range offsets {
				want := stillColour(
					robocache.Row{
						Episode: r.Episode,
						Index:   min(max(r.Index+o, 0), f.lengths[r.Episode]-1),
					},
				)
				p := img.Data[(i*len(offsets)+k)*3*plane:]
				if p[0] != want.R || p[plane] != want.G || p[2*plane+plane-1] != want.B {
					t.Fatalf("frame of %v offset %d is another one", r, o)
				}
			}
		}
		b.Release()
	}
	// File order, windows back by two: at most two more distinct rows a batch than samples.
	if s := l.Stats(); s.Frames != 165 || s.Stills > 55+2*6 {
		t.Errorf("%d frames, %d decoded", s.Frames, s.Stills)
	}
}

func TestStillsAsFloatAndResized(t *testing.T) {
	f := newFake(5).withStills()
	m, err := NewMap(
		bg,
		f,
		options.Config{
			Windows: options.Windows{Compat: "lerobot", Keys: []string{"img", "cam"}},
			Images:  options.Images{ImageDType: "uint8", ImageSize: []int{2, 3}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// The reference's uint8 is for video alone.
	if x := m.Fields()[1]; x.Key != "img" || x.DType != robocache.Float32 || x.Shape[1] != 2 ||
		x.Shape[2] != 3 {
		t.Errorf("%+v", x)
	}
	m2, err := NewMap(
		bg,
		f,
		options.Config{
			Images:  options.Images{ImageDType: "float32", ImageSize: []int{2, 3}},
			Windows: options.Windows{Keys: []string{"img"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m2.Close()
	b, err := m2.Items(bg, []int64{4})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if v := column.Floats32(b.Tensor("img").Data); v[6] != 4.0/255 || v[12] != 8.0/255 {
		t.Errorf("%v", v)
	}
}

func TestBrokenStill(t *testing.T) {
	f := newFake(10, 10).withStills()
	f.frames.missing = map[robocache.Row]bool{{Episode: 1, Index: 3}: true}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 10},
			Windows: options.Windows{Keys: []string{"img"}},
		},
	)
	if b, err := l.Next(bg); err != nil {
		t.Fatal(err)
	} else {
		b.Release()
	}
	_, err := l.Next(bg)
	if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "episode 1") ||
		!strings.Contains(err.Error(), "row 3") {
		t.Errorf("%v", err)
	}
	skip := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 10, OnBadEpisode: "skip"},
			Windows: options.Windows{Keys: []string{"img"}},
		},
	)
	if got, _ := epochOf(t, nil, skip); len(got) != 10 {
		t.Errorf("%d samples", len(got))
	}
}
