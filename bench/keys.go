package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Keys is one result of a scenario. It has the keys of the original benchmark in their order, then
// our own, then the settings behind the figures. null means not measured; zero is a measured value.
// The tag ranks defines how the row of all ranks combines the values of the ranks; weighed means
// weighted by samples.
type Keys struct {
	Scenario             string  `json:"scenario"`
	Rank                 int     `json:"rank"`
	WorldSize            int     `json:"world_size"`
	Loader               string  `json:"loader"` // map_style | streaming
	BatchSize            int     `json:"batch_size"`
	NumWorkers           int     `json:"num_workers"`
	EpisodePoolSize      int     `json:"episode_pool_size"`
	MaxBufferInputShards int     `json:"max_buffer_input_shards"`
	LoadedEpisodes       *int    `json:"loaded_episodes,omitempty"` // map_style
	NumShards            *int    `json:"num_shards,omitempty"`      // streaming
	DataFilesRoot        *string `json:"data_files_root,omitempty"` // streaming

	NumCameras            int            `json:"num_cameras"`
	ImageShape            []int          `json:"image_shape"`
	FPS                   float64        `json:"fps"`
	PeakRSSGB             float64        `json:"peak_rss_gb" ranks:"sum"`
	SamplesMeasured       int64          `json:"samples_measured"`
	SteadyWindowS         float64        `json:"steady_window_s"`
	FirstBatchLatencyS    float64        `json:"first_batch_latency_s" ranks:"max"`
	SamplesPerS           float64        `json:"samples_per_s"`
	DecodedFramesPerS     float64        `json:"decoded_frames_per_s"`
	SingleProcSamplesPerS *float64       `json:"single_proc_samples_per_s" ranks:"mean"`
	FetchPct              *float64       `json:"fetch_pct" ranks:"mean"`
	DecodePct             *float64       `json:"decode_pct" ranks:"mean"`
	ShuffleRandomnessFrac float64        `json:"shuffle_randomness_frac" ranks:"mean"`
	P50SampleLatencyMS    float64        `json:"p50_sample_latency_ms"`
	P95SampleLatencyMS    float64        `json:"p95_sample_latency_ms"`
	P99SampleLatencyMS    float64        `json:"p99_sample_latency_ms"`
	TotalTimeS            float64        `json:"total_time_s" ranks:"max"`
	PSSPeakGB             float64        `json:"pss_peak_gb" ranks:"sum"`
	OpenS                 float64        `json:"open_s" ranks:"max"`
	IndexBuildS           float64        `json:"index_build_s" ranks:"max"`
	FramesDeliveredPerS   *float64       `json:"frames_delivered_per_s" ranks:"sum"`
	FramesDecodedPerS     *float64       `json:"frames_decoded_per_s" ranks:"sum"`
	BytesReadPerSample    *float64       `json:"bytes_read_per_sample" ranks:"weighed"`
	BytesNeededPerSample  *float64       `json:"bytes_needed_per_sample" ranks:"weighed"`
	CPUPerSample          float64        `json:"cpu_s_per_sample" ranks:"weighed"`
	RandomnessIdeal       float64        `json:"randomness_ideal"`
	RandomnessVsIdeal     *float64       `json:"randomness_vs_ideal"`
	NeighbourShare        float64        `json:"neighbour_share" ranks:"mean"`
	CoverageMin           *int           `json:"coverage_min"`
	CoverageMax           *int           `json:"coverage_max"`
	OrderSHA256           string         `json:"order_sha256"`
	FramesChecked         *int           `json:"frames_checked"`
	WrongFrames           *int           `json:"wrong_frames"`
	ResumeExact           *bool          `json:"resume_exact"`
	WaitPct               *float64       `json:"wait_pct" ranks:"max"`
	H2DWaitPct            *float64       `json:"h2d_wait_pct" ranks:"max"`
	SkippedEpisodes       int            `json:"skipped_episodes" ranks:"max"`
	Errors                []string       `json:"errors"`
	CacheState            string         `json:"cache_state"` // cold | warm | unproven
	Repeats               int            `json:"repeats"`
	Versions              any            `json:"versions"`
	Machine               report.Machine `json:"machine"`

	// The fields below are the settings behind the figures.
	Runner  string `json:"arm"`
	Setting string `json:"setting"`
	Shuffle string `json:"shuffle"`
	Cache   string `json:"cache"`
	// source of the bytes, with latency and bandwidth
	Store          string     `json:"store"`
	QueueBatches   []*float64 `json:"queue_batches"`
	Stages         Stages     `json:"stages_s"`
	OrderSamples   int64      `json:"order_samples"`
	EpochsFinished int        `json:"epochs_finished"`
	SamplesLost    int64      `json:"samples_lost"` // in finished epochs
	// in finished epochs, without the samples that are repeated by design
	SamplesDoubled     int64     `json:"samples_doubled"`
	ConsumerStepMS     float64   `json:"consumer_step_ms"`
	DeviceReadBytes    int64     `json:"device_read_bytes"`
	SlowestRank        *int      `json:"slowest_rank"`
	SlowestSamplesPerS *float64  `json:"slowest_rank_samples_per_s"`
	RankSamplesPerS    []float64 `json:"rank_samples_per_s"`
	// over the repeats; the figures above belong to the median run
	Spread map[string]report.Spread `json:"spread"`
	Failed string                   `json:"failed"` // why this run is invalid
	Notes  []string                 `json:"notes"`
}

