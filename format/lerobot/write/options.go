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

// RecordedTimestamps is the feature that keeps recorded timestamps, float64 seconds, where they are
// not frame_index/fps.
const RecordedTimestamps = "recorded_timestamp"

// WriteOptions are the keys of robocache.WriteOptions.Options, each with what it does.
var WriteOptions = map[string]string{
	"video_codec":         "copy (default: copies where C2 allows, and encodes the rest), av1, h264 or hevc (encode everything)",
	"gop":                 "frames between key frames, when encoding (0: 2, LeRobot's)",
	"crf":                 "quality, when encoding (0: 30, LeRobot's)",
	"preset":              "the encoder's preset, when encoding",
	"codec":               "what is encoded, where video_codec is copy: av1 (default), h264 or hevc",
	"copy_only":           "true: video that cannot be copied is refused (ErrUnsupported)",
	"hidden":              "frames that a copy may have before and behind an episode's own, shown by no row, where these begin or end inside a GOP (0)",
	"images":              "what still images become: video, or images (their bytes in the table; raw pixels as PNG); default: images of LeRobot, else video",
	"recorded_timestamps": "false: " + RecordedTimestamps + " is never written",
	"size":                "WIDTHxHEIGHT: images of colour are brought to it; video is encoded then, whatever video_codec says",
	"frames":              "images looked at for statistics: sampled (default), all, none",
	"group_rows":          "least number of rows whose episodes share an encoder (1024)",
	"chunks_size":         "files in a folder; 0 = 1000",
	"data_file_bytes":     "size of data files; 0 = 100 MiB",
	"video_file_bytes":    "size of mp4s; 0 = 200 MiB",
	"stats_budget":        "bytes that the statistics may take",
	"link_from":           "the folder that the source lies in: an mp4 that would be copied whole is a hard link to the source's",
	"temp_dir":            "folder of encoded episodes until they are joined",
}

// settings are the choices of a conversion.
type settings struct {
	robocache.WriteOptions
	out                    Config // what of it the options say
	codec                  string // video_codec
	images                 string
	copyOnly, noTimestamps bool
	groupRows              int
	hidden                 int
	width, height          int // of images of colour; 0: their own
}

// settle reads the choices that are text.
func settle(opt robocache.WriteOptions) (settings, error) {
	o := settings{
		WriteOptions: opt,
		codec:        "copy",
		groupRows:    groupLeast,
		out:          Config{Frames: stats.SampledFrames},
	}
	w := &o.out
	whole := func(to *int) reader.Set { return reader.Whole(to, math.MinInt, math.MaxInt) }
	size := func(to *int64) reader.Set { return reader.Whole(to, 0, math.MaxInt64) }
	timestamps := true
	if err := reader.Op("convert").Settle(opt.Options, WriteOptions, map[string]reader.Set{
		"video_codec": reader.Text(
			&o.codec,
			"copy",
			"av1",
			"h264",
			"hevc",
		),
		"gop":    whole(&w.Video.GOP),
		"crf":    whole(&w.Video.CRF),
		"preset": reader.Text(&w.Video.Preset),
		"codec": reader.Text(
			&w.Video.Codec,
		),
		"copy_only": reader.Yes(&o.copyOnly),
		"hidden":    reader.Whole(&o.hidden, 0, maxHidden),
		"size": func(v string) bool {
			n, err := fmt.Sscanf(v, "%dx%d", &o.width, &o.height)
			return v == "" ||
				n == 2 && err == nil && min(o.width, o.height) > 0 &&
					max(o.width, o.height) <= 1<<14
		},
		"images": reader.Text(
			&o.images,
			"",
			"video",
			"images",
		),
		"recorded_timestamps": reader.Yes(&timestamps),
		"frames":              func(v string) bool { w.Frames = cmp.Or(stats.FramePolicy(v), w.Frames); return true },
		"group_rows":          whole(&o.groupRows),
		"chunks_size": whole(
			&w.ChunksSize,
		),
		"data_file_bytes":  size(&w.DataFileBytes),
		"video_file_bytes": size(&w.VideoFileBytes),
		"stats_budget":     size(&w.StatsBudget),
		"temp_dir":         reader.Text(&w.TempDir),
		"link_from":        reader.Text(&w.LinkFrom),
	}); err != nil {
		return settings{}, err
	}
	o.noTimestamps = !timestamps
	if o.codec != "copy" {
		w.Video.Codec = o.codec
	}
	return o, nil
}

// Report says what a conversion did; it also lies in meta/conversion.json.
type Report struct {
	SourceFormat  string              `json:"source_format"`
	SourceVersion string              `json:"source_version,omitempty"`
	FPS           robocache.Rate      `json:"fps"`
	NumEpisodes   int                 `json:"num_episodes"`
	NumFrames     int64               `json:"num_frames"`
	Episodes      []EpisodeMap        `json:"episodes"`
	Tasks         []TaskMap           `json:"tasks"`
	Added         []string            `json:"added_features"`
	Dropped       []string            `json:"dropped_features"`
	Renamed       map[string]string   `json:"renamed_features"`
	Copied        int                 `json:"video_segments_copied"`
	Encoded       int                 `json:"video_segments_encoded"`
	Findings      []robocache.Finding `json:"findings"`
	// the streams were brought onto one grid
	Aligned bool `json:"aligned,omitempty"`
	DryRun  bool `json:"dry_run,omitempty"`
}

