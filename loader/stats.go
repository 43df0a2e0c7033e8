package loader

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/video"
)

// Stats is what a Loader or a Map did since it was made. Times are seconds, summed over threads, but for the waits.
type Stats struct {
	Samples       int64            `json:"samples"` // handed out
	Batches       int64            `json:"batches"`
	Seconds       float64          `json:"seconds"` // since the first batch was asked for
	SamplesPerSec float64          `json:"samples_per_second"`
	FirstBatch    float64          `json:"first_batch_seconds"`
	Plan          float64          `json:"plan_seconds"`          // order, rows, frame places, decode plans
	Gather        float64          `json:"gather_seconds"`        // numeric columns and text
	Decode        float64          `json:"decode_seconds"`        // packets to frames
	Convert       float64          `json:"convert_seconds"`       // frames to pixels, copies, casts
	Copy          float64          `json:"copy_seconds"`          // kept frames to pixels
	Fetch         float64          `json:"fetch_seconds"`         // reading packets of remote files, beside decoding
	WaitData      float64          `json:"wait_data_seconds"`     // Next waited for a batch
	WaitConsumer  float64          `json:"wait_consumer_seconds"` // all that may be prefetched was there
	Frames        int64            `json:"frames"`                // frames in batches
	FramesDecoded int64            `json:"frames_decoded"`        // frames that came out of decoders
	FramesUnique  int64            `json:"frames_unique"`         // frames converted; the others are copies of them
	Packets       int64            `json:"packets"`
	BytesRead     int64            `json:"bytes_read"`   // of video
	BytesNeeded   int64            `json:"bytes_needed"` // of it, the packets that were decoded
	Reads         int64            `json:"reads"`        // of video files
	Stills        int64            `json:"stills"`       // still images decoded
	BufferBytes   int64            `json:"buffer_bytes"`
	BufferPeak    int64            `json:"buffer_peak_bytes"`
	BatchBytes    int64            `json:"batch_bytes"` // of a full batch
	Horizon       int              `json:"horizon"`     // batches planned together
	Memory        MemoryStats      `json:"memory"`
	Pool          *PoolStats       `json:"pool,omitempty"`
	Cache         *CacheStats      `json:"cache,omitempty"`
	Wrapped       int64            `json:"wrapped"`
	Skipped       int64            `json:"skipped"`                // samples of bad episodes passed over
	DecodeQueue   int              `json:"decode_queue"`           // jobs that wait for a worker
	InFlight      int              `json:"batches_in_flight"`      // planned, not handed out
	Errors        map[string]int64 `json:"errors,omitempty"`       // by class: given by Next, and bad episodes skipped
	Sources       []SourceStats    `json:"sources,omitempty"`      // of a mixture
	BadEpisodes   []BadEpisode     `json:"bad_episodes,omitempty"` // those that opening found first
	Warnings      []string         `json:"warnings,omitempty"`
	// NotDelivered are the streams that the datasets declare and that no batch holds because they cannot be given.
	NotDelivered []plan.NotDelivered `json:"not_delivered"`
	Backend      string              `json:"backend,omitempty"` // the decoder
	// Decoding says what was decoded where, of each source that a device decodes for.
	Decoding []video.SplitStats `json:"decoding,omitempty"`
}

// MemoryStats says how memory_budget is shared out, and what of it is and was taken.
type MemoryStats struct {
	Budget       int64 `json:"budget_bytes"`
	Batches      int64 `json:"batches_budget_bytes"` // under construction; BufferBytes and BufferPeak say what is taken
	Kept         int64 `json:"kept_budget_bytes"`    // frames of the pool and the RAM cache
	KeptBytes    int64 `json:"kept_bytes"`
	KeptPeak     int64 `json:"kept_peak_bytes"`
	Device       int64 `json:"device_budget_bytes,omitempty"` // of a device's memory: frames of the pool that it decoded
	DeviceBytes  int64 `json:"device_bytes,omitempty"`
	DevicePeak   int64 `json:"device_peak_bytes,omitempty"`
	Decoders     int64 `json:"decoders_budget_bytes"` // idle ones
	DecoderBytes int64 `json:"decoder_bytes"`
}

// PoolStats is what shuffle="pool" keeps.
type PoolStats struct {
	Samples  int64 `json:"samples"`  // the order's capacity
	Episodes int64 `json:"episodes"` // and bound; 0: none
	Shards   int   `json:"shards"`
	Resident int64 `json:"resident_frames"`
	Refused  int64 `json:"refused_frames"` // for which there was no room: decoded again when wanted
	// Randomness is simulated over the beginning of epoch 0, at the global batch: what the pool's size buys.
	Randomness Randomness `json:"randomness"`
}

// CacheStats is what a cache did. Frames that are wanted are hits or misses.
type CacheStats = frames.CacheStats

