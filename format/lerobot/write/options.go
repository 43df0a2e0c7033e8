package write

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// RecordedTimestamps is the feature that keeps recorded timestamps, as float64 seconds, if they
// differ from frame_index/fps.
const RecordedTimestamps = "recorded_timestamp"

// WriteOptions describes the keys of robocache.WriteOptions.Options.
var WriteOptions = map[string]string{
	"video_codec": "copy (default: copies frames if possible, and encodes the rest), " +
		"av1, h264 or hevc (encode everything)",
	"gop":    "frames between key frames, when encoding (0: 2, LeRobot's)",
	"crf":    "quality, when encoding (0: 30, LeRobot's)",
	"preset": "the encoder's preset, when encoding",
	"codec": "the codec of frames that are encoded if video_codec is copy: av1 " +
		"(default), h264 or hevc",
	"copy_only": "true: reject video that cannot be copied (ErrUnsupported)",
	"hidden": "most frames that are copied before and after those of an episode " +
		"if these begin or end inside a GOP; no row shows them (0)",
	"images": "how still images are written: video, or images (their bytes in the " +
		"table; raw pixels as PNG); default: images if the source is LeRobot, else video",
	"recorded_timestamps": "false: " + RecordedTimestamps + " is never written",
	"size": "WIDTHxHEIGHT: scale color images to this size; video is then " +
		"encoded, whatever video_codec is",
	"frames":           "images that are decoded for statistics: sampled (default), all, none",
	"version":          "v3.0 (default), or v2.1: one table and one mp4 of each camera per episode",
	"group_rows":       "least number of rows whose episodes share an encoder (1024)",
	"chunks_size":      "files in a folder; 0 = 1000",
	"data_file_bytes":  "size of data files; 0 = 100 MiB",
	"video_file_bytes": "size of mp4s; 0 = 200 MiB",
	"stats_budget":     "memory limit of the statistics in bytes",
	"link_from": "the folder of the source: an mp4 that would be copied whole " +
		"becomes a hard link to the source's file",
	"temp_dir": "folder for encoded episodes until they are joined",
}

// settings holds the parsed options of a conversion.
type settings struct {
	robocache.WriteOptions
	out                    Config // the part of Config that options set
	codec                  string // value of video_codec
	images                 string
	copyOnly, noTimestamps bool
	groupRows              int
	hidden                 int
	width, height          int // of color images; 0 keeps their size
}

// parseOptions returns the settings that opt.Options select, with defaults for the others.
func parseOptions(opt robocache.WriteOptions) (settings, error) {
	parsed := settings{
		WriteOptions: opt,
		codec:        "copy",
		groupRows:    minGroupRows,
		out:          Config{Frames: stats.SampledFrames},
	}
	config := &parsed.out
	whole := func(to *int) reader.Set { return reader.Whole(to, math.MinInt, math.MaxInt) }
	size := func(to *int64) reader.Set { return reader.Whole(to, 0, math.MaxInt64) }
	timestamps := true
	setters := map[string]reader.Set{
		"video_codec": reader.Text(&parsed.codec, "copy", "av1", "h264", "hevc"),
		"gop":         whole(&config.Video.GOP),
		"crf":         whole(&config.Video.CRF),
		"preset":      reader.Text(&config.Video.Preset),
		"codec":       reader.Text(&config.Video.Codec),
		"copy_only":   reader.Yes(&parsed.copyOnly),
		"hidden":      reader.Whole(&parsed.hidden, 0, maxHidden),
		"size": func(v string) bool {
			if v == "" {
				return true
			}
			const largest = 1 << 14
			_, err := fmt.Sscanf(v, "%dx%d", &parsed.width, &parsed.height)
			isSize := min(parsed.width, parsed.height) > 0 &&
				max(parsed.width, parsed.height) <= largest
			return err == nil && isSize
		},
		"images":              reader.Text(&parsed.images, "", "video", "images"),
		"recorded_timestamps": reader.Yes(&timestamps),
		"frames": func(v string) bool {
			config.Frames = cmp.Or(stats.FramePolicy(v), config.Frames)
			return true
		},
		"group_rows":       whole(&parsed.groupRows),
		"chunks_size":      whole(&config.ChunksSize),
		"data_file_bytes":  size(&config.DataFileBytes),
		"video_file_bytes": size(&config.VideoFileBytes),
		"stats_budget":     size(&config.StatsBudget),
		"temp_dir":         reader.Text(&config.TempDir),
		"version":          reader.Text(&config.Version, "", writtenVersion, episodesVersion),
		"link_from":        reader.Text(&config.LinkFrom),
	}
	if err := reader.Op("convert").Settle(opt.Options, WriteOptions, setters); err != nil {
		return settings{}, err
	}
	for _, name := range []string{"hidden", "data_file_bytes", "video_file_bytes"} {
		if opt.Options[name] != "" && opt.Options[name] != "0" && config.perEpisode() {
			return settings{}, robocache.Misuse("convert", nil, "%s with version %s",
				name, episodesVersion).WithHint("leave it out: each episode has files of its own")
		}
	}
	parsed.noTimestamps = !timestamps
	if parsed.codec != "copy" {
		config.Video.Codec = parsed.codec
	}
	return parsed, nil
}

