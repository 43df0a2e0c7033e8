package loader_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// TestRealMixture checks that a mixture delivers what each source delivers alone, under its renamed
// keys. Keys that a source lacks are zero and masked.
func TestRealMixture(t *testing.T) {
	ctx := context.Background()
	a, b := testdata(t, "g1_v30_exact"), testdata(t, "g1_h264_v30")
	camera := func(ds robocache.Dataset) string {
		for _, f := range ds.Info().Features {
			if f.Kind == robocache.KindVideo {
				return f.Key
			}
		}
		return ""
	}
	size := []int{48, 64}
	three, one := 3.0, 1.0
	for _, shuffle := range []loader.Shuffle{loader.Global, loader.Pool} {
		sources := []loader.Mix{
			{
				Dataset:   a,
				Name:      "a",
				Weight:    &three,
				Keys:      []string{"image", "observation.state", "episode_index", "task"},
				Rename:    map[string]string{camera(a): "image"},
				Episodes:  []int{0, 1},
				MixFrames: loader.MixFrames{ImageSize: size},
			},
			{
				Dataset:   b,
				Name:      "b",
				Weight:    &one,
				Keys:      []string{"image", "observation.state", "action", "episode_index"},
				Rename:    map[string]string{camera(b): "image"},
				Episodes:  []int{0, 2},
				MixFrames: loader.MixFrames{ImageSize: size},
			},
		}
		cfg := loader.Config{
			Mixture: loader.Mixture{EpochSize: 80},
			Order:   loader.Order{BatchSize: 16, Seed: 5, Shuffle: shuffle, DropTail: 100},
			Windows: loader.Windows{Missing: "pad"},
		}
		m, err := loader.NewMix(ctx, sources, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var alone []*loader.Map
		var offsets []int64
		var offset int64
		for i, ds := range []robocache.Dataset{a, b} {
			one, err := loader.NewMap(
				ctx,
				ds,
				loader.Config{
					Order:  loader.Order{Episodes: sources[i].Episodes, DropTail: 100},
					Images: loader.Images{ImageSize: size},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			alone = append(alone, one)
			offsets = append(offsets, offset)
			offset += one.Len()
		}
		names := []map[string]string{{"image": camera(a)}, {"image": camera(b)}}
		counts := make([]int, 2)
		for {
			batch, err := m.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			index := batch.Tensor("dataset_index").Data
			for i, id := range batch.Indices {
				src := int(binary.LittleEndian.Uint64(index[8*i:]))
				counts[src]++
				want, err := alone[src].Items(ctx, []int64{id - offsets[src]})
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{
					"image",
					"observation.state",
					"action",
					"episode_index",
				} {
					got := batch.Tensor(key)
					n := len(got.Data) / batch.Rows
					row := got.Data[i*n : (i+1)*n]
					lacks := src == 0 && key == "action"
					own := key
					if k, ok := names[src][key]; ok {
						own = k
					}
					switch {
					case lacks && !bytes.Equal(row, make([]byte, n)):
						t.Fatalf("%s of a source that has none is not zero", key)
					case !lacks && !bytes.Equal(row, want.Tensor(own).Data):
						t.Fatalf(
							"sample %d of source %d: %s differs from the source's own",
							id,
							src,
							key,
						)
					}
				}
				if mask := batch.Tensor("action_is_pad").Data[i]; (mask == 1) != (src == 0) {
					t.Fatalf("action_is_pad is %d for source %d", mask, src)
				}
				if text := batch.Text("task")[i]; (text == "") != (src == 1) {
					t.Fatalf("task of source %d is %q", src, text)
				}
				want.Release()
			}
			batch.Release()
		}
		if counts[0] != 60 || counts[1] != 20 {
			t.Errorf("%s: %v samples of shares 3 : 1", shuffle, counts)
		}
	}
	// A key that one source lacks is an error by default.
	_, err := loader.NewMix(
		ctx,
		[]loader.Mix{
			{Dataset: a, Keys: []string{"observation.state"}},
			{Dataset: b, Keys: []string{"observation.state", "action"}},
		},
		loader.Config{},
	)
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a missing key gives %v", err)
	}
}