// Stats says what was done so far.
func (l *Loader) Stats() Stats {
	s := statsOf(l.a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() {
		s.Seconds = time.Since(l.began).Seconds()
	}
	if s.Seconds > 0 {
		s.SamplesPerSec = float64(s.Samples) / s.Seconds
	}
	s.BatchBytes = l.a.BatchBytes(l.cfg.BatchSize)
	s.Horizon, _, _ = l.a.DecodeHorizon()
	s.BadEpisodes = append(s.BadEpisodes, l.at.Bad...)
	s.Errors = maps.Clone(l.errors)
	if l.run != nil {
		s.DecodeQueue, s.InFlight = l.run.Queue.Len(), l.run.InFlight()
	}
	if s.Pool != nil {
		s.Pool.Randomness = l.randomness()
	}
	if s.Pool != nil {
		for _, p := range l.at.Order.Pools {
			s.Pool.Samples, s.Pool.Episodes, s.Pool.Shards = s.Pool.Samples+p.PoolSamples, s.Pool.Episodes+p.PoolEpisodes, max(s.Pool.Shards, p.PoolShards)
		}
	}
	s.Sources = l.at.Sources(s.BadEpisodes)
	s.BadEpisodes = l.a.BadEpisodesByIndex(s.BadEpisodes)
	return s
}

func statsOf(a *pipeline.Assembler) Stats {
	sec := func(n *atomic.Int64) float64 { return time.Duration(n.Load()).Seconds() }
	n, f := &a.Counters, &a.Frames.Counters
	s := Stats{
		Samples: n.Samples.Load(), Batches: n.Batches.Load(), FirstBatch: sec(&n.First),
		Plan: sec(&f.Plan), Gather: sec(&n.Gather), Decode: sec(&f.Decode), Convert: sec(&f.Convert), Copy: sec(&f.Copy), Fetch: sec(&f.Fetch), WaitData: sec(&n.WaitData), WaitConsumer: sec(&n.WaitConsumer),
		Frames: f.Frames.Load(), FramesUnique: f.Unique.Load(), Stills: a.Resources.StillsDecoded.Load(),
		BufferBytes: a.Buffers.InUse.Load(), BufferPeak: a.Buffers.Peak.Load(), Wrapped: n.Wrapped.Load(), Skipped: a.Report.Skipped.Load(),
	}
	s.NotDelivered = []plan.NotDelivered{}
	for i, src := range a.Sources {
		s.NotDelivered = append(s.NotDelivered, src.Withheld(i)...)
		s.BadEpisodes = append(s.BadEpisodes, src.LostEpisodes...)
		if src.Files == nil {
			continue
		}
		p := src.Files.Stats()
		s.FramesDecoded, s.Packets, s.BytesRead = s.FramesDecoded+p.Decoded, s.Packets+p.Packets, s.BytesRead+p.BytesRead
		s.BytesNeeded, s.Reads = s.BytesNeeded+p.BytesNeeded, s.Reads+p.Reads
		s.Memory.Decoders, s.Memory.DecoderBytes = s.Memory.Decoders+int64(a.Config.MemoryBudget)/8/int64(len(a.Sources)), s.Memory.DecoderBytes+p.IdleBytes
		if l, ok := src.Files.(*frames.Library); ok {
			if w := l.SplitStats(); w != nil {
				s.Decoding = append(s.Decoding, *w)
			}
		}
		if b, err := video.ActiveBackend(); err == nil {
			s.Backend = b.Name() + " " + b.Version()
		}
	}
	s.Memory.Budget, s.Memory.Batches = int64(a.Config.MemoryBudget), a.Budget
	addKept(a, &s)
	s.Warnings = a.Report.ListWarnings()
	return s
}

// randomSamples bounds the simulation: some milliseconds.
const randomSamples = 200_000

// randomness simulates the order once. l.mu is held.
func (l *Loader) randomness() Randomness {
	if l.random == nil || l.randomOf != l.at.Order { // Restore may have brought another
		r := l.at.Order.Quality(0, int64(l.cfg.BatchSize)*int64(l.cfg.WorldSize), randomSamples)
		l.random, l.randomOf = &r, l.at.Order
	}
	return *l.random
}

// addKept adds what the pool and the caches did.
func addKept(a *pipeline.Assembler, s *Stats) {
	k := a.Frames.Stats(a.Config.Cache)
	s.Memory.Kept, s.Memory.KeptBytes, s.Memory.KeptPeak, s.Cache = k.Limit, k.Bytes, k.Peak, k.Cache
	s.Memory.Device, s.Memory.DeviceBytes, s.Memory.DevicePeak = k.DeviceLimit, k.DeviceBytes, k.DevicePeak
	if a.Config.Shuffle == Pool && k.Limit > 0 {
		s.Pool = &PoolStats{Resident: k.Resident, Refused: k.Refused}
	}
	if s.Cache == nil && a.CacheFolder.Dir != nil {
		s.Cache = frames.DirectoryStats(a.CacheFolder.Dir, a.Config.Cache, "encoded").WithHitRate()
	}
}