// Report describes the result of a conversion. It is also stored in meta/conversion.json.
type Report struct {
	SourceFormat  string         `json:"source_format"`
	SourceVersion string         `json:"source_version,omitempty"`
	FPS           robocache.Rate `json:"fps"`
	// Version is the written version. It is empty for v3.0.
	Version     string              `json:"version,omitempty"`
	NumEpisodes int                 `json:"num_episodes"`
	NumFrames   int64               `json:"num_frames"`
	Episodes    []EpisodeMap        `json:"episodes"`
	Tasks       []TaskMap           `json:"tasks"`
	Added       []string            `json:"added_features"`
	Dropped     []string            `json:"dropped_features"`
	Renamed     map[string]string   `json:"renamed_features"`
	Copied      int                 `json:"video_segments_copied"`
	Encoded     int                 `json:"video_segments_encoded"`
	Findings    []robocache.Finding `json:"findings"`
	// The streams were aligned to one grid.
	Aligned bool `json:"aligned,omitempty"`
	DryRun  bool `json:"dry_run,omitempty"`
}

// Summary returns a text that describes the result.
func (r *Report) Summary(dst string) string {
	var b strings.Builder
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	fmt.Fprintf(
		&b,
		"%s %s: LeRobot %s, %d episodes, %d frames at %s fps, from %s\n",
		verb,
		dst,
		cmp.Or(r.Version, writtenVersion),
		r.NumEpisodes,
		r.NumFrames,
		r.FPS,
		strings.TrimSpace(r.SourceFormat+" "+r.SourceVersion),
	)
	fmt.Fprintf(&b, "  video segments: %d copied, %d encoded\n", r.Copied, r.Encoded)
	for what, list := range map[string][]string{"added": r.Added, "dropped": r.Dropped} {
		if len(list) > 0 {
			fmt.Fprintf(&b, "  features %s: %v\n", what, list)
		}
	}
	for from, to := range r.Renamed {
		fmt.Fprintf(&b, "  feature renamed: %s → %s\n", from, to)
	}
	return b.String()
}

// EpisodeMap states which source episode became which written one. New is −1 if it was left out.
type EpisodeMap struct {
	Old       int64 `json:"old_episode_index"`
	New       int   `json:"new_episode_index"`
	Length    int   `json:"length"`
	FromIndex int64 `json:"dataset_from_index"`
	StartNS   int64 `json:"start_ns,omitempty"` // timestamp of row 0 in the source
	// Video maps a camera to "copied", or to the reason for encoding it.
	Video map[string]string `json:"video,omitempty"`
	// Hidden maps a camera to the copied frames before and after those of the episode, which no row
	// shows.
	Hidden map[string][2]int `json:"hidden,omitempty"`
	// Source is the recording from which the episode was first made. Edits and conversions keep it.
	Source *robocache.Origin `json:"source,omitempty"`
	// Ends maps a camera to the frames at the beginning and the end that were encoded. Those
	// between were copied.
	Ends map[string][2]int `json:"encoded_ends,omitempty"`
}

// TaskMap states which source task became which written one.
type TaskMap struct {
	Old  int64  `json:"old_task_index"`
	New  int64  `json:"new_task_index"`
	Text string `json:"task"`
}

