package frames

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

// Pieces of several sizes never overlap and are aligned, and mapped bytes stay below the limit. An
// empty slab is unmapped when another size needs memory.
func TestArena(t *testing.T) {
	const limit = 1 << 20
	r := newArena(limit, buffers.Mappings{})
	defer r.unmapAll()
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{64, 1000, 4096, 70_000}
	var held []piece
	refused := 0
	for i := range 20_000 {
		if len(held) > 0 && rng.IntN(3) == 0 {
			k := rng.IntN(len(held))
			for _, b := range held[k].mem {
				if b != held[k].mem[0] {
					t.Fatal("a piece was written by another's owner")
				}
			}
			r.freePiece(held[k])
			held[k] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		if i%5000 == 0 { // all go, so that slabs empty
			for _, p := range held {
				r.freePiece(p)
			}
			held = nil
		}
		p, ok, err := r.allocate(sizes[(i/5000+rng.IntN(2))%len(sizes)])
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			refused++
			continue
		}
		if uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))%64 != 0 {
			t.Fatal("a piece that is not aligned")
		}
		for k := range p.mem {
			p.mem[k] = byte(i)
		}
		held = append(held, p)
		if _, mapped, peak := r.usageBytes(); mapped > limit+buffers.PageSize ||
			peak > limit+buffers.PageSize {
			t.Fatalf("%d bytes mapped of %d", mapped, limit)
		}
	}
	if refused == 0 {
		t.Error("the limit was never felt")
	}
	for _, p := range held {
		r.freePiece(p)
	}
	if used, _, _ := r.usageBytes(); used != 0 {
		t.Errorf("%d bytes in use after all came back", used)
	}
}
