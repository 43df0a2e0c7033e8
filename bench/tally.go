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

// orderSink receives the deliveries of a loader in order. A batch has its size, sample numbers and
// episode positions. A mark has a negative size and no samples.
type orderSink func(n int64, samples []int64, episodes []int32)

// Marks are passed in place of a batch size. runners/robocache_bench/common.py describes the file
// format.
const (
	markEpoch = -1 // an epoch ends
	markOpen  = -2 // the window opens
	markClose = -3 // the window closes
)

// orderWriter returns a sink that writes an order file. Write errors are reported by the Flush of
// out.
func orderWriter(out *bufio.Writer) orderSink {
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

// replayOrder passes the contents of an order file to a sink.
func replayOrder(path string, to orderSink) (err error) {
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

// finishedEpochs returns the samples of each finished epoch in an order file. They are used to
// combine ranks.
func finishedEpochs(path string) (done [][]int64, err error) {
	var running []int64
	err = replayOrder(path, func(n int64, samples []int64, _ []int32) {
		if running = append(running, samples...); n == markEpoch {
			done, running = append(done, running), nil
		}
	})
	return done, err
}

// orderTally computes the hash and the randomness of an order, and how often each sample was
// delivered in the finished epochs.
type orderTally struct {
	batchSize    int
	epochSamples int64 // in an epoch
	sampleLimit  int64 // exclusive upper bound of sample numbers
	// If wholeEpochs is true, the window consists of whole epochs: only they count, and the hash
	// covers all of them. Otherwise the hash covers the first epoch until the window closes.
	wholeEpochs bool
	deliveries  []uint8
	err         error // reported sample or episode numbers that are out of range

	orderHasher              hash.Hash
	orderSamples             int64
	inFirstEpoch             bool // the first epoch has not ended
	windowOpen, windowClosed bool // state of the window

	lastBatchOf             []uint32 // by episode: the last batch that contained it
	batchNumber             uint32
	distinctSum             float64
	fullBatches             int
	sameEpisodePairs, pairs int64
	lastEpisode             int32

	finishedEpochs               int
	minDeliveries, maxDeliveries int // deliveries of a sample, over the finished epochs
	doubledSamples               int64
	lostSamples                  int64
}

func newOrderTally(samples int64, episodes, batch int) *orderTally {
	return &orderTally{
		batchSize:    batch,
		epochSamples: samples,
		sampleLimit:  samples,
		lastBatchOf:  make([]uint32, episodes),
		orderHasher:  sha256.New(),
		inFirstEpoch: true,
		lastEpisode:  -1,
	}
}

// recordEvent implements orderSink.
func (t *orderTally) recordEvent(n int64, samples []int64, episodes []int32) {
	switch n {
	case markEpoch:
		t.endEpoch()
	case markOpen, markClose:
		t.windowOpen, t.windowClosed = n == markOpen, n == markClose
	default:
		t.countBatch(samples, episodes)
	}
}

// countBatch counts a batch, given its sample numbers and the positions of their episodes.
func (t *orderTally) countBatch(samples []int64, episodes []int32) {
	if t.windowOpen && t.wholeEpochs || !t.wholeEpochs && t.inFirstEpoch && !t.windowClosed {
		_ = binary.Write(t.orderHasher, binary.LittleEndian, samples)
		t.orderSamples += int64(len(samples))
	}
	for _, s := range samples {
		if s < 0 || s >= t.sampleLimit {
			t.err = robocache.Malformed("bench", nil, "sample %d is outside the dataset", s).
				Expected(fmt.Sprintf("below %d", t.sampleLimit), "")
			return
		}
		if n := int64(len(t.deliveries)); n <= s {
			t.deliveries = append(t.deliveries, make([]uint8, s+1-n)...)
		}
		if t.deliveries[s] < 255 { // the count saturates at 255
			t.deliveries[s]++
		}
	}
	if !t.windowOpen {
		return
	}
	t.batchNumber++
	n := 0
	for _, e := range episodes {
		if e < 0 || int(e) >= len(t.lastBatchOf) {
			t.err = robocache.Malformed("bench", nil, "episode %d is not in the dataset", e)
			return
		}
		if t.lastBatchOf[e] != t.batchNumber {
			t.lastBatchOf[e] = t.batchNumber
			n++
		}
		if t.lastEpisode >= 0 {
			t.pairs++
			if e == t.lastEpisode {
				t.sameEpisodePairs++
			}
		}
		t.lastEpisode = e
	}
	if len(episodes) == t.batchSize {
		t.distinctSum += float64(n) / float64(len(episodes))
		t.fullBatches++
	}
}

// endEpoch evaluates the deliveries of the epoch that ends.
func (t *orderTally) endEpoch() {
	defer clear(t.deliveries)
	if t.wholeEpochs && !t.windowOpen {
		return
	}
	low, high, distinct := 255, 0, int64(0)
	for _, n := range t.deliveries {
		if n > 0 {
			distinct++
			low, high = min(low, int(n)), max(high, int(n))
			t.doubledSamples += int64(n) - 1
		}
	}
	if distinct < t.epochSamples || t.epochSamples == 0 {
		low = 0
	}
	t.lostSamples += max(0, t.epochSamples-distinct)
	if t.finishedEpochs == 0 {
		t.minDeliveries, t.maxDeliveries = low, high
	}
	t.minDeliveries, t.maxDeliveries = min(t.minDeliveries, low), max(t.maxDeliveries, high)
	t.finishedEpochs++
	t.inFirstEpoch = false
}

// orderHash returns the SHA-256 of the counted sample numbers.
func (t *orderTally) orderHash() string { return hex.EncodeToString(t.orderHasher.Sum(nil)) }

// fillOrder writes the counted figures into o.
func (t *orderTally) fillOrder(o *Outcome) {
	o.OrderSHA256, o.OrderSamples = t.orderHash(), t.orderSamples
	if t.fullBatches > 0 {
		o.DistinctFrac = t.distinctSum / float64(t.fullBatches)
	}
	if t.pairs > 0 {
		o.NeighbourShare = float64(t.sameEpisodePairs) / float64(t.pairs)
	}
	if o.EpochsFinished = t.finishedEpochs; t.finishedEpochs > 0 {
		o.CoverageMin, o.CoverageMax, o.SamplesLost, o.SamplesDoubled = t.minDeliveries, t.maxDeliveries, t.lostSamples, t.doubledSamples
	}
}

// IdealDistinct returns the expected share of distinct episodes in a batch that a perfect shuffle
// draws: Σ_e [1 − C(N−n_e,B)/C(N,B)] / B.
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
