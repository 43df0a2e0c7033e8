package bench

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"

	"github.com/goatnote-inc/robocache"
)

// sink is told what comes out of a loader, in order: of each batch its size, its samples' numbers
// and their episodes' positions; or a mark.
type sink func(n int64, samples []int64, episodes []int32)

// Marks, in place of a size; runners/robocache_bench/common.py describes the file that has all
// this.
const (
	markEpoch = -1 // one ends
	markOpen  = -2 // the window
	markClose = -3
)

// orderWriter writes an order file; an error stays in the writer until flush.
func orderWriter(out *bufio.Writer) sink {
	return func(n int64, samples []int64, episodes []int32) {
		put := func(v int64) { out.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))) }
		put(n)
		for _, s := range samples {
			put(s)
		}
		for _, e := range episodes {
			put(int64(e))
		}
	}
}

// replay tells a sink what an order file holds.
func replay(path string, to sink) (err error) {
	defer robocache.Locate(&err, robocache.Where{"file": path})
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	numbers := func(n int64) ([]int64, error) {
		v := make([]int64, n)
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			return nil, err
		}
		return v, nil
	}
	for {
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		head, err := numbers(1)
		if err != nil {
			return err
		}
		n := head[0]
		if n < markClose || n > 1<<24 {
			return io.ErrUnexpectedEOF
		}
		samples, err := numbers(max(n, 0))
		if err != nil {
			return err
		}
		positions, err := numbers(max(n, 0))
		if err != nil {
			return err
		}
		episodes := make([]int32, len(positions))
		for i, e := range positions {
			episodes[i] = int32(e)
		}
		to(n, samples, episodes)
	}
}

// epochsOf gives the samples of the finished epochs of an order file, for the merge over ranks.
func epochsOf(path string) (done [][]int64, err error) {
	var running []int64
	err = replay(path, func(n int64, samples []int64, _ []int32) {
		if running = append(running, samples...); n == markEpoch {
			done, running = append(done, running), nil
		}
	})
	return done, err
}

// tally looks at what order the samples came in: its hash, its randomness, and how often each
// sample came in a finished epoch.
type tally struct {
	batch   int
	samples int64 // of an epoch
	limit   int64 // sample numbers are below it
	// the window is whole epochs: it alone counts, and the hash is over all of it; else over the
	// first epoch, until the window closes
	whole bool
	given []uint8
	err   error // a sample that there is not

	order        hash.Hash
	orderSamples int64
	first        bool // epoch
	open, closed bool // the window

	seen        []uint32 // by episode: the batch that it was last seen in
	batches     uint32
	distinct    float64
	full        int
	same, pairs int64
	last        int32

	finished  int // epochs
	low, high int // over finished epochs
	extra     int64
	missing   int64
}

func newTally(samples int64, episodes, batch int) *tally {
	return &tally{
		batch:   batch,
		samples: samples,
		limit:   samples,
		seen:    make([]uint32, episodes),
		order:   sha256.New(),
		first:   true,
		last:    -1,
	}
}

// take is the tally as a sink.
func (t *tally) take(n int64, samples []int64, episodes []int32) {
	switch n {
	case markEpoch:
		t.endEpoch()
	case markOpen, markClose:
		t.open, t.closed = n == markOpen, n == markClose
	default:
		t.add(samples, episodes)
	}
}

// add takes a batch: its samples' numbers, and their episodes' positions.
func (t *tally) add(samples []int64, episodes []int32) {
	if t.open && t.whole || !t.whole && t.first && !t.closed {
		_ = binary.Write(t.order, binary.LittleEndian, samples)
		t.orderSamples += int64(len(samples))
	}
	for _, s := range samples {
		if s < 0 || s >= t.limit {
			t.err = robocache.Malformed("bench", nil, "sample %d is outside the dataset", s).
				Expected(fmt.Sprintf("below %d", t.limit), "")
			return
		}
		if n := int64(len(t.given)); n <= s {
			t.given = append(t.given, make([]uint8, s+1-n)...)
		}
		if t.given[s] < 255 { // saturates
			t.given[s]++
		}
	}
	if !t.open {
		return
	}
	t.batches++
	n := 0
	for _, e := range episodes {
		if e < 0 || int(e) >= len(t.seen) {
			t.err = robocache.Malformed("bench", nil, "episode %d is not in the dataset", e)
			return
		}
		if t.seen[e] != t.batches {
			t.seen[e] = t.batches
			n++
		}
		if t.last >= 0 {
			t.pairs++
			if e == t.last {
				t.same++
			}
		}
		t.last = e
	}
	if len(episodes) == t.batch {
		t.distinct += float64(n) / float64(len(episodes))
		t.full++
	}
}

// endEpoch counts what the epoch gave.
func (t *tally) endEpoch() {
	defer clear(t.given)
	if t.whole && !t.open {
		return
	}
	low, high, distinct := 255, 0, int64(0)
	for _, n := range t.given {
		if n > 0 {
			distinct++
			low, high = min(low, int(n)), max(high, int(n))
			t.extra += int64(n) - 1
		}
	}
	if distinct < t.samples || t.samples == 0 {
		low = 0
	}
	t.missing += max(0, t.samples-distinct)
	if t.finished == 0 {
		t.low, t.high = low, high
	}
	t.low, t.high = min(t.low, low), max(t.high, high)
	t.finished++
	t.first = false
}

func (t *tally) sum() string { return hex.EncodeToString(t.order.Sum(nil)) }

// into writes what was counted into an outcome.
func (t *tally) into(o *Outcome) {
	o.OrderSHA256, o.OrderSamples = t.sum(), t.orderSamples
	if t.full > 0 {
		o.DistinctFrac = t.distinct / float64(t.full)
	}
	if t.pairs > 0 {
		o.NeighbourShare = float64(t.same) / float64(t.pairs)
	}
	if o.EpochsFinished = t.finished; t.finished > 0 {
		o.CoverageMin, o.CoverageMax, o.SamplesLost, o.SamplesDoubled = t.low, t.high, t.missing, t.extra
	}
}

// IdealDistinct is the share of distinct episodes in a batch drawn from a perfect shuffle: Σ_e [1 −
// C(N−n_e,B)/C(N,B)] / B.
func IdealDistinct(lengths []int, batch int) float64 {
	n := 0
	for _, l := range lengths {
		n += l
	}
	batch = min(batch, n)
	if batch == 0 {
		return 0
	}
	total := 0.0
	for _, l := range lengths {
		miss := 1.0
		for i := range batch {
			miss *= math.Max(0, float64(n-l-i)) / float64(n-i)
		}
		total += 1 - miss
	}
	return total / float64(batch)
}
