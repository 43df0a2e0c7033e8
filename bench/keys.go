package bench

import (
	"github.com/goatnote-inc/robocache/bench/report"
)

// Keys is one result of a scenario: the original benchmark's keys in its order, then ours,
// then what is needed to judge them. null says that it was not measured, never zero.
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
	PeakRSSGB             float64        `json:"peak_rss_gb"`
	SamplesMeasured       int64          `json:"samples_measured"`
	SteadyWindowS         float64        `json:"steady_window_s"`
	FirstBatchLatencyS    float64        `json:"first_batch_latency_s"`
	SamplesPerS           float64        `json:"samples_per_s"`
	DecodedFramesPerS     float64        `json:"decoded_frames_per_s"`
	SingleProcSamplesPerS *float64       `json:"single_proc_samples_per_s"`
	FetchPct              *float64       `json:"fetch_pct"`
	DecodePct             *float64       `json:"decode_pct"`
	ShuffleRandomnessFrac float64        `json:"shuffle_randomness_frac"`
	P50SampleLatencyMS    float64        `json:"p50_sample_latency_ms"`
	P95SampleLatencyMS    float64        `json:"p95_sample_latency_ms"`
	P99SampleLatencyMS    float64        `json:"p99_sample_latency_ms"`
	TotalTimeS            float64        `json:"total_time_s"`
	PSSPeakGB             float64        `json:"pss_peak_gb"`
	OpenS                 float64        `json:"open_s"`
	IndexBuildS           float64        `json:"index_build_s"`
	FramesDeliveredPerS   *float64       `json:"frames_delivered_per_s"`
	FramesDecodedPerS     *float64       `json:"frames_decoded_per_s"`
	BytesReadPerSample    *float64       `json:"bytes_read_per_sample"`
	BytesNeededPerSample  *float64       `json:"bytes_needed_per_sample"`
	CPUPerSample          float64        `json:"cpu_s_per_sample"`
	RandomnessIdeal       float64        `json:"randomness_ideal"`
	RandomnessVsIdeal     *float64       `json:"randomness_vs_ideal"`
	NeighbourShare        float64        `json:"neighbour_share"`
	CoverageMin           *int           `json:"coverage_min"`
	CoverageMax           *int           `json:"coverage_max"`
	OrderSHA256           string         `json:"order_sha256"`
	FramesChecked         *int           `json:"frames_checked"`
	WrongFrames           *int           `json:"wrong_frames"`
	ResumeExact           *bool          `json:"resume_exact"`
	WaitPct               *float64       `json:"wait_pct"`
	H2DWaitPct            *float64       `json:"h2d_wait_pct"`
	SkippedEpisodes       int            `json:"skipped_episodes"`
	Errors                []string       `json:"errors"`
	CacheState            string         `json:"cache_state"` // cold | warm | unproven
	Repeats               int            `json:"repeats"`
	Versions              any            `json:"versions"`
	Machine               report.Machine `json:"machine"`

	// What the figures above rest on.
	Runner              string                   `json:"arm"`
	Setting             string                   `json:"setting"`
	Shuffle             string                   `json:"shuffle"`
	Cache               string                   `json:"cache"`
	Store               string                   `json:"store"` // where the bytes come from, with latency and bandwidth
	QueueBatches        []*float64               `json:"queue_batches"`
	Stages              *Stages                  `json:"stages_s"`
	NeighbourIdeal      float64                  `json:"neighbour_ideal"`
	OrderSamples        int64                    `json:"order_samples"`
	EpochsFinished      int                      `json:"epochs_finished"`
	SamplesLost         int64                    `json:"samples_lost"`    // in finished epochs
	SamplesDoubled      int64                    `json:"samples_doubled"` // in finished epochs, less those that wrap by rule
	ConsumerStepMS      float64                  `json:"consumer_step_ms"`
	HeadspaceSamplesPS  float64                  `json:"headspace_samples_per_s"`
	DeviceReadBytes     int64                    `json:"device_read_bytes"`
	ResidentBefore      *float64                 `json:"resident_before_frac"`   // share of the set in the page cache before the run
	BytesAlonePerSample *float64                 `json:"bytes_alone_per_sample"` // that a lone sample needs: batches share some of it
	RequestsPerSample   *float64                 `json:"requests_per_sample"`
	SlowestRank         *int                     `json:"slowest_rank"`
	SlowestSamplesPerS  *float64                 `json:"slowest_rank_samples_per_s"`
	RankSamplesPerS     []float64                `json:"rank_samples_per_s"`
	Spread              map[string]report.Spread `json:"spread"` // over the repeats; the figures above are of the median run
	Failed              string                   `json:"failed"` // why this run does not count
	Notes               []string                 `json:"notes"`
}
