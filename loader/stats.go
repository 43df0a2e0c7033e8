package loader

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
	"github.com/goatnote-inc/robocache/video"
)

// Stats holds totals of a Loader or a Map since it was made. Times are in seconds and summed over
// threads, except for waits.
type Stats struct {
	Samples       int64   `json:"samples"` // delivered
	Batches       int64   `json:"batches"`
	Seconds       float64 `json:"seconds"` // since the first Next
	SamplesPerSec float64 `json:"samples_per_second"`
	FirstBatch    float64 `json:"first_batch_seconds"`
	// order, rows, frame lookup, decode plans
	Plan    float64 `json:"plan_seconds"`
	Gather  float64 `json:"gather_seconds"`  // numeric columns and text
	Decode  float64 `json:"decode_seconds"`  // packets to frames
	Convert float64 `json:"convert_seconds"` // frames to pixels, copies, casts
	Copy    float64 `json:"copy_seconds"`    // stored frames to pixels
	// reading packets of remote files ahead of decoding
	Fetch    float64 `json:"fetch_seconds"`
	WaitData float64 `json:"wait_data_seconds"` // Next waited for a batch
	// the planner waited because all batches in flight were planned
	WaitConsumer  float64 `json:"wait_consumer_seconds"`
	Frames        int64   `json:"frames"`         // frames in batches
	FramesDecoded int64   `json:"frames_decoded"` // frames that decoders delivered
	// frames converted; the other frames in batches are copies
	FramesUnique int64 `json:"frames_unique"`
	Packets      int64 `json:"packets"`
	BytesRead    int64 `json:"bytes_read"` // of video
	// part of BytesRead: packets that were decoded
	BytesNeeded int64       `json:"bytes_needed"`
	Reads       int64       `json:"reads"`  // of video files
	Stills      int64       `json:"stills"` // still images decoded
	BufferBytes int64       `json:"buffer_bytes"`
	BufferPeak  int64       `json:"buffer_peak_bytes"`
	BatchBytes  int64       `json:"batch_bytes"` // of a full batch
	Horizon     int         `json:"horizon"`     // batches planned together
	Memory      MemoryStats `json:"memory"`
	Pool        *PoolStats  `json:"pool,omitempty"`
	Cache       *CacheStats `json:"cache,omitempty"`
	Wrapped     int64       `json:"wrapped"`
	// samples of bad episodes that were skipped
	Skipped     int64 `json:"skipped"`
	DecodeQueue int   `json:"decode_queue"`      // jobs that have not started
	InFlight    int   `json:"batches_in_flight"` // planned and not delivered
	// by class: returned by Next, and bad episodes skipped
	Errors      map[string]int64 `json:"errors,omitempty"`
	Sources     []SourceStats    `json:"sources,omitempty"`      // of a mixture
	BadEpisodes []BadEpisode     `json:"bad_episodes,omitempty"` // those found at opening first
	Warnings    []string         `json:"warnings,omitempty"`
	// NotDelivered lists the streams that the datasets declare and that no batch holds, because
	// they cannot be delivered.
	NotDelivered []NotDelivered `json:"not_delivered"`
	Backend      string         `json:"backend,omitempty"` // name and version of the decoder
	// Decoding states how many frames the host and the device decoded, for each source that a
	// device decodes for.
	Decoding []video.SplitStats `json:"decoding,omitempty"`
	Follow   *FollowStats       `json:"follow,omitempty"` // of a dataset that grows
}

