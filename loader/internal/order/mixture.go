package order

// SourceStats describes the samples of one source of a mixture that all ranks have delivered.
type SourceStats struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"` // its share of the samples
	// maximum difference of Drawn from the share, in samples, at any prefix of an epoch
	Bound  float64 `json:"bound"`
	Drawn  int64   `json:"drawn"`  // in this epoch
	Share  float64 `json:"share"`  // of the epoch so far
	Passes float64 `json:"passes"` // passes over its samples, in all epochs
	Bad    int     `json:"bad_episodes"`
}

// sourceStats returns the statistics of each source before a position. It returns nil without a
// mixture.
func (o *Ordering) sourceStats(epoch, position int64, bad []BadEpisode) []SourceStats {
	p := o.mixPlan
	if p == nil {
		return nil
	}
	out := make([]SourceStats, len(p.sourceSizes))
	for i, n := range p.countsBefore(position) {
		s := &out[i]
		*s = SourceStats{
			Name:   p.sourceNames[i],
			Weight: p.shareOf(i),
			Bound:  p.shareBound(i),
			Drawn:  n,
		}
		if position > 0 {
			s.Share = float64(n) / float64(position)
		}
		if size := p.sourceSizes[i]; size > 0 {
			s.Passes = (float64(epoch)*float64(p.counts[i]) + float64(n)) / float64(size)
		}
		for k := range bad {
			if bad[k].Source == i {
				s.Bad++
			}
		}
	}
	return out
}

// mixture is the order of several sources.
type mixture struct {
	o     *Ordering
	epoch int64
	deal  *dealer

	// Result of the last call of find.
	last   int64
	source int
	spot   int64

	inner []sequence // current order of each source
	own   []int64    // current epoch of each source
}

// newMixture returns the order of an epoch of a mixture.
func newMixture(o *Ordering, epoch int64) *mixture {
	return &mixture{
		o:     o,
		epoch: epoch,
		deal:  o.mixPlan.newDealer(),
		last:  -1,
		inner: make([]sequence, len(o.mixPlan.sourceSizes)),
		own:   make([]int64, len(o.mixPlan.sourceSizes)),
	}
}

// Len returns the number of samples of the epoch.
func (m *mixture) Len() int64 { return m.o.mixPlan.epochSamples }

// find returns the source of a position and the position in the source's own epoch. It sets inner
// and own of the source to that epoch.
func (m *mixture) find(p int64) (source int, place int64) {
	if p == m.last {
		return m.source, m.spot
	}
	if p != m.deal.position {
		m.deal.seekTo(p)
	}
	i, j := m.deal.nextSource()
	own, place := m.o.mixPlan.sourceDraw(i, m.epoch, j)
	if m.inner[i] == nil || m.own[i] != own {
		m.inner[i], m.own[i] = m.o.sourceSequence(i, own), own
	}
	m.last, m.source, m.spot = p, i, place
	return i, place
}

// At returns the sample at a position, numbered over all sources.
func (m *mixture) At(p int64) int64 {
	i, place := m.find(p)
	return m.o.data.offsets[i] + m.inner[i].At(place)
}

// epochAt returns the source's own epoch at a position.
func (m *mixture) epochAt(p int64) int64 {
	i, _ := m.find(p)
	return m.own[i]
}

// mixedPools is a mixture of pools.
type mixedPools struct{ *mixture }

// shardAt implements pooled.
func (m mixedPools) shardAt(p int64) (*shard, int64) {
	i, place := m.find(p)
	return m.inner[i].(*pool).shardAt(place)
}

// At returns the sample at a position, numbered over all sources.
func (m mixedPools) At(p int64) int64 {
	ln, draw := m.shardAt(p)
	return ln.drawAt(draw)
}
