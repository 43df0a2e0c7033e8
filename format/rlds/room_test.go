package rlds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache/store"
)

// The marks of many packed shards share the room of the index: a data set of any number of them opens, and stays within its budget.
func TestMarksOfManyShards(t *testing.T) {
	const shards, episodes = 40, 4
	rng := rand.New(rand.NewPCG(5, 6))
	noise := make([]byte, 600_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	x := handExample(0, 3)
	x.strings("other", [][]byte{noise})
	record, err := x.bytes()
	if err != nil {
		t.Fatal(err)
	}
	var plain []byte
	for range episodes {
		plain = appendRecord(plain, record)
	}
	packed := squeeze(t, "gzip", 1, plain)
	h := newHand()
	clear(h.shards)
	var lengths []int
	for i := range shards {
		lengths = append(lengths, episodes)
		h.shards[fmt.Sprintf("toy-train.tfrecord-%05d-of-%05d", i, shards)] = packed
	}
	h.info = handInfo("toy", "train", lengths...)
	s := store.NewMem("rlds-room")
	t.Cleanup(s.Drop)
	h.put(s)
	for _, budget := range []int64{smallestBudget, 64 * smallestBudget} {
		opt := handOptions
		opt.MemoryBudget = budget
		d, err := OpenStore(t.Context(), s, opt)
		if err != nil || d.Info().Episodes != shards*episodes {
			t.Fatal(budget, err)
		}
		total := int64(0)
		for _, x := range d.index {
			total += x.marks.bytes()
		}
		if total > budget/4 || (total > 0) != (budget > smallestBudget) {
			t.Errorf("a budget of %d: marks of %d bytes", budget, total)
		}
		if err := checkEpisode(t, d, shards*episodes-1, 0); err != nil {
			t.Error(err)
		}
		d.Close()
	}
}