// resultRow makes the row of one rank, or of all ranks together, from an outcome. It copies the
// keys that both types have.
func (s *Suite) resultRow(p *measuredPoint, rank int, o *Outcome) (*Keys, error) {
	w, k, n := &p.workload, &Keys{}, float64(o.Samples)
	encoded, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(encoded, k); err != nil {
		return nil, err
	}
	rate, g := o.rate(), arrivalGaps(o.ArrivalsUS, o.ArrivalRows)
	k.Scenario, k.Rank, k.WorldSize, k.Loader, k.BatchSize, k.NumWorkers = p.scenario.Name, rank,
		max(w.World, 1), p.scenario.Loader, w.BatchSize, w.Workers
	k.EpisodePoolSize, k.MaxBufferInputShards = w.PoolEpisodes, w.PoolEpisodes
	k.SamplesMeasured, k.SteadyWindowS, k.CPUPerSample = o.Samples, o.Seconds, o.CPUSeconds/n
	k.SamplesPerS, k.DecodedFramesPerS = rate, rate*float64(o.Cameras)
	k.P50SampleLatencyMS, k.P95SampleLatencyMS, k.P99SampleLatencyMS = nearestQuantile(g, 0.5),
		nearestQuantile(g, 0.95), nearestQuantile(g, 0.99)
	k.PeakRSSGB, k.PSSPeakGB = o.RSSPeakMB*(1<<20)/1e9, o.PSSPeakMB*(1<<20)/1e9
	k.ConsumerStepMS, k.Errors, k.Notes = 1e3*o.ConsumerStepS, []string{}, []string{}
	k.Runner, k.Setting, k.Shuffle, k.Cache = p.runnerName,
		fmt.Sprintf("%d workers, prefetch %d, shuffle %s", w.Workers, w.Prefetch, w.Shuffle),
		w.Shuffle, w.Cache
	// Only the row of all ranks has these figures. They are set below and by pointResult.
	k.FramesChecked, k.WrongFrames, k.CoverageMin, k.CoverageMax = nil, nil, nil, nil
	k.SamplesLost, k.SamplesDoubled = 0, 0
	k.Machine, k.Repeats = s.machine, len(p.Runs)
	per := func(v float64) *float64 { return &v }
	if o.IdealFrac > 0 {
		k.RandomnessVsIdeal = per(o.DistinctFrac / o.IdealFrac)
	}
	if o.ServerBytes > 0 {
		k.BytesReadPerSample = per(float64(o.ServerBytes) / n)
	} else if o.BytesRead > 0 || p.scenario.Store != "" {
		k.BytesReadPerSample = per(float64(o.BytesRead) / n)
	}
	if o.Cameras == 0 {
		k.BytesNeededPerSample = &s.rowBytes
	}
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil {
		k.FramesDeliveredPerS, k.FramesDecodedPerS = per(float64(b.Frames-a.Frames)/o.Seconds),
			per(float64(b.FramesDecoded-a.FramesDecoded)/o.Seconds)
		if b.Frames > a.Frames { // bytes of the decoded packets, and the rows
			k.BytesNeededPerSample = per(float64(b.BytesNeeded-a.BytesNeeded)/n + s.rowBytes)
		}
		k.Stages = stagesOf(a, b)
		// These stages find and read bytes. The other stages compute pixels.
		fetch := k.Stages["plan"] + k.Stages["store"] + k.Stages["gather"]
		if all := k.Stages.busySeconds() + k.Stages["store"]; all > 0 {
			k.FetchPct, k.DecodePct = per(100*fetch/all), per(100*(all-fetch)/all)
		}
		if len(k.QueueBatches) == 0 || k.QueueBatches[0] == nil {
			k.QueueBatches = []*float64{
				batchesReady(a, w, o.Cameras),
				batchesReady(b, w, o.Cameras),
			}
		}
		k.Notes = append(k.Notes, o.decodingNotes()...)
		k.SkippedEpisodes = len(b.BadEpisodes)
		for _, e := range b.BadEpisodes {
			k.Errors = append(k.Errors, fmt.Sprintf("episode %d skipped: %s", e.Episode, e.Error))
		}
	}
	if w.World <= 1 || o.Ranks != nil { // a single rank delivers only its share of an epoch
		if o.EpochsFinished > 0 {
			k.CoverageMin, k.CoverageMax = &o.CoverageMin, &o.CoverageMax
		}
		k.setLostSamples(o.SamplesLost, o.SamplesDoubled, s.reference.samples, w)
	}
	if k.CacheState == "cold" && k.DeviceReadBytes == 0 {
		k.CacheState = "unproven" // evicted, but no device was read
	}
	if k.CacheState == "cold" && k.EpochsFinished > 0 {
		k.Notes = append(
			k.Notes,
			fmt.Sprintf(
				"the set was read %d times; only the first pass found a cold page cache "+
					"(a larger set, or a shorter --duration)",
				k.EpochsFinished,
			),
		)
	}
	if k.Loader == "map_style" {
		n := cmp.Or(o.LoadedEpisodes, len(s.reference.lengths))
		k.Store, k.LoadedEpisodes = "local files", &n
		return k, nil
	}
	k.LoadedEpisodes, k.NumShards, k.DataFilesRoot = nil, &s.videoFiles, &s.URI
	if k.Store = "the set's own server"; s.reference.localRoot != "" {
		k.Store = "http on the loopback, " + p.scenario.Store + ": " +
			s.Links[p.scenario.Store].String()
	}
	return k, nil
}

