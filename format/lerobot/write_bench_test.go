package lerobot

import (
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache/store/tests/storetest"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
)

// BenchmarkWrite writes episodes of 300 rows of 26 + 26 float32 with all their statistics, and
// reports the bytes of the rows.
func BenchmarkWrite(b *testing.B) {
	feats := []robocache.Feature{
		{
			Key:   "observation.state",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{26},
		},
		{Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{26}},
	}
	var eps []write.EpisodeData
	for e := range 50 {
		eps = append(eps, writerEpisode(b, feats, e, 300))
	}
	b.SetBytes(50 * 300 * 52 * 4)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("bench-write-%d", i)
		mem := storetest.NewMem(name)
		w, err := write.NewWriter(
			b.Context(),
			mem,
			write.Config{FPS: robocache.Rate{Num: 30, Den: 1}, Features: feats},
		)
		if err != nil {
			b.Fatal(err)
		}
		for _, ep := range eps {
			if err := w.AddEpisode(b.Context(), ep); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		_ = store.Close(mem)
	}
}
