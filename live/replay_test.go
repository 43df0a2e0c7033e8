package live_test

import (
	"context"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader"
)

func TestReplayBag(t *testing.T) {
	ctx := context.Background()
	ds, err := robocache.Open(ctx, "/work/shared/data/mcap_robot")
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	for _, f := range ds.Info().Features {
		t.Log(f.Key, f.Kind, f.DType, f.Shape, f.Clock, f.Masked, f.Latched, robocache.ClocksOf(ds, f.Key))
	}
	hz := robocache.Rate{Num: 30, Den: 1}
	cfg := loader.Config{}
	cfg.Hz = &hz
	cfg.Align = &align.Config{CausalOptions: align.CausalOptions{Causal: true}}
	cfg.BatchSize = 4
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := l.Contract()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := c.MarshalIndent()
	t.Log(len(b), string(b[:min(len(b), 6000)]))
	r, err := live.Replay(ctx, ds, c, live.ReplayConfig{})
	t.Logf("%+v", r)
	if err != nil {
		t.Fatal(err)
	}
}