// Summary says in text what was done.
func (r *Report) Summary(dst string) string {
	var b strings.Builder
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	fmt.Fprintf(
		&b,
		"%s %s: LeRobot v3.0, %d episodes, %d frames at %s fps, from %s\n",
		verb,
		dst,
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

// EpisodeMap says which episode became which. New is −1 where it was left out.
type EpisodeMap struct {
	Old       int64 `json:"old_episode_index"`
	New       int   `json:"new_episode_index"`
	Length    int   `json:"length"`
	FromIndex int64 `json:"dataset_from_index"`
	StartNS   int64 `json:"start_ns,omitempty"` // the timestamp of row 0 in the source
	// camera → "copied", or why it was encoded
	Video map[string]string `json:"video,omitempty"`
	// camera → copied frames before and behind the episode's own, which no row shows
	Hidden map[string][2]int `json:"hidden,omitempty"`
	// Source is the recording that the episode was first made from, which edits and conversions
	// keep.
	Source *robocache.Origin `json:"source,omitempty"`
	// camera → frames at the beginning and the end that were encoded; those between were copied
	Ends map[string][2]int `json:"encoded_ends,omitempty"`
}

// TaskMap says which task became which.
type TaskMap struct {
	Old  int64  `json:"old_task_index"`
	New  int64  `json:"new_task_index"`
	Text string `json:"task"`
}

// Config is what a Writer must know before the first episode. Zero values are the reference's
// defaults.
type Config struct {
	FPS   robocache.Rate
	Robot string
	// Features in the order in which they are declared; the five bookkeeping features (timestamp,
	// frame_index, episode_index, index, task_index) are added by the writer and are left out here.
	Features []robocache.Feature
	// Tasks that must keep their number: task i is Tasks[i]. Others follow in the order of their
	// first row.
	Tasks []string
	// allowEmpty lets Close write a dataset without episodes: info.json alone.
	allowEmpty bool

	ChunksSize int // files in a chunk folder; 0 = 1000
	// a data or episodes file is ended before it would grow beyond; 0 = 100 MiB
	DataFileBytes int64
	// the same for each camera's mp4; 0 = 200 MiB. An mp4 also ends where more than 256 files would
	// be open together while it is made
	VideoFileBytes int64

	// Video is how frames that come as pixels are encoded. Stream-copied parts keep their coding.
	Video VideoConfig
	// TempDir holds one mp4 for each encoded episode until it is joined; "" = the system's.
	TempDir string
	// Encoders is how many run at once; 0 = the number of CPUs. More than that slow each other
	// down.
	Encoders int
	// LinkFrom is the folder of the source: an mp4 that would be copied whole, and lies on its
	// grid, becomes a hard link to the source's.
	LinkFrom string
	// PartsDir keeps the encoded episodes in a folder of the caller's until all are joined, and
	// takes over those that it holds already: of an interrupted run over the same episodes with the
	// same configuration. "" = they are removed as soon as they are joined.
	PartsDir string
	// Frames says which frames the writer looks at for statistics; "" = sampled, as the reference
	// does.
	Frames stats.FramePolicy
	// StatsBudget bounds the memory that the statistics take, in bytes; 0 = 256 MiB.
	StatsBudget int64
	// Splits are ranges of episodes by name ("0:40"). nil: train, of all.
	Splits map[string]string
	// Shard is where the episodes of a part of a dataset stand in the whole.
	Shard *shardPlace
	// Extra files, written before info.json: name → bytes (meta/modality.json).
	Extra map[string][]byte
	// Info are keys of info.json beside the format's own.
	Info map[string]json.RawMessage
}

// VideoConfig chooses the coding of new colour video; depth is always lossless 12-bit HEVC. Zero
// values are video.EncodeConfig's.
type VideoConfig struct {
	Codec  string // "av1" (default), "h264", "hevc"
	GOP    int
	CRF    int
	Preset string
	Behind bool // encoders get the processor where nothing else wants it
}

// like is the coding that goes on with frames of a codec.
func (v VideoConfig) like(codec video.Codec) VideoConfig {
	if video.Codec(cmp.Or(v.Codec, string(video.AV1))) != codec {
		v.CRF, v.Preset = 0, "" // of another codec
	}
	v.Codec = string(codec)
	return v
}

// EpisodeData is one episode. Rows are in time order; every feature of the config is present,
// exactly once.
type EpisodeData struct {
	Length  int
	Columns map[string][]byte   // numeric features: Length rows, little-endian, C order
	Text    map[string][]string // text features; event features as JSON, one value a row
	Images  map[string][][]byte // image features: PNG, JPEG or TIFF bytes of each row
	Videos  map[string]VideoPart
	// Tasks has one text a row, or one for all rows.
	Tasks []string
	// Listed are the texts that the episode's entry names besides those of its rows.
	Listed []string
	// Frames holds what was counted of the frames of image and video features; nil entries are
	// counted by the writer where it sees pixels, and have no statistics where it does not.
	FrameStats map[string]*stats.Pixels
	// Known holds statistics of frames that are copied and were counted before.
	Known    map[string]*robocache.FeatureStats
	prepared *preparedEpisode // Prepare was here
	// frameEncoded is called after each frame that a camera's encoder took, by several goroutines.
	// It may be nil.
	frameEncoded func()
}

// VideoPart is where an episode's frames of one camera come from: a range of a video file, or
// pixels.
type VideoPart struct {
	Library *video.Library
	Path    string
	From    int // frames [From, From+Length)
	// Before and Behind are frames around those that are copied too, and that no row shows: the
	// decoder needs them.
	Before, Behind int
	// Ends are the first and the last of the frames, where these are encoded by the file's codec,
	// and only those between are copied.
	Ends [2]FrameRun
	// Frames gives the frames one by one: RGB, 8 bits, channels last; depth: 16 bits,
	// little-endian. It is used where Library is nil.
	Frames func(yield func(pic []byte) error) error
}

// FrameRun is frames that come as pixels.
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
	// the reference sorts file names as text: file-1000 would come before file-999
	maxFileNumber       = 999
	defaultDataPath     = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	defaultVideoPath    = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
	writtenVersion      = "v3.0"
	writerIdentity      = "robocache"
	writerFormatVersion = "1"
)

// Bookkeeping are the columns of every LeRobot dataset, which end the list of its features.
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

// misuse is what a caller got wrong.
func misuse(where robocache.Where, msg, want, got, hint string) error {
	return robocache.Misuse("write lerobot", where, "%s", msg).Expected(want, got).
		WithHint("%s", hint)
}

func (c *Config) validate() error {
	if c.FPS.Num <= 0 || c.FPS.Den <= 0 {
		return misuse(nil, "", "a rate > 0", "none", "give the frames a second of the dataset")
	}
	c.ChunksSize = cmp.Or(c.ChunksSize, defaultChunksSize)
	if c.ChunksSize < 0 || c.ChunksSize > maxFileNumber+1 {
		return misuse(nil, "chunks_size", "1 to 1000", jsonText(c.ChunksSize), "")
	}
	for to, usual := range map[*int64]int64{&c.DataFileBytes: defaultDataBytes, &c.VideoFileBytes: defaultVideoBytes, &c.StatsBudget: defaultStatsBudget} {
		if *to <= 0 {
			*to = usual
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
		bad := ""
		switch {
		case seen[f.Key]:
			bad = "declared twice, or a bookkeeping feature that the writer adds itself"
		case f.Key == "" || strings.ContainsAny(f.Key, "/\x00") || f.Key == "task":
			return robocache.Unsupported("write lerobot", robocache.Where{"stream": f.Key}, "a feature's name may not be empty, hold '/' or NUL, or be 'task'").
				WithHint("rename the stream")
		case len(f.Shape) > 0 && slices.Min(f.Shape) <= 0:
			bad = "a shape with an axis of length 0"
		case f.Kind == robocache.KindVideo && (strings.HasPrefix(f.Key, ".") || strings.ContainsAny(f.Key, "\\")):
			bad = "the name of a camera is the name of a folder: no leading dot, no backslash"
		}
		if bad != "" {
			return misuse(robocache.Where{"stream": f.Key}, bad, "", "", "")
		}
		seen[f.Key] = true
		if _, err := nodeOf(f); err != nil {
			return err
		}
	}
	return nil
}

// CanWrite says why a feature cannot be written; nil where it can.
func CanWrite(f robocache.Feature) error {
	c := Config{FPS: robocache.Rate{Num: 1, Den: 1}, Features: []robocache.Feature{f}}
	return crash.Func("write lerobot", c.validate)()
}

// WhyDropped returns the reason for which a conversion to LeRobot leaves out a stream; "" if it
// keeps the stream.
func WhyDropped(f *robocache.Feature) string {
	if f.Kind == robocache.KindPointCloud || f.Kind == robocache.KindNumeric && f.Ragged() {
		return "rows of varying length (a point cloud) have no place in LeRobot"
	}
	column := *f
	column.Key, column.Default, column.Clock, column.Masked = legalKey(f.Key, nil), false, "", false
	if err := CanWrite(column); err != nil {
		return err.Error()
	}
	return ""
}

func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

// megabytes is a threshold as info.json states it: whole MiB, at least 1.
func megabytes(b int64) int64 { return max(1, int64(math.Ceil(float64(b)/outMiB))) }
