package live

import (
	"maps"
	"slices"
)

// StreamStats counts the samples of one stream since Open.
type StreamStats struct {
	Received   int64 `json:"received"`
	Rejected   int64 `json:"rejected"`    // do not fit the contract
	Late       int64 `json:"late"`        // older than a sample that arrived before
	Repeated   int64 `json:"repeated"`    // with the timestamp of the newest sample
	ClockSteps int64 `json:"clock_steps"` // timestamps stepped back for good
	Dropped    int64 `json:"dropped"`     // over the budget
	NoFrame    int64 `json:"no_frame"`    // packets of video without a picture

	Delays delayStats `json:"-"`
}

// delayStats are running values of the delay between timestamp and arrival, and of the rate.
type delayStats struct {
	Recent      [128]int64 // delays in ns
	First, Last int64      // arrivals
	Count       int64
}

// noteTimes records the times of a sample.
func (c *StreamStats) noteTimes(s *sample) {
	d := &c.Delays
	d.Recent[d.Count%int64(len(d.Recent))] = s.arrival - s.stamp
	if d.Count == 0 {
		d.First = s.arrival
	}
	d.Last = max(d.Last, s.arrival)
	d.Count++
}

// StreamLatency describes the delays and the rate of one stream.
type StreamLatency struct {
	RateHz float64 `json:"rate_hz"` // samples per second of arrivals
	// Delays between timestamp and arrival of the last 128 samples, in ns.
	Median int64 `json:"median_ns"`
	P99    int64 `json:"p99_ns"`
	Max    int64 `json:"max_ns"`
	// Age is the age of the newest sample at the newest arrival of any stream, in ns; -1: none.
	Age int64 `json:"age_ns"`
}

// Stats returns the counts of each stream by key.
func (l *Live) Stats() map[string]StreamStats {
	out := map[string]StreamStats{}
	for _, s := range l.streams {
		s.mu.Lock()
		out[s.Key] = s.counters
		s.mu.Unlock()
	}
	return out
}

// Latency returns the delays and rate of each stream by key.
func (l *Live) Latency() map[string]StreamLatency {
	all := l.Stats()
	var last int64
	for _, c := range all {
		last = max(last, c.Delays.Last)
	}
	out := map[string]StreamLatency{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		c := all[key]
		d := &c.Delays
		r := StreamLatency{Age: -1}
		if d.Count > 0 {
			recent := slices.Clone(d.Recent[:min(d.Count, int64(len(d.Recent)))])
			slices.Sort(recent)
			r.Median = recent[len(recent)/2]
			r.P99 = recent[len(recent)*99/100]
			r.Max = recent[len(recent)-1]
			s := l.byKey[key]
			s.mu.Lock()
			if s.hasSample {
				r.Age = last - s.newest
			}
			s.mu.Unlock()
		}
		if d.Count > 1 && d.Last > d.First {
			r.RateHz = float64(d.Count-1) * 1e9 / float64(d.Last-d.First)
		}
		out[key] = r
	}
	return out
}
