package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/submit"
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

type number interface{ ~int | ~int64 | ~float64 }

func singleSample[N number](n N) []Sample { return []Sample{{"", float64(n)}} }

// labelledSamples returns values by label, sorted by label.
func labelledSamples[N number](by map[string]N) (out []Sample) {
	for _, k := range slices.Sorted(maps.Keys(by)) {
		out = append(out, Sample{k, float64(by[k])})
	}
	return out
}

// Loader returns the collector of a loader.
func Loader(stats func() loader.Stats) prometheus.Collector { return Of(loaderTable, stats) }

var loaderTable = []Family[loader.Stats]{
	{
		"loader_samples_total",
		"Samples handed out.",
		counter,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.Samples) },
	},
	{
		"loader_batches_total",
		"Batches handed out.",
		counter,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.Batches) },
	},
	{
		"loader_wait_seconds_total",
		"Who waited: the training loop for data, or the loader for the loop.",
		counter,
		"for",
		func(s *loader.Stats) []Sample {
			return labelledSamples(
				map[string]float64{"data": s.WaitData, "consumer": s.WaitConsumer},
			)
		},
	},
	{
		"loader_stage_seconds_total",
		"Time in stages, summed over threads.",
		counter,
		"stage",
		func(s *loader.Stats) []Sample {
			return labelledSamples(
				map[string]float64{
					"plan":    s.Plan,
					"gather":  s.Gather,
					"decode":  s.Decode,
					"convert": s.Convert,
					"copy":    s.Copy,
					"fetch":   s.Fetch,
				},
			)
		},
	},
	{
		"loader_frames_total",
		"Frames: in batches, out of decoders, converted once.",
		counter,
		"what",
		func(s *loader.Stats) []Sample {
			return labelledSamples(
				map[string]int64{
					"delivered": s.Frames,
					"decoded":   s.FramesDecoded,
					"unique":    s.FramesUnique,
				},
			)
		},
	},
	{
		"loader_video_bytes_total",
		"Bytes of video: read, and of them the packets that were decoded.",
		counter,
		"what",
		func(s *loader.Stats) []Sample {
			return labelledSamples(map[string]int64{"read": s.BytesRead, "needed": s.BytesNeeded})
		},
	},
	{
		"loader_reads_total",
		"Reads of video files.",
		counter,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.Reads) },
	},
	{
		"loader_decode_queue",
		"Jobs that wait for a worker.",
		gauge,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.DecodeQueue) },
	},
	{
		"loader_batches_in_flight",
		"Batches that are planned and not handed out.",
		gauge,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.InFlight) },
	},
	{
		"loader_cache_total",
		"Frames that were looked for in the cache.",
		counter,
		"result",
		func(s *loader.Stats) []Sample {
			if s.Cache == nil {
				return nil
			}
			return labelledSamples(map[string]int64{"hit": s.Cache.Hits, "miss": s.Cache.Misses})
		},
	},
	{"loader_cache_bytes", "Bytes in the cache.", gauge, "", func(s *loader.Stats) []Sample {
		if s.Cache == nil {
			return nil
		}
		return singleSample(s.Cache.Bytes)
	}},
	{"loader_memory_bytes", "Memory by use.", gauge, "use", func(s *loader.Stats) []Sample {
		return labelledSamples(
			map[string]int64{
				"batches":  s.BufferBytes,
				"kept":     s.Memory.KeptBytes,
				"decoders": s.Memory.DecoderBytes,
			},
		)
	}},
	{
		"loader_memory_budget_bytes",
		"memory_budget.",
		gauge,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.Memory.Budget) },
	},
	{
		"loader_skipped_samples_total",
		"Samples of bad episodes that were passed over.",
		counter,
		"",
		func(s *loader.Stats) []Sample { return singleSample(s.Skipped) },
	},
	{
		"loader_errors_total",
		"Errors by class: those that Next gave, and bad episodes that were skipped.",
		counter,
		"class",
		func(s *loader.Stats) []Sample { return labelledSamples(s.Errors) },
	},
}

// Shards returns the collector of an engine's shards.
func Shards(states func() submit.States) prometheus.Collector { return Of(shardTable, states) }

var shardTable = []Family[submit.States]{
	{"shards", "Shards of the manifest by state.", gauge, "state", func(s *submit.States) []Sample {
		return labelledSamples(
			map[string]int{
				"done":    s.Done,
				"running": s.Running,
				"waiting": s.Waiting,
				"failed":  s.Failed,
			},
		)
	}},
	{
		"shard_retries_total",
		"Tries of shards behind their first.",
		counter,
		"",
		func(s *submit.States) []Sample { return singleSample(s.Retries) },
	},
	{
		"shard_failed_tries_total",
		"Tries that were no success, by exit code.",
		counter,
		"code",
		func(s *submit.States) []Sample { return labelledSamples(s.Codes) },
	},
}

// Running is the collector of one shard that is being written.
type Running struct {
	prometheus.Collector
	*Server
	done, total atomic.Int64
	began       time.Time
}

// NewRunning returns the collector of a shard whose writing starts now.
func NewRunning(shard int) *Running {
	r := &Running{began: time.Now()}
	r.Collector = Of([]Family[Running]{
		{
			"run_shard",
			"The shard's number.",
			gauge,
			"",
			func(*Running) []Sample { return singleSample(shard) },
		},
		{
			"run_episodes",
			"Episodes of the shard: all, and those that are done.",
			gauge,
			"what",
			func(*Running) []Sample {
				return labelledSamples(
					map[string]int64{"all": r.total.Load(), "done": r.done.Load()},
				)
			},
		},
		{
			"run_seconds",
			"Time since the shard began.",
			gauge,
			"",
			func(*Running) []Sample { return singleSample(time.Since(r.began).Seconds()) },
		},
	}, func() Running { return Running{} })
	return r
}

// Episodes records the progress.
func (r *Running) Episodes(done, total int) {
	r.done.Store(int64(done))
	r.total.Store(int64(total))
}
