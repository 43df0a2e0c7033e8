package loader

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestSourcesHaveTheirOwnImages compares the frames of sources with a filter, with steps and with
// neither with those of Maps that have the same options.
func TestSourcesHaveTheirOwnImages(t *testing.T) {
	const steps = `[{"resize": [8, 9], "fit": "letterbox", "filter": "pil-bilinear"},
		{"resize": [3, 5], "filter": "cv2-area"}]`
	parse := func(text string) options.Config {
		return parsedConfig(t, `{"keys": ["wide"], `+text+`, "shuffle": "global", "batch_size": 7}`)
	}
	loaderOptions := parse(`"image_size": [3, 5], "image_resize": "crop"`)
	alone := []options.Config{
		loaderOptions,
		parse(`"image_size": [3, 5], "image_resize": "crop", "image_filter": "nearest"`),
		parse(`"image_transform": ` + steps),
	}
	mix := []Mix{{}, {MixFrames: MixFrames{ImageFilter: "nearest"}}, {
		MixFrames: MixFrames{Transform: alone[2].Transform},
	}}
	var maps []*Map
	for i := range mix {
		f := newFake(5, 6).withWide()
		f.tag = string(rune('a' + i))
		mix[i].Dataset = f
		own := alone[i]
		own.Shuffle = FileOrder
		m, err := NewMap(bg, f, own)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		maps = append(maps, m)
	}
	l, err := NewMix(bg, mix, loaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		b, err := l.Next(bg)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, sample := range b.Indices {
			src, number := l.assembler.SourceOf(sample)
			want, err := maps[src.Index].Items(bg, []int64{number})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(batchValue(b, "wide", i), want.Tensor("wide").Data) {
				t.Errorf("source %d: a frame is not that of its own options", src.Index)
			}
			want.Release()
		}
		b.Release()
	}
	// A size of a source replaces the steps of the loader.
	mix[0].ImageSize, mix[1].ImageSize = []int{3, 5}, []int{3, 5}
	if l, err = NewMix(bg, mix, alone[2]); err != nil {
		t.Fatal(err)
	}
	l.Close()
	mix[0].ImageFilter = "sharp"
	if _, err := NewMix(bg, mix, loaderOptions); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("an unknown filter: %v", err)
	}
}