// Config configures a Writer. Zero values select the defaults of lerobot.
type Config struct {
	// Version is "v3.0", the default, or "v2.1", which has one table and one mp4 of each camera per
	// episode.
	Version string
	FPS     robocache.Rate
	Robot   string
	// Features lists the features in the order of declaration. It must not hold the five
	// bookkeeping features (timestamp, frame_index, episode_index, index, task_index), which the
	// writer adds.
	Features []robocache.Feature
	// Tasks must keep their numbers: task i is Tasks[i]. Others follow in the order of their first
	// row.
	Tasks []string
	// allowEmpty lets Close write a dataset without episodes, which is info.json alone.
	allowEmpty bool

	ChunksSize int // files in a chunk folder; 0 = 1000
	// DataFileBytes bounds a data or episodes file; 0 = 100 MiB.
	DataFileBytes int64
	// VideoFileBytes bounds the mp4 of a camera; 0 = 200 MiB. An mp4 also ends if joining it would
	// need more than 256 open files.
	VideoFileBytes int64

	// Video configures the encoding of frames that are pixels. Stream-copied parts keep their
	// coding.
	Video VideoConfig
	// TempDir holds one mp4 for each encoded episode until it is joined; "" = the system's.
	TempDir string
	// Encoders is the number of concurrent encoders; 0 = the number of CPUs. More than that slow
	// each other down.
	Encoders int
	// LinkFrom is the folder of the source. An mp4 that would be copied whole, and whose
	// frames are 1/fps apart, becomes a hard link to the source's file.
	LinkFrom string
	// PartsDir is a folder that keeps the encoded episodes until all are joined. Episodes that it
	// already holds are reused; they must come from an interrupted run over the same episodes with
	// the same configuration. If it is "", encoded episodes are removed as soon as they are joined.
	PartsDir string
	// Frames selects the frames that are counted for statistics; "" = sampled, the default of
	// lerobot.
	Frames stats.FramePolicy
	// StatsBudget bounds the memory of the statistics in bytes; 0 = 256 MiB.
	StatsBudget int64
	// Splits maps names to ranges of episodes ("0:40"). nil means one split, train, with all
	// episodes.
	Splits map[string]string
	// Shard holds the ranges of episodes, rows and files of a shard in the whole dataset.
	Shard *shardPlace
	// Extra maps names of additional files (meta/modality.json) to their content. They are written
	// before info.json.
	Extra map[string][]byte
	// Info holds additional keys of info.json.
	Info map[string]json.RawMessage
}

// VideoConfig configures the encoding of new color video. Depth is always lossless 12-bit HEVC.
// Zero values select the defaults of video.EncodeConfig.
type VideoConfig struct {
	Codec  string // "av1" (default), "h264" or "hevc"
	GOP    int
	CRF    int
	Preset string
	Behind bool // encoders run at low priority
}

// forCodec returns the configuration for frames that are joined with frames of the given codec.
func (v VideoConfig) forCodec(codec video.Codec) VideoConfig {
	if video.Codec(cmp.Or(v.Codec, string(video.AV1))) != codec {
		v.CRF, v.Preset = 0, "" // they were chosen for another codec
	}
	v.Codec = string(codec)
	return v
}

// EpisodeData is one episode. Rows are in time order, and every feature of the configuration is
// present exactly once.
type EpisodeData struct {
	Length  int
	Columns map[string][]byte   // numeric features: Length rows, little-endian, C order
	Text    map[string][]string // text features, and event features as JSON; one value per row
	Images  map[string][][]byte // image features: PNG, JPEG or TIFF bytes of each row
	Videos  map[string]VideoPart
	// Tasks has one text per row, or one for all rows.
	Tasks []string
	// Listed holds task texts of the episode that are not on its rows.
	Listed []string
	// FrameStats holds the pixel counts of image and video features. For a nil entry, the writer
	// counts the frames that it decodes or encodes, and has no statistics of copied frames.
	FrameStats map[string]*stats.Pixels
	// Known holds statistics that the source has of copied frames.
	Known    map[string]*robocache.FeatureStats
	prepared *preparedEpisode // result of Prepare
	// frameEncoded is called after each frame that an encoder accepted, by several goroutines. It
	// may be nil.
	frameEncoded func()
}

// VideoPart states the source of an episode's frames of one camera: a range of a video file, or
// pixels.
type VideoPart struct {
	Library *video.Library
	Path    string
	From    int // frames [From, From+Length)
	// Before and Behind are the numbers of frames around these that are copied too because the
	// decoder needs them. No row shows them.
	Before, Behind int
	// Ends are the first and the last of the frames if these are encoded, with the codec of the
	// file. Only the frames between are copied.
	Ends [2]FrameRun
	// Frames yields the frames one by one: 8-bit RGB with channels last, or 16-bit little-endian
	// depth. It is used if Library is nil.
	Frames func(yield func(pic []byte) error) error
}

// FrameRun is a run of frames that are given as pixels.
type FrameRun struct {
	N      int
	Codec  video.Codec
	Frames func(yield func(pic []byte) error) error
}

const (
	maxHidden          = 1000
	outMiB             = 1 << 20
	defaultChunksSize  = 1000
	defaultDataBytes   = 100 * outMiB
	defaultVideoBytes  = 200 * outMiB
	defaultStatsBudget = 256 * outMiB
	// lerobot sorts file names as text: file-1000 would come before file-999
	maxFileNumber       = 999
	defaultDataPath     = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	defaultVideoPath    = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
	writtenVersion      = "v3.0"
	writerIdentity      = "robocache"
	writerFormatVersion = "1"
)

