package loader

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache/video"
)

// Stats is what a Loader or a Map did since it was made. Times are seconds, summed over threads, but for the waits.
type Stats struct {
	Samples       int64        `json:"samples"` // handed out
	Batches       int64        `json:"batches"`
	Seconds       float64      `json:"seconds"` // since the first batch was asked for
	SamplesPerSec float64      `json:"samples_per_second"`
	FirstBatch    float64      `json:"first_batch_seconds"`
	Plan          float64      `json:"plan_seconds"`          // order, rows, frame places, decode plans
	Gather        float64      `json:"gather_seconds"`        // numeric columns and text
	Decode        float64      `json:"decode_seconds"`        // packets to pictures
	Convert       float64      `json:"convert_seconds"`       // pictures to pixels, copies, casts
	WaitData      float64      `json:"wait_data_seconds"`     // Next waited for a batch
	WaitConsumer  float64      `json:"wait_consumer_seconds"` // all that may be prefetched was there
	Frames        int64        `json:"frames"`                // pictures in batches
	FramesDecoded int64        `json:"frames_decoded"`        // pictures that came out of decoders
	FramesUnique  int64        `json:"frames_unique"`         // pictures converted; the others are copies of them
	Packets       int64        `json:"packets"`
	BytesRead     int64        `json:"bytes_read"` // of video
	Stills        int64        `json:"stills"`     // still pictures decoded
	BufferBytes   int64        `json:"buffer_bytes"`
	BufferPeak    int64        `json:"buffer_peak_bytes"`
	BatchBytes    int64        `json:"batch_bytes"` // of a full batch
	Horizon       int          `json:"horizon"`     // batches planned together
	Wrapped       int64        `json:"wrapped"`
	Skipped       int64        `json:"skipped"` // samples of bad episodes passed over
	BadEpisodes   []BadEpisode `json:"bad_episodes,omitempty"`
	Warnings      []string     `json:"warnings,omitempty"`
	Backend       string       `json:"backend,omitempty"` // the decoder
}

// Stats says what was done so far.
func (l *Loader) Stats() Stats {
	s := l.a.stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() {
		s.Seconds = time.Since(l.began).Seconds()
	}
	if s.Seconds > 0 {
		s.SamplesPerSec = float64(s.Samples) / s.Seconds
	}
	s.BatchBytes = l.a.batchBytes(l.cfg.BatchSize)
	s.Horizon, _, _ = l.a.horizonOf()
	s.BadEpisodes = slices.Clone(l.bad)
	return s
}

func (a *assembler) stats() Stats {
	sec := func(n *atomic.Int64) float64 { return time.Duration(n.Load()).Seconds() }
	n := &a.n
	s := Stats{
		Samples: n.samples.Load(), Batches: n.batches.Load(), FirstBatch: sec(&n.first),
		Plan: sec(&n.plan), Gather: sec(&n.gather), Decode: sec(&n.decode), Convert: sec(&n.convert), WaitData: sec(&n.waitData), WaitConsumer: sec(&n.waitConsumer),
		Frames: n.frames.Load(), FramesUnique: n.unique.Load(), Stills: n.stills.Load(),
		BufferBytes: a.buffers.inUse.Load(), BufferPeak: a.buffers.peak.Load(), Wrapped: n.wrap.Load(), Skipped: n.skip.Load(),
	}
	for _, src := range a.sources {
		if src.reels == nil {
			continue
		}
		p := src.decoders()
		s.FramesDecoded, s.Packets, s.BytesRead = s.FramesDecoded+p.Decoded, s.Packets+p.Packets, s.BytesRead+p.BytesRead
		if b, err := video.ActiveBackend(); err == nil {
			s.Backend = b.Name() + " " + b.Version()
		}
	}
	a.mu.Lock()
	s.Warnings = slices.Clone(a.warnings)
	a.mu.Unlock()
	return s
}