// setLostSamples sets the samples that were lost or doubled in finished epochs, beyond those that
// the end of an epoch drops or repeats by design.
func (k *Keys) setLostSamples(lost, doubled, samples int64, w *Workload) {
	if k.SkippedEpisodes > 0 {
		k.Notes = append(
			k.Notes,
			"episodes were skipped: what they lack, and what came in their place, is not counted "+
				"as lost or doubled",
		)
		return
	}
	n := int64(k.EpochsFinished)
	wraps, drops := epochRemainder(samples, w.BatchSize, w.World, w.DropLast)
	k.SamplesLost, k.SamplesDoubled = lost-n*drops, doubled-n*wraps
}

// mergeRanks turns k into the row of all ranks. The rates are those of the common window, and the
// slowest rank is recorded.
func (k *Keys) mergeRanks(ranks []*Keys, o *Outcome) {
	c := o.commonSpan
	k.Rank, k.Setting = -1, fmt.Sprintf("%d ranks; %s", len(ranks), k.Setting)
	k.P50SampleLatencyMS, k.P95SampleLatencyMS, k.P99SampleLatencyMS = nearestQuantile(c.Gaps, 0.5),
		nearestQuantile(c.Gaps, 0.95), nearestQuantile(c.Gaps, 0.99)
	k.RankSamplesPerS, k.SlowestRank, k.SlowestSamplesPerS = c.Rates, &c.Slowest, &c.Rates[c.Slowest]
	k.Errors = []string{}
	for i, r := range ranks {
		for _, e := range r.Errors {
			k.Errors = append(k.Errors, fmt.Sprintf("rank %d: %s", i, e))
		}
	}
	mergeTaggedFields(k, ranks)
	if k.RandomnessIdeal > 0 {
		v := k.ShuffleRandomnessFrac / k.RandomnessIdeal
		k.RandomnessVsIdeal = &v
	}
}

// mergeTaggedFields combines the fields that have a ranks tag. A field is null if a rank lacks it.
func mergeTaggedFields(into *Keys, ranks []*Keys) {
	to := reflect.ValueOf(into).Elem()
	for i := range to.NumField() {
		how, field := to.Type().Field(i).Tag.Get("ranks"), to.Field(i)
		if how == "" {
			continue
		}
		var sum, most, weighed, samples float64
		found := true
		for _, r := range ranks {
			v := reflect.Indirect(reflect.ValueOf(r).Elem().Field(i))
			if found = v.IsValid(); !found {
				break
			}
			x := v.Convert(reflect.TypeFor[float64]()).Float()
			sum, most, weighed, samples = sum+x, max(most, x), weighed+
				x*float64(r.SamplesMeasured), samples+float64(r.SamplesMeasured)
		}
		if field.Kind() == reflect.Pointer {
			if field.SetZero(); !found {
				continue
			}
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		v := map[string]float64{
			"sum":     sum,
			"mean":    sum / float64(len(ranks)),
			"max":     most,
			"weighed": weighed / samples,
		}[how]
		field.Set(reflect.ValueOf(v).Convert(field.Type()))
	}
}
