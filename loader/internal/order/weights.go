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
// of n samples and weight w has w·n draws in an epoch, rounded, and at least one. Its draws go
// through its samples again and again: the j-th draw of an epoch is number epoch·draws + j, and each
// n draws are a permutation of the samples. A sample occurs ⌊draws/n⌋ or ⌈draws/n⌉ times in an
// epoch.
type weights struct {
	samples  *Table // the table whose samples are drawn
	isSorted bool   // draws are in the order of the samples
}

// Weighted returns a table of the draws of an epoch, which stands for t in an order. weight returns
// the weight of an episode, above 0. Samples of the result are draws, which Catalog.drawnSample
// maps to samples of t.
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

// sampleOf returns the sample of a draw of an epoch, and the number of times that it was drawn
// before. place is the position of its episode.
func (w *weights) sampleOf(
	draws *Table, place int, draw, epoch, seed int64,
) (sample, pass int64) {
	first, end := draws.Span(place)
	from, to := w.samples.Span(place)
	pass, at := drawInPasses(epoch, end-first, draw-first, to-from)
	if !w.isSorted {
		at = newPermutation(int64(deriveKey(seed, int64(place), 5)), pass, to-from).At(at)
	}
	return from + at, pass
}

// drawInPasses returns the pass over size samples, and the position in it, of the j-th of draws
// draws of an epoch. Draws continue where the previous epoch ended.
func drawInPasses(epoch, draws, j, size int64) (pass, position int64) {
	n := uint64(size)
	hi, lo := bits.Mul64(uint64(epoch), uint64(draws))
	lo, carry := bits.Add64(lo, uint64(j), 0)
	q, r := bits.Div64((hi+carry)%n, lo, n) // epochs beyond 2^63 wrap
	return int64(q), int64(r)
}

// drawnSample returns the sample of a number in an order, over all sources, and its epoch: the
// number of times that it was drawn before. They are the arguments, unless tables are weighted.
// epoch is that of the sample's source.
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