// addEarlier adds the totals of assemblers that were replaced.
func (s *Stats) addEarlier(e *Stats) {
	for _, x := range []struct {
		total *int64
		more  int64
	}{
		{&s.Samples, e.Samples},
		{&s.Batches, e.Batches},
		{&s.Frames, e.Frames},
		{&s.FramesDecoded, e.FramesDecoded},
		{&s.FramesUnique, e.FramesUnique},
		{&s.Packets, e.Packets},
		{&s.BytesRead, e.BytesRead},
		{&s.BytesNeeded, e.BytesNeeded},
		{&s.Reads, e.Reads},
		{&s.Stills, e.Stills},
		{&s.Wrapped, e.Wrapped},
		{&s.Skipped, e.Skipped},
	} {
		*x.total += x.more
	}
	for _, x := range []struct {
		total *float64
		more  float64
	}{
		{&s.Plan, e.Plan},
		{&s.Gather, e.Gather},
		{&s.Decode, e.Decode},
		{&s.Convert, e.Convert},
		{&s.Copy, e.Copy},
		{&s.Fetch, e.Fetch},
		{&s.WaitData, e.WaitData},
		{&s.WaitConsumer, e.WaitConsumer},
	} {
		*x.total += x.more
	}
	s.BufferPeak = max(s.BufferPeak, e.BufferPeak)
	if e.Batches > 0 {
		s.FirstBatch = e.FirstBatch
	}
	for _, w := range e.Warnings {
		if !slices.Contains(s.Warnings, w) {
			s.Warnings = append(s.Warnings, w)
		}
	}
}

// MemoryStats states how memory_budget is divided, and the use of each part.
type MemoryStats struct {
	Budget int64 `json:"budget_bytes"`
	// for batches under construction; BufferBytes and BufferPeak are in use
	Batches   int64 `json:"batches_budget_bytes"`
	Kept      int64 `json:"kept_budget_bytes"` // frames of the pool and the RAM cache
	KeptBytes int64 `json:"kept_bytes"`
	KeptPeak  int64 `json:"kept_peak_bytes"`
	// of device memory: frames of the pool that it decoded
	Device       int64 `json:"device_budget_bytes,omitempty"`
	DeviceBytes  int64 `json:"device_bytes,omitempty"`
	DevicePeak   int64 `json:"device_peak_bytes,omitempty"`
	Decoders     int64 `json:"decoders_budget_bytes"` // idle ones
	DecoderBytes int64 `json:"decoder_bytes"`
}

// PoolStats describes the pool of shuffle="pool".
type PoolStats struct {
	Samples  int64 `json:"samples"`  // capacity of the order
	Episodes int64 `json:"episodes"` // maximum of resident episodes; 0: no limit
	Shards   int   `json:"shards"`
	Resident int64 `json:"resident_frames"`
	// frames not stored for lack of memory: each request decodes them again
	Refused int64 `json:"refused_frames"`
	// Randomness is simulated over the beginning of epoch 0 at the global batch size. It shows the
	// effect of the pool's size.
	Randomness Randomness `json:"randomness"`
}

// CacheStats describes a cache. Each requested frame is a hit or a miss.
type CacheStats = frames.CacheStats

// Stats returns totals of the work so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := collectStats(l.assembler)
	s.addEarlier(&l.earlier)
	if l.follow != nil {
		s.Follow = l.follow.stats()
	}
	if !l.startTime.IsZero() {
		s.Seconds = time.Since(l.startTime).Seconds()
	}
	if s.Seconds > 0 {
		s.SamplesPerSec = float64(s.Samples) / s.Seconds
	}
	s.BatchBytes = l.assembler.BatchBytes(l.config.BatchSize)
	s.Horizon, _, _ = l.assembler.DecodeHorizon()
	s.BadEpisodes = append(s.BadEpisodes, l.progress.Bad...)
	s.Errors = maps.Clone(l.errorCounts)
	if l.run != nil {
		s.DecodeQueue, s.InFlight = l.run.Queue.Len(), l.run.InFlight()
	}
	if s.Pool != nil {
		s.Pool.Randomness = l.measureRandomness()
	}
	if s.Pool != nil {
		for _, p := range l.progress.Order.Pools {
			s.Pool.Samples += p.PoolSamples
			s.Pool.Episodes += p.PoolEpisodes
			s.Pool.Shards = max(s.Pool.Shards, p.PoolShards)
		}
	}
	s.Sources = l.progress.Sources(s.BadEpisodes)
	s.BadEpisodes = l.assembler.BadEpisodesByIndex(s.BadEpisodes)
	return s
}

