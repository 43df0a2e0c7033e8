package stats

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
)

// windowChain is the state of running histograms after the whole batches of some episodes. Counting
// continues from it when more episodes follow.
type windowChain struct {
	Episodes int    `json:"episodes"` // number of episodes that were counted
	Prefix   string `json:"prefix"`   // hash of their values
	Batches  int    `json:"batches"`
	// Units holds the state of each unit: numbers as their bits, because extremes may be infinite.
	Units [][]chainColumn `json:"units"`
}

// chainColumn is the state of a column.
type chainColumn struct {
	N         int64     `json:"n"`
	NonFinite int64     `json:"non_finite"`
	Moments   [5]uint64 `json:"moments"` // bits of min, max, base, mean and m2
	Edges     [3]uint64 `json:"edges"`   // bits of the first and last edge, and of the scale
	Counts    []int64   `json:"counts"`  // pairs of a bin and its count
}

// chainName identifies what a chain counts. It is empty if the counts cannot be kept: without a
// folder, with a last batch that may grow, or with values from a function.
func (c *windowCounter) chainName() string {
	held, ok := c.ds.(*Held)
	if !ok || held.opt.Folder == "" || !c.opt.DropLast {
		return ""
	}
	for i := range c.vector.Parts {
		if c.vector.Parts[i].Values != nil {
			return ""
		}
	}
	text, err := json.Marshal(struct {
		Vector      *WindowVector
		Bins, Batch int
	}{c.vector, c.opt.Histogram, c.opt.Batch})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// resumeChain returns the state of all units, and the number of the first batch to count. The state
// is that of a chain if the episodes begin with those of the chain, with equal values.
func (c *windowCounter) resumeChain() ([]*unitHistograms, int) {
	units := make([]*unitHistograms, len(c.units))
	for i, u := range c.units {
		units[i] = newUnitHistograms(u, c.opt.Histogram)
	}
	name := c.chainName()
	if name == "" {
		return units, 0
	}
	held := c.ds.(*Held)
	chain, sums := held.chains[name], held.prefixSums(c.opt.Episodes)
	if chain == nil || chain.Episodes < 0 || chain.Episodes >= len(sums) ||
		chain.Prefix != sums[chain.Episodes] || len(chain.Units) != len(units) {
		return units, 0
	}
	resumed := make([]*unitHistograms, len(c.units))
	for i, u := range c.units {
		resumed[i] = newUnitHistograms(u, c.opt.Histogram)
		if !resumed[i].restore(chain.Units[i]) {
			return units, 0
		}
	}
	return resumed, chain.Batches
}

// keepChain stores the state of all units for the next call.
func (c *windowCounter) keepChain(units []*unitHistograms, batches int) {
	name := c.chainName()
	if name == "" {
		return
	}
	held := c.ds.(*Held)
	sums := held.prefixSums(c.opt.Episodes)
	if sums == nil {
		return
	}
	chain := &windowChain{
		Episodes: len(sums) - 1, Prefix: sums[len(sums)-1], Batches: batches,
	}
	for _, u := range units {
		chain.Units = append(chain.Units, u.store())
	}
	held.chains[name] = chain
}

// store returns the state of a unit.
func (s *unitHistograms) store() (out []chainColumn) {
	m := s.moments
	for k, h := range s.columns {
		one := chainColumn{N: m.N[k], NonFinite: m.NonFinite}
		for i, v := range []float64{m.Min[k], m.Max[k], m.base[k], m.mean[k], m.m2[k]} {
			one.Moments[i] = math.Float64bits(v)
		}
		for i, v := range []float64{h.edges[0], h.edges[len(h.counts)], h.scale} {
			one.Edges[i] = math.Float64bits(v)
		}
		for bin, n := range h.counts {
			if n > 0 {
				one.Counts = append(one.Counts, int64(bin), n)
			}
		}
		out = append(out, one)
	}
	return out
}

// restore sets the state of an empty unit. It returns false if the state is of another unit.
func (s *unitHistograms) restore(columns []chainColumn) bool {
	if len(columns) != len(s.columns) {
		return false
	}
	m := s.moments
	for k, one := range columns {
		h := s.columns[k]
		m.N[k], m.NonFinite = one.N, one.NonFinite
		for i, v := range []*float64{&m.Min[k], &m.Max[k], &m.base[k], &m.mean[k], &m.m2[k]} {
			*v = math.Float64frombits(one.Moments[i])
		}
		if h.scale = math.Float64frombits(one.Edges[2]); h.scale != 0 {
			lo, hi := math.Float64frombits(one.Edges[0]), math.Float64frombits(one.Edges[1])
			setEdges(h.edges, lo, hi)
		}
		for i := 0; i+1 < len(one.Counts); i += 2 {
			if bin := one.Counts[i]; bin < 0 || bin >= int64(len(h.counts)) {
				return false
			}
			h.counts[one.Counts[i]] = one.Counts[i+1]
		}
		if m.N[k] > 0 { // the extremes at a later move, if they do not change before
			s.changes[k] = []extremes{{-1, m.Min[k], m.Max[k]}}
		}
	}
	return true
}
