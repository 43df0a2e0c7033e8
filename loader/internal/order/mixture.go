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

	// result of the last call of locate
	last     int64 // its position; -1: locate was not called
	source   int
	inSource int64 // position in the source's epoch

	sequences    []sequence // current order of each source
	sourceEpochs []int64    // current epoch of each source
}

// newMixture returns the order of an epoch of a mixture.
func newMixture(o *Ordering, epoch int64) *mixture {
	return &mixture{
		o:            o,
		epoch:        epoch,
		deal:         o.mixPlan.newDealer(),
		last:         -1,
		sequences:    make([]sequence, len(o.mixPlan.sourceSizes)),
		sourceEpochs: make([]int64, len(o.mixPlan.sourceSizes)),
	}
}

// Len returns the number of samples of the epoch.
func (m *mixture) Len() int64 { return m.o.mixPlan.epochSamples }

// locate returns the source of position p of the mixture, and the position in that source's own
// epoch. Each source counts its epochs separately. locate also sets the order and the epoch of the
// source in m.sequences and m.sourceEpochs.
func (m *mixture) locate(p int64) (source int, inSource int64) {
	if p == m.last {
		return m.source, m.inSource
	}
	if p != m.deal.position {
		m.deal.seekTo(p)
	}
	i, j := m.deal.nextSource()
	epoch, inSource := m.o.mixPlan.sourceDraw(i, m.epoch, j)
	if m.sequences[i] == nil || m.sourceEpochs[i] != epoch {
		m.sequences[i], m.sourceEpochs[i] = m.o.sourceSequence(i, epoch), epoch
	}
	m.last, m.source, m.inSource = p, i, inSource
	return i, inSource
}

// At returns the sample at a position, numbered over all sources.
func (m *mixture) At(p int64) int64 {
	i, inSource := m.locate(p)
	return m.o.data.offsets[i] + m.sequences[i].At(inSource)
}

// epochAt returns the epoch that the source of a position is in. It differs from the epoch of the
// mixture.
func (m *mixture) epochAt(p int64) int64 {
	i, _ := m.locate(p)
	return m.sourceEpochs[i]
}

// mixedPools is a mixture of pools.
type mixedPools struct{ *mixture }

// shardAt implements pooled.
func (m mixedPools) shardAt(p int64) (*shard, int64) {
	i, inSource := m.locate(p)
	return m.sequences[i].(*pool).shardAt(inSource)
}

// At returns the sample at a position, numbered over all sources.
func (m mixedPools) At(p int64) int64 {
	sh, draw := m.shardAt(p)
	return sh.drawAt(draw)
}
