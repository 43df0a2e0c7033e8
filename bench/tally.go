package bench

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
)

// tally looks at what order the samples came in: its hash, its randomness, and how often each sample came in a finished epoch.
// It takes a few nanoseconds a sample: it runs inside the window.
type tally struct {
	batch int
	given []uint8 // of the running epoch, by sample; saturates

	order        hash.Hash // of the first epoch, until closeOrder
	orderSamples int64
	first, hash  bool
	raw          []byte

	randomness  bool     // the window is open: distinct and same are counted
	timestamp   []uint32 // by episode: the batch that it was last seen in
	timestamps  uint32
	distinct    float64
	full        int
	same, pairs int64
	last        int32

	finished  int // epochs
	low, high int // over finished epochs
	extra     int64
	missing   int64
	out       *bufio.Writer // samples of finished epochs, for the merge over ranks
	epoch     []int64
	outBytes  int64
}

// maxOrderOut bounds the file of finished epochs: what comes after it is not merged.
const maxOrderOut = 256 << 20

func newTally(samples int64, episodes, batch int, out io.Writer) *tally {
	t := &tally{batch: batch, given: make([]uint8, samples), timestamp: make([]uint32, episodes), order: sha256.New(), first: true, hash: true, last: -1}
	if out != nil {
		t.out = bufio.NewWriterSize(out, 1<<20)
	}
	return t
}

// add takes a batch: its samples' numbers, and their episodes' positions.
func (t *tally) add(samples []int64, episodes []int32) {
	if t.first && t.hash {
		t.raw = t.raw[:0]
		for _, s := range samples {
			t.raw = binary.LittleEndian.AppendUint64(t.raw, uint64(s))
		}
		t.order.Write(t.raw)
		t.orderSamples += int64(len(samples))
	}
	for _, s := range samples {
		if t.given[s] < 255 {
			t.given[s]++
		}
	}
	if t.out != nil && t.outBytes < maxOrderOut {
		t.epoch = append(t.epoch, samples...)
	}
	if !t.randomness {
		return
	}
	t.timestamps++
	n := 0
	for _, e := range episodes {
		if t.timestamp[e] != t.timestamps {
			t.timestamp[e] = t.timestamps
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

// closeOrder ends the hash: what comes after the window is not part of it.
func (t *tally) closeOrder() { t.hash = false }

// endEpoch counts what the epoch gave.
func (t *tally) endEpoch() {
	low, high := 255, 0
	for i, n := range t.given {
		low, high = min(low, int(n)), max(high, int(n))
		if n == 0 {
			t.missing++
		} else {
			t.extra += int64(n) - 1
		}
		t.given[i] = 0
	}
	if len(t.given) == 0 {
		low = 0
	}
	if t.finished == 0 {
		t.low, t.high = low, high
	}
	t.low, t.high = min(t.low, low), max(t.high, high)
	t.finished++
	t.first = false
	if t.out == nil || t.outBytes >= maxOrderOut {
		return
	}
	var b [8]byte
	put := func(v int64) {
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		t.out.Write(b[:]) // an error stays in the writer until flush
	}
	put(int64(len(t.epoch)))
	for _, s := range t.epoch {
		put(s)
	}
	t.outBytes += 8 * int64(len(t.epoch)+1)
	t.epoch = t.epoch[:0]
}

func (t *tally) flush() error {
	if t.out == nil {
		return nil
	}
	return t.out.Flush()
}

func (t *tally) sum() string { return hex.EncodeToString(t.order.Sum(nil)) }

// IdealNeighbours is the chance that two consecutive samples of a perfect shuffle are of one episode: Σ n(n−1) / N(N−1).
func IdealNeighbours(lengths []int) float64 {
	var n, same float64
	for _, l := range lengths {
		n += float64(l)
		same += float64(l) * float64(l-1)
	}
	if n < 2 {
		return 0
	}
	return same / (n * (n - 1))
}
