package inspect

import (
	"context"
	"os"
	"path"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Report is the output of `robocache inspect` for a dataset.
type Report struct {
	robocache.Info
	// SplitEpisodes is the number of episodes of each split.
	SplitEpisodes map[string]int `json:"split_episodes,omitempty"`
	// DurationS is frames ÷ fps. If no rate is declared, the measured rate is used.
	DurationS float64   `json:"duration_s"`
	Length    Lengths   `json:"episode_length"`
	Streams   []Stream  `json:"streams"`
	Bytes     *Sizes    `json:"bytes,omitempty"`
	Stats     Stats     `json:"stats,omitempty"`
	Decoding  *Decoding `json:"decode_cost,omitempty"` // set if it was measured
}

// Stats holds the statistics stored in the dataset. Its JSON is that of `robocache stats --json`.
type Stats robocache.Stats

func (s Stats) MarshalJSON() ([]byte, error) { return stats.Told(robocache.Stats(s)) }

// Lengths summarizes the numbers of rows of the episodes.
type Lengths struct {
	Min  int     `json:"min"`
	Mean float64 `json:"mean"`
	Max  int     `json:"max"`
}

// Stream describes one feature and its files.
type Stream struct {
	Key   string          `json:"key"`
	Kind  robocache.Kind  `json:"kind"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"`
	// RateHz is absent if it is not declared and there are too few timestamps.
	RateHz float64 `json:"rate_hz,omitempty"`
	// Measured is set if RateHz is 1 ÷ the median step of an episode.
	Measured bool   `json:"rate_measured,omitempty"`
	Clock    string `json:"clock,omitempty"`
	Codec    string `json:"codec,omitempty"`
	// GOP is the number of images per sync sample in the first file.
	GOP float64 `json:"gop,omitempty"`
	// Decoded is the mean number of frames decoded per random frame of that file.
	Decoded float64 `json:"decoded_frames_per_sample,omitempty"`
	// NVDEC reports whether NVIDIA's engines support the stream, according to the file.
	NVDEC    *bool  `json:"nvdec,omitempty"`
	NotNVDEC string `json:"nvdec_reason,omitempty"` // why not
	Height   int    `json:"height,omitempty"`
	Width    int    `json:"width,omitempty"`
	Problem  string `json:"problem,omitempty"` // why the first file could not be read
	Bookkept bool   `json:"default,omitempty"`
}

// Sizes holds file sizes by top-level folder, if the store can list files.
type Sizes struct {
	Total int64            `json:"total"`
	Files int              `json:"files"`
	By    map[string]int64 `json:"by_folder"`
}

// Dataset returns the summary of a dataset.
func Dataset(ctx context.Context, ds robocache.Dataset) (_ *Report, err error) {
	info := ds.Info()
	r := &Report{Info: *info, SplitEpisodes: info.SplitCounts(), Streams: []Stream{}}
	m := &rateMeter{ds: ds, rates: map[string]float64{}}
	rate := info.FPS.Float()
	if rate == 0 {
		rate = m.measuredRate(ctx, "", "")
	}
	if rate > 0 {
		r.DurationS = float64(info.Frames) / rate
	}
	for e := range info.Episodes {
		n := ds.Len(e)
		if e == 0 || n < r.Length.Min {
			r.Length.Min = n
		}
		r.Length.Max = max(r.Length.Max, n)
		r.Length.Mean += float64(n)
	}
	if info.Episodes > 0 {
		r.Length.Mean /= float64(info.Episodes)
	}
	for i := range info.Features {
		s, err := streamReport(ctx, ds, &info.Features[i], m)
		if err != nil {
			return nil, err
		}
		r.Streams = append(r.Streams, s)
	}
	own, err := ds.Stats(ctx)
	if robocache.IsFatal(err) {
		return nil, err
	}
	if err != nil {
		r.Findings = append(
			r.Findings,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "unreadable-stats",
				Message:  err.Error(),
				Hint:     "run " + robocache.Command("stats --write"),
			},
		)
	}
	r.Stats = Stats(own)
	r.Bytes = fileSizes(ctx, ds)
	return r, ctx.Err()
}

func streamReport(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	m *rateMeter,
) (Stream, error) {
	s := Stream{
		Key:      f.Key,
		Kind:     f.Kind,
		DType:    f.DType,
		Shape:    f.Shape,
		RateHz:   f.FPS.Float(),
		Codec:    f.Codec,
		Height:   f.Height,
		Width:    f.Width,
		Clock:    f.Clock,
		Bookkept: f.Default,
	}
	if s.RateHz == 0 && f.Clock == "" {
		s.RateHz = ds.Info().FPS.Float()
	}
	if s.RateHz == 0 {
		s.RateHz = m.measuredRate(ctx, f.Key, f.Clock)
		s.Measured = s.RateHz > 0
	}
	if f.Kind != robocache.KindVideo {
		return s, nil
	}
	// the codec is read from the file, not from the metadata
	file, err := video.FirstFile(ctx, ds, f)
	if err := ctx.Err(); err != nil {
		return Stream{}, err
	}
	if robocache.IsFatal(err) {
		return Stream{}, err
	}
	switch {
	case err != nil:
		s.Problem = err.Error()
	case file != nil:
		setVideoFacts(&s, file.Index)
		file.Release()
	}
	return s, nil
}

func setVideoFacts(s *Stream, ix *video.Index) {
	if e := ix.Entries(); len(e) > 0 {
		s.Codec, s.Height, s.Width = string(e[0].Codec), e[0].Height, e[0].Width
		if s.Codec == "" {
			s.Codec = e[0].FourCC
		}
		s.NotNVDEC = video.OffEngine(&e[0])
		takes := s.NotNVDEC == ""
		s.NVDEC = &takes
	}
	sync := 0
	for d := range ix.NumSamples() {
		if ix.Sample(d).Sync {
			sync++
		}
	}
	if sync > 0 {
		s.GOP = float64(ix.NumSamples()) / float64(sync)
		s.Decoded = ix.DecodedPerFrame()
	}
}

// fileSizes adds up the files of a dataset, which is a folder or one file.
func fileSizes(ctx context.Context, ds robocache.Dataset) *Sizes {
	uri := ds.Info().URI
	if name := strings.TrimPrefix(uri, "file://"); !strings.Contains(name, "://") {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return &Sizes{Total: info.Size(), Files: 1, By: map[string]int64{".": info.Size()}}
		}
	}
	var s store.Store
	if own, ok := robocache.As[store.Source](ds); ok {
		s = own.Store()
	} else {
		var err error
		if s, err = store.Open(uri); err != nil {
			return nil
		}
		defer store.Close(s)
	}
	if _, name := store.Above(uri); strings.Contains(uri, "://") && name != "" &&
		path.Ext(name) != "" {
		if e, err := s.Stat(ctx, name); err == nil { // one file of a folder
			return &Sizes{Total: e.Size, Files: 1, By: map[string]int64{".": e.Size}}
		}
	}
	entries, err := s.List(ctx, "")
	if err != nil {
		return nil // HTTP cannot list files
	}
	z := &Sizes{By: map[string]int64{}}
	for _, e := range entries {
		top, _, nested := strings.Cut(e.Name, "/")
		if !nested {
			top = "."
		}
		z.By[top] += e.Size
		z.Total += e.Size
		z.Files++
	}
	return z
}
