package bench

import "github.com/goatnote-inc/robocache/loader"

// queued is the number of batches that were ready and not taken, where the loader says it.
func queued(*loader.Stats) *int { return nil }

// Stages are seconds of work in a window, summed over threads.
type Stages struct {
	Plan     float64 `json:"plan"`     // order, places, decode plans
	Store    float64 `json:"store"`    // waiting for bytes of a remote store
	Gather   float64 `json:"gather"`   // columns and text
	Decode   float64 `json:"decode"`   // packets to pictures
	Convert  float64 `json:"convert"`  // pictures to pixels, copies, casts
	Wait     float64 `json:"wait"`     // of the taker, for a batch
	Consumer float64 `json:"consumer"` // all that may be prefetched stood ready
}

// stagesOf is what was done between two looks at a loader.
func stagesOf(a, b *loader.Stats) Stages {
	if a == nil || b == nil {
		return Stages{}
	}
	return Stages{Plan: b.Plan - a.Plan, Gather: b.Gather - a.Gather, Decode: b.Decode - a.Decode, Convert: b.Convert - a.Convert,
		Wait: b.WaitData - a.WaitData, Consumer: b.WaitConsumer - a.WaitConsumer}
}

// Busy is the work of threads.
func (s Stages) Busy() float64 { return s.Plan + s.Store + s.Gather + s.Decode + s.Convert }

// fetch is the share of work that finds and brings bytes; decode makes pixels of them.
func (s Stages) fetch() float64  { return s.Plan + s.Store + s.Gather }
func (s Stages) decode() float64 { return s.Decode + s.Convert }
