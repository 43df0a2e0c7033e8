package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
)

// maxDraws bounds the samples of one episode in an epoch. A pool numbers them in 32 bits.
const maxDraws = 1 << 30

// weights states how often the samples of a table occur in an epoch of a weighted table. An episode
// with n samples and weight w has w·n draws in each epoch, rounded, but at least one. Its draws are
// numbered through all epochs: draw j of an epoch has the number epoch·draws + j. Each run of n
// numbers is a pass: it draws every sample of the episode once, in a random order.
type weights struct {
	samples  *Table // the table whose samples are drawn
	isSorted bool   // draws are in the order of the samples
}

// Weighted returns a table of the draws of an epoch. An order uses it in place of t. The samples of
// the result are draws, and Catalog.drawnSample maps them to samples of t. weight returns the
// weight of an episode, which must be above 0.
func (t *Table) Weighted(weight func(episode int) float64, mode Shuffle) *Table {
	out := *t
	out.ends, out.runs = make([]int64, len(t.ends)), nil
	out.weights = &weights{samples: t, isSorted: mode == FileOrder}
	h := sha256.New()
	h.Write([]byte(t.Print.Lengths))
	var sum int64
	for i := range t.ends {
		from, to := t.Span(i)
		if to > from {
			draws := min(math.Round(weight(t.Episode(i))*float64(to-from)), maxDraws)
			sum += max(int64(draws), 1)
		}
		out.ends[i] = sum
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(sum)))
	}
	out.Print.Samples, out.Print.Lengths = sum, hex.EncodeToString(h.Sum(nil)[:12])
	return &out
}

// sampleOf returns the sample of a draw in an epoch, and the number of the episode's pass that the
// draw is in. draws is the weighted table, and place the position of the episode in it.
func (w *weights) sampleOf(
	draws *Table, place int, draw, epoch, seed int64,
) (sample, pass int64) {
	first, end := draws.Span(place)
	from, to := w.samples.Span(place)
	pass, at := drawInPasses(epoch, end-first, draw-first, to-from)
	if !w.isSorted {
		key := deriveKey(seed, int64(place), episodeDrawKey)
		at = newPermutation(int64(key), pass, to-from).At(at)
	}
	return from + at, pass
}

// drawInPasses returns the pass that draw j of an epoch is in, and its position in the pass. Each
// epoch has draws draws, and each pass has size. Passes continue across epochs: the draw has the
// number epoch·draws + j.
func drawInPasses(epoch, draws, j, size int64) (pass, position int64) {
	n := uint64(size)
	hi, lo := bits.Mul64(uint64(epoch), uint64(draws))
	lo, carry := bits.Add64(lo, uint64(j), 0)
	q, r := bits.Div64((hi+carry)%n, lo, n) // epochs beyond 2^63 wrap
	return int64(q), int64(r)
}

// drawnSample maps a sample number of an order to a sample of the datasets. epoch is the epoch of
// its source. Without weights it returns its arguments. In a weighted table the number is a draw,
// and sampleEpoch is the number of earlier draws of the sample.
func (c *Catalog) drawnSample(number, epoch int64) (sample, sampleEpoch int64) {
	if c.samplesBefore == nil {
		return number, epoch
	}
	source, place, draw := c.locateSample(number)
	if t := c.tables[source]; t.weights != nil {
		draw, epoch = t.weights.sampleOf(t, place, draw, epoch, c.seed+int64(source))
	}
	return c.samplesBefore[source] + draw, epoch
}

// weightedSequence is the order of an epoch of weighted tables.
type weightedSequence struct {
	sequence
	data  *Catalog
	epoch int64
}

// At returns the sample at position p.
func (s weightedSequence) At(p int64) int64 {
	number := s.sequence.At(p)
	sample, _ := s.data.drawnSample(number, epochOf(s.sequence, s.epoch, p))
	return sample
}