// Bookkeeping lists the columns of every LeRobot dataset, which are the last of its features.
var Bookkeeping = []robocache.Feature{
	{
		Key:     "timestamp",
		Kind:    robocache.KindNumeric,
		DType:   robocache.Float32,
		Shape:   []int{1},
		Default: true,
	},
	{
		Key:     "frame_index",
		Kind:    robocache.KindNumeric,
		DType:   robocache.Int64,
		Shape:   []int{1},
		Default: true,
	},
	{
		Key:     "episode_index",
		Kind:    robocache.KindNumeric,
		DType:   robocache.Int64,
		Shape:   []int{1},
		Default: true,
	},
	{
		Key:     "index",
		Kind:    robocache.KindNumeric,
		DType:   robocache.Int64,
		Shape:   []int{1},
		Default: true,
	},
	{
		Key:     "task_index",
		Kind:    robocache.KindNumeric,
		DType:   robocache.Int64,
		Shape:   []int{1},
		Default: true,
	},
}

// misuse returns an error of class ErrMisuse.
func misuse(where robocache.Where, msg, want, got, hint string) error {
	return robocache.Misuse("write lerobot", where, "%s", msg).Expected(want, got).
		WithHint("%s", hint)
}

// validate sets defaults and rejects an invalid configuration.
func (c *Config) validate() error {
	if c.FPS.Num <= 0 || c.FPS.Den <= 0 {
		return misuse(
			nil,
			"",
			"a rate > 0",
			"none",
			"pass the rate of the dataset in frames per second",
		)
	}
	c.ChunksSize = cmp.Or(c.ChunksSize, defaultChunksSize)
	if c.ChunksSize < 0 || c.ChunksSize > maxFileNumber+1 {
		return misuse(nil, "chunks_size", "1 to 1000", jsonText(c.ChunksSize), "")
	}
	for to, defaultValue := range map[*int64]int64{
		&c.DataFileBytes:  defaultDataBytes,
		&c.VideoFileBytes: defaultVideoBytes,
		&c.StatsBudget:    defaultStatsBudget,
	} {
		if *to <= 0 {
			*to = defaultValue
		}
	}
	if c.Encoders <= 0 {
		c.Encoders = runtime.GOMAXPROCS(0)
	}
	seen := map[string]bool{}
	for _, f := range Bookkeeping {
		seen[f.Key] = true
	}
	for i := range c.Features {
		f := &c.Features[i]
		problem := ""
		switch {
		case seen[f.Key]:
			problem = "declared twice, or a bookkeeping feature that the writer adds itself"
		case f.Key == "" || strings.ContainsAny(f.Key, "/\x00") || f.Key == "task":
			return robocache.Unsupported(
				"write lerobot",
				robocache.Where{"stream": f.Key},
				"a feature's name may not be empty, hold '/' or NUL, or be 'task'",
			).WithHint("rename the stream")
		case len(f.Shape) > 0 && slices.Min(f.Shape) <= 0:
			problem = "a shape with an axis of length 0"
		case f.Kind == robocache.KindVideo &&
			(strings.HasPrefix(f.Key, ".") || strings.ContainsAny(f.Key, "\\")):
			problem = "the name of a camera is the name of a folder: no leading dot, no backslash"
		}
		if problem != "" {
			return misuse(robocache.Where{"stream": f.Key}, problem, "", "", "")
		}
		seen[f.Key] = true
		if _, err := nodeOf(f); err != nil {
			return err
		}
	}
	return nil
}

// CanWrite returns nil if a feature can be written. Otherwise its error gives the reason.
func CanWrite(f robocache.Feature) error {
	c := Config{FPS: robocache.Rate{Num: 1, Den: 1}, Features: []robocache.Feature{f}}
	return crash.Func("write lerobot", c.validate)()
}

// WhyDropped returns the reason why a conversion to LeRobot leaves out a stream, or "" if it keeps
// the stream.
func WhyDropped(f *robocache.Feature) string {
	if f.Kind == robocache.KindPointCloud || f.Kind == robocache.KindNumeric && f.Ragged() {
		return "LeRobot cannot store rows of varying length (a point cloud)"
	}
	column := *f
	// A conversion changes these fields, so they are no reason to leave out the stream.
	column.Key = legalKey(f.Key, nil)
	column.Default, column.Clock, column.Masked = false, "", false
	if err := CanWrite(column); err != nil {
		return err.Error()
	}
	return ""
}

// jsonText returns v as JSON text.
func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

// wholeMebibytes returns a size in whole MiB, at least 1, as info.json states it.
func wholeMebibytes(b int64) int64 { return max(1, int64(math.Ceil(float64(b)/outMiB))) }