// collectStats returns the totals that a Loader and a Map have in common.
func collectStats(a *pipeline.Assembler) Stats {
	sec := func(n *atomic.Int64) float64 { return time.Duration(n.Load()).Seconds() }
	batches, f := &a.Counters, &a.Frames.Counters
	s := Stats{
		Samples:      batches.Samples.Load(),
		Batches:      batches.Batches.Load(),
		FirstBatch:   sec(&batches.First),
		Plan:         sec(&f.Plan),
		Gather:       sec(&batches.Gather),
		Decode:       sec(&f.Decode),
		Convert:      sec(&f.Convert),
		Copy:         sec(&f.Copy),
		Fetch:        sec(&f.Fetch),
		WaitData:     sec(&batches.WaitData),
		WaitConsumer: sec(&batches.WaitConsumer),
		Frames:       f.Frames.Load(),
		FramesUnique: f.Unique.Load(),
		Stills:       a.Resources.StillsDecoded.Load(),
		BufferBytes:  a.Buffers.InUse.Load(),
		BufferPeak:   a.Buffers.Peak.Load(),
		Wrapped:      batches.Wrapped.Load(),
		Skipped:      a.Report.Skipped.Load(),
	}
	s.NotDelivered = []NotDelivered{}
	for i, src := range a.Sources {
		s.NotDelivered = append(s.NotDelivered, src.Withheld(i)...)
		s.BadEpisodes = append(s.BadEpisodes, src.LostEpisodes...)
		if src.Files == nil {
			continue
		}
		p := src.Files.Stats()
		s.FramesDecoded += p.Decoded
		s.Packets += p.Packets
		s.BytesRead += p.BytesRead
		s.BytesNeeded += p.BytesNeeded
		s.Reads += p.Reads
		s.Memory.Decoders += int64(a.Config.MemoryBudget) / 8 / int64(len(a.Sources))
		s.Memory.DecoderBytes += p.IdleBytes
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
	addStoreStats(a, &s)
	s.Warnings = a.Report.ListWarnings()
	return s
}

// maxRandomnessSamples bounds the simulation to a few milliseconds.
const maxRandomnessSamples = 200_000

// measureRandomness returns the randomness of the current order, cached per order. Caller must hold
// l.mu.
func (l *Loader) measureRandomness() Randomness {
	// Restore replaces the order
	if l.poolRandomness == nil || l.randomnessOrder != l.progress.Order {
		globalBatch := int64(l.config.BatchSize) * int64(l.config.WorldSize)
		r := l.progress.Order.Quality(0, globalBatch, maxRandomnessSamples)
		l.poolRandomness, l.randomnessOrder = &r, l.progress.Order
	}
	return *l.poolRandomness
}

// addStoreStats adds the statistics of the frame store and the caches.
func addStoreStats(a *pipeline.Assembler, s *Stats) {
	k := a.Frames.Stats(a.Config.Cache)
	s.Cache = k.Cache
	s.Memory.Kept = k.Limit
	s.Memory.KeptBytes = k.Bytes
	s.Memory.KeptPeak = k.Peak
	s.Memory.Device = k.DeviceLimit
	s.Memory.DeviceBytes = k.DeviceBytes
	s.Memory.DevicePeak = k.DevicePeak
	if a.Config.Shuffle == Pool && k.Limit > 0 {
		s.Pool = &PoolStats{Resident: k.Resident, Refused: k.Refused}
	}
	if s.Cache == nil && a.CacheFolder.Dir != nil {
		dir := frames.DirectoryStats(a.CacheFolder.Dir, a.Config.Cache, "encoded")
		s.Cache = dir.WithHitRate()
	}
}
