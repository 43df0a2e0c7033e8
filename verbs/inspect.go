package verbs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/video"
)

// InspectRequest holds the options of Inspect, InspectEpisode, ContactSheet and SuggestMapping.
type InspectRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// HZ is a rate to which all streams are resampled first.
	HZ string `json:"hz"`
	// Episode is the index of the episode that InspectEpisode and ContactSheet show.
	Episode *int `json:"episode"`
	// ContactSheet is a file (.png, .svg, .html) into which an episode is drawn.
	ContactSheet string `json:"contact_sheet"`
	// SuggestMap asks a caller that has one entry for all, as Python has, for SuggestMapping.
	SuggestMap bool `json:"suggest_map"`
	// DecodeCost measures what decoding frames in random order costs.
	DecodeCost bool `json:"decode_cost"`
	// Codec is the codec of the trial of DecodeCost: av1, h264 or hevc.
	Codec string `json:"codec"`
	// GOP is the number of frames between key frames in that trial.
	GOP *int `json:"gop"`
	// DecodeSpan is the time that DecodeCost decodes for each camera and device. 0 is 2 s.
	DecodeSpan time.Duration `json:"-"`
}

// check rejects options that exclude each other, before anything is opened.
func (r *InspectRequest) check() error {
	if err := inspect.CheckSheet(r.ContactSheet); err != nil {
		return err
	}
	name := optionName
	codecs := []video.Codec{video.AV1, video.H264, video.HEVC}
	switch {
	case r.DecodeCost && (r.Episode != nil || r.SuggestMap || r.HZ != ""):
		return misuse("inspect: %s is of the whole dataset as it is: not with %s, %s and %s",
			name("decode_cost"), name("episode"), name("hz"), name("suggest_map"))
	case !r.DecodeCost && (r.Codec != "" || r.GOP != nil), r.GOP != nil && *r.GOP < 1:
		return misuse("inspect: %s and %s (at least 1) go with %s",
			name("codec"), name("gop"), name("decode_cost"))
	case r.Codec != "" && !slices.Contains(codecs, video.Codec(r.Codec)):
		return misuse("inspect: %s %s: expected av1, h264 or hevc", name("codec"), r.Codec)
	}
	return nil
}

// open opens the dataset, finds the episode and draws the contact sheet of the request. The caller
// must close the dataset.
func (r *InspectRequest) open(
	ctx context.Context, o Observer,
) (_ robocache.Dataset, position int, err error) {
	if err := r.check(); err != nil {
		return nil, 0, err
	}
	ds, err := r.Opening.Open(ctx, r.URI, r.HZ)
	if err != nil {
		return nil, 0, err
	}
	if r.Episode != nil {
		position, err = ds.Info().EpisodePosition(int64(*r.Episode))
	}
	if err == nil && r.ContactSheet != "" {
		err = inspect.ContactSheet(ctx, ds, position, r.ContactSheet)
		if err == nil {
			o.note("wrote " + r.ContactSheet)
		}
	}
	if err != nil {
		_ = ds.Close()
		return nil, 0, err
	}
	return ds, position, nil
}

// Inspect reports the contents of a dataset: streams, rates, codecs, tasks, sizes.
func Inspect(ctx context.Context, r *InspectRequest, o Observer) (*inspect.Report, error) {
	ds, _, err := r.open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	report, err := inspect.Dataset(ctx, ds)
	if err != nil {
		return nil, err
	}
	ahead, err := lookAheadFindings(ctx, ds)
	if err != nil {
		return nil, err
	}
	report.Findings = append(slices.Clip(report.Findings), ahead...)
	if r.DecodeCost {
		if report.Decoding, err = measureDecodeCost(ctx, ds, r); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// InspectEpisode reports the streams of one episode: timestamps, gaps, jitter.
func InspectEpisode(
	ctx context.Context, r *InspectRequest, o Observer,
) (*inspect.EpisodeReport, error) {
	ds, position, err := r.open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	return inspect.Episode(ctx, ds, position)
}

// ContactSheet draws an episode into r.ContactSheet, and reports nothing else.
func ContactSheet(ctx context.Context, r *InspectRequest, o Observer) error {
	ds, _, err := r.open(ctx, o)
	if err != nil {
		return err
	}
	return ds.Close()
}

// SuggestMapping returns a mapping of the dataset as it is, in YAML, for a person to begin with.
func SuggestMapping(ctx context.Context, r *InspectRequest, _ Observer) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	ds, err := r.Opening.Open(ctx, r.URI, r.HZ)
	if err != nil {
		return "", err
	}
	defer ds.Close()
	var text strings.Builder
	err = mapping.Suggest(&text, ds)
	return text.String(), err
}
