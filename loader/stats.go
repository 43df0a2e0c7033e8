package loader

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
