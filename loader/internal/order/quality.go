package order

import "math"

// Randomness states how well an order mixes episodes, compared with a perfect shuffle of the same
// episodes. 1 / Distinct is the average number of samples of one episode in a batch.
type Randomness struct {
	Batch int64 `json:"batch"`
	// different episodes in a batch, divided by its samples
	Distinct      float64 `json:"distinct"`
	DistinctIdeal float64 `json:"distinct_ideal"` // of a perfect shuffle
	// fraction of samples whose next sample is of the same episode
	Neighbour      float64 `json:"neighbour"`
	NeighbourIdeal float64 `json:"neighbour_ideal"` // of a perfect shuffle
}

// maxRandomnessPositions bounds the positions that Randomness computes, to about 0.1 s.
const maxRandomnessPositions = 1 << 20

// Randomness measures an epoch's order for batches of a given size, over its first million
// positions. It reads nothing. The ideals of a mixture are those of its sources, each shuffled
// perfectly and drawn by its weight.
func (o *Ordering) Randomness(epoch, batch int64) Randomness {
	r := o.Quality(epoch, batch, maxRandomnessPositions)
	if p := o.mixPlan; p != nil {
		r.DistinctIdeal, r.NeighbourIdeal = 0, 0
		for i, t := range o.data.tables {
			part := int64(math.Round(p.shareOf(i) * float64(r.Batch)))
			if part == 0 {
				continue
			}
			distinct, neighbour := idealShares(NewCatalog(t), part)
			r.DistinctIdeal += distinct * float64(min(part, t.Samples())) / float64(r.Batch)
			r.NeighbourIdeal += p.shareOf(i) * p.shareOf(i) * neighbour
		}
	}
	return r
}

// Quality measures an epoch's order over its first limit positions; see measureQuality.
func (o *Ordering) Quality(epoch, batch, limit int64) Randomness {
	return measureQuality(o.sequence(epoch), o.data, batch, limit)
}

// measureQuality measures the batches in the first limit positions of an order. Limit 0 means all
// positions. An incomplete last batch does not count. No data is read.
func measureQuality(o sequence, data Catalog, batch, limit int64) Randomness {
	n := o.Len()
	batch = max(min(batch, n), 1)
	r := Randomness{Batch: batch}
	episodes := make([]int, len(data.tables)) // number of each source's first episode
	total := 0
	for i, t := range data.tables {
		episodes[i] = total
		total += len(t.ends)
	}
	if limit <= 0 || limit > n {
		limit = n
	}
	limit -= limit % batch
	seen := make([]int64, total) // last batch of each episode, counted from 1
	last, distinct, neighbours := -1, int64(0), int64(0)
	for p := range limit {
		source, place, _ := data.locateSample(o.At(p))
		e := episodes[source] + place
		if e == last {
			neighbours++
		}
		last = e
		if b := p/batch + 1; seen[e] != b {
			seen[e] = b
			distinct++
		}
	}
	if limit > 0 {
		r.Distinct = float64(distinct) / float64(limit)
	}
	if limit > 1 {
		r.Neighbour = float64(neighbours) / float64(limit-1)
	}
	r.DistinctIdeal, r.NeighbourIdeal = idealShares(data, batch)
	return r
}

// idealShares returns the values of a perfect shuffle: Σ_e [1 − C(N−n_e, B) / C(N, B)] / B for
// distinct, and Σ_e n_e(n_e−1) / N(N−1) for neighbour.
func idealShares(data Catalog, batch int64) (distinct, neighbour float64) {
	n := int64(0)
	for _, t := range data.tables {
		n += t.Samples()
	}
	batch = min(batch, n)
	hits := map[int64]float64{} // by length, because few lengths differ
	for _, t := range data.tables {
		for place := range t.ends {
			from, to := t.Span(place)
			size := to - from
			if size == 0 {
				continue
			}
			hit, ok := hits[size]
			if !ok {
				miss := 1.0
				for k := int64(0); k < batch && miss > 0; k++ {
					miss *= float64(max(n-size-k, 0)) / float64(n-k)
				}
				hit = 1 - miss
				hits[size] = hit
			}
			distinct += hit
			neighbour += float64(size) * float64(size-1)
		}
	}
	if n > 1 {
		neighbour /= float64(n) * float64(n-1)
	}
	return distinct / float64(max(batch, 1)), neighbour
}
