package bench

import "github.com/goatnote-inc/robocache/loader"

// Stages are seconds of work in a window, summed over threads.
type Stages struct {
	Plan    float64 `json:"plan"`    // order, places, decode plans
	Store   float64 `json:"store"`   // reading packets of remote files: waiting, beside the other work
	Gather  float64 `json:"gather"`  // columns and text
	Decode  float64 `json:"decode"`  // packets to frames
	Convert float64 `json:"convert"` // frames to pixels
	Copy    float64 `json:"copy"`    // kept frames to pixels
	Wait    float64 `json:"wait"`    // of the taker, for a batch
	Ahead   float64 `json:"ahead"`   // of the planner: all that may be prefetched is planned
}

// stagesOf is what was done between two looks at a loader.
func stagesOf(a, b *loader.Stats) Stages {
	if a == nil || b == nil {
		return Stages{}
	}
	return Stages{Plan: b.Plan - a.Plan, Store: b.Fetch - a.Fetch, Gather: b.Gather - a.Gather, Decode: b.Decode - a.Decode, Convert: b.Convert - a.Convert, Copy: b.Copy - a.Copy,
		Wait: b.WaitData - a.WaitData, Ahead: b.WaitConsumer - a.WaitConsumer}
}

// Busy is the work of threads.
func (s Stages) Busy() float64 { return s.Plan + s.Gather + s.Decode + s.Convert + s.Copy }

// fetch is the work that finds and brings bytes; decode makes pixels of them.
func (s Stages) fetch() float64  { return s.Plan + s.Store + s.Gather }
func (s Stages) decode() float64 { return s.Decode + s.Convert + s.Copy }

func (s Stages) plus(o Stages) Stages {
	return Stages{s.Plan + o.Plan, s.Store + o.Store, s.Gather + o.Gather, s.Decode + o.Decode, s.Convert + o.Convert, s.Copy + o.Copy, s.Wait + o.Wait, s.Ahead + o.Ahead}
}

// madeAhead is how many batches' worth of frames a loader has made and not handed out; nil where a sample has none.
func madeAhead(s *loader.Stats, w *Workload, cameras int) *float64 {
	each := float64(cameras * max(w.Window, 1))
	if s == nil || each == 0 || w.BatchSize == 0 {
		return nil
	}
	v := max(0, float64(s.Frames)/each-float64(s.Samples)) / float64(w.BatchSize)
	return &v
}
