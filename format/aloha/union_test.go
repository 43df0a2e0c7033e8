package aloha_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
	"github.com/goatnote-inc/robocache/loader"
)

const top = "observation.images.top"

func openCase(t *testing.T, variant string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(
		t.Context(),
		cases.Make(t, "H09", variant, "H09"),
		robocache.OpenOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

func findings(t *testing.T, ds robocache.Dataset, code string) (episodes []int64) {
	t.Helper()
	for _, f := range ds.Info().Findings {
		if f.Code == code {
			episodes = append(episodes, f.Where["episode"].(int64))
		}
	}
	return episodes
}

// TestUnionOfStreams checks that a camera which any one episode lacks stays a stream of the others,
// and that this episode has a finding.
func TestUnionOfStreams(t *testing.T) {
	for variant, odd := range map[string]int{"cmiss_first": 0, "cmiss_second": 1} {
		ds := openCase(t, variant)
		keys := ds.Info().Keys()
		slices.Sort(keys)
		if want := []string{"action", top, "observation.qpos"}; !slices.Equal(keys, want) {
			t.Fatalf("%s: streams %v, want %v", variant, keys, want)
		}
		if got := findings(t, ds, robocache.LackingStream); !slices.Equal(got,
			[]int64{int64(odd)}) {
			t.Errorf("%s: findings of episodes %v, want %d", variant, got, odd)
		}
		refs := make([]robocache.FrameRef, 1)
		for e := range 3 {
			err := ds.Frames(t.Context(), top, []robocache.Row{{Episode: e}}, refs)
			if lacks := e == odd; lacks != errors.Is(err, robocache.ErrMalformed) {
				t.Errorf("%s: episode %d: %v", variant, e, err)
			} else if !lacks && refs[0].Raw.Pix[0] != byte(10*e) {
				t.Errorf("%s: episode %d has pixels of %d", variant, e, refs[0].Raw.Pix[0])
			}
		}
	}
}

// TestUsualShape checks that one odd episode does not make the others unreadable, even if it is the
// first.
func TestUsualShape(t *testing.T) {
	for variant, odd := range map[string]int{"first": 0, "second": 1} {
		ds := openCase(t, variant)
		if f := ds.Info().Feature("action"); !slices.Equal(f.Shape, []int{10}) {
			t.Fatalf("%s: actions of %v", variant, f.Shape)
		}
		for e := range 3 {
			err := ds.Gather(t.Context(), "action", []robocache.Row{{Episode: e}}, make([]byte, 40))
			if (e == odd) != errors.Is(err, robocache.ErrMalformed) {
				t.Errorf("%s: episode %d: %v", variant, e, err)
			}
		}
	}
}

// samples counts the samples of an epoch, and those whose image is padding.
func samples(
	t *testing.T,
	ds robocache.Dataset,
	cfg loader.Config,
) (n, pads int, l *loader.Loader) {
	t.Helper()
	cfg.Order.BatchSize = 5
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for {
		b, err := l.Next(t.Context())
		if err != nil {
			return n, pads, l
		}
		for i := range b.Tensors {
			x := &b.Tensors[i]
			switch x.Key {
			case "action":
				n += x.Shape[0]
			case top + "_is_pad":
				for _, v := range x.Data {
					pads += int(v)
				}
			}
		}
		b.Release()
	}
}

// TestMissing reads an episode that lacks a stream: it is an error, is skipped, is padded, or is
// complete if the stream is not requested.
func TestMissing(t *testing.T) {
	ds := openCase(t, "cmiss_first")
	var e *robocache.Error
	if _, err := loader.New(t.Context(), ds,
		loader.Config{Order: loader.Order{BatchSize: 5}}); !errors.As(err, &e) || !errors.Is(err,
		robocache.ErrMalformed) || e.Where["stream"] != top || e.Where["episode"] != int64(0) ||
		e.Hint == "" {
		t.Errorf("without a choice: %v", err)
	}
	n, _, l := samples(t, ds, loader.Config{Order: loader.Order{OnBadEpisode: "skip"}})
	if bad := l.Stats().BadEpisodes; n != 10 || len(bad) != 1 {
		t.Errorf("skip: %d samples, bad episodes %v", n, bad)
	}
	if n, pads, _ := samples(t, ds, loader.Config{Windows: loader.Windows{Missing: "pad"}}); n !=
		15 || pads != 5 {
		t.Errorf("pad: %d samples, %d of them padding", n, pads)
	}
	if n, _,
		_ := samples(t, ds, loader.Config{Windows: loader.Windows{Keys: []string{"action"}}}); n !=
		15 {
		t.Errorf("without the camera: %d samples", n)
	}
}
