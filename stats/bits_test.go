package stats

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestBits covers stats.S8: the bits are the same in every build. The expected bits were computed
// without fused multiply-add.
func TestBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	// Few rows, many times, because the last bit of a product rarely changes a long sum.
	var all []*robocache.FeatureStats
	for range 300 {
		var raw []byte
		for range 7 * 3 {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(rng.NormFloat64()))
		}
		fs, _, err := Numeric(t.Context(), robocache.Float64, []int{3}, pieces(raw, 24), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fs)
	}
	p := NewPixels(3)
	d := NewDepth(&robocache.Depth{Min: 0.01, Max: 10, Shift: 3.5, Unit: "mm"})
	for range 5 {
		pic := make([]byte, 3000)
		for i := range pic {
			pic[i] = byte(rng.IntN(256)) & 15
		}
		p.Add8(pic, 20)
		d.Add16(pic, 20)
	}
	h := fnv.New64a()
	for _, s := range append(all, p.Stats(), d.Stats()) {
		for _, n := range Names {
			for _, v := range Vector(s, n) {
				fmt.Fprintf(h, "%s %x\n", n, math.Float64bits(v))
			}
		}
	}
	if got := h.Sum64(); got != 0x67b88964fc036c74 {
		t.Errorf("%#x", got)
	}
}

// TestWideRows covers stats.S7: rows of many elements are not held beyond the budget, and their
// quantiles stay exact.
func TestWideRows(t *testing.T) {
	const rows, elements, budget = 400, 4096, 1 << 20
	var held uint64
	blocks := func(_ context.Context, yield func([]byte) error) error {
		rng := rand.New(rand.NewPCG(5, 6))
		raw := make([]byte, elements*4)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range rows {
			for i := 0; i < len(raw); i += 4 {
				binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(rng.Float32()))
			}
			if err := yield(raw); err != nil {
				return err
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if after.HeapAlloc > before.HeapAlloc {
			held = max(held, after.HeapAlloc-before.HeapAlloc)
		}
		return nil
	}
	shape := []int{elements / 4, 4}
	got, _, err := Numeric(t.Context(), robocache.Float32, shape, blocks, budget)
	if err != nil {
		t.Fatal(err)
	}
	if held > 4*budget {
		t.Errorf("%d bytes are held, the budget is %d", held, budget)
	}
	want, _, err := Numeric(t.Context(), robocache.Float32, shape, blocks, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range Quantiles {
		if fmt.Sprint(got.Quantiles[q.Name]) != fmt.Sprint(want.Quantiles[q.Name]) {
			t.Errorf("%s: %v and %v", q.Name, got.Quantiles[q.Name], want.Quantiles[q.Name])
		}
	}
}
