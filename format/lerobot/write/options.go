package write

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// RecordedTimestamps is the feature that keeps recorded timestamps, float64 seconds, where they are not frame_index/fps.
const RecordedTimestamps = "recorded_timestamp"

// WriteOptions are the keys of robocache.WriteOptions.Options, each with what it does.
var WriteOptions = map[string]string{
	"video_codec":         "copy (default: copies where C2 allows, and encodes the rest), av1, h264 or hevc (encode everything)",
	"gop":                 "frames between key frames, when encoding (0: 2, LeRobot's)",
	"crf":                 "quality, when encoding (0: 30, LeRobot's)",
	"preset":              "the encoder's preset, when encoding",
	"codec":               "what is encoded, where video_codec is copy: av1 (default), h264 or hevc",
	"copy_only":           "true: video that cannot be copied is refused (ErrUnsupported)",
	"images":              "what still images become: video, or images (their bytes in the table; raw pixels as PNG); default: images of LeRobot, else video",
	"recorded_timestamps": "false: " + RecordedTimestamps + " is never written",
	"frames":              "images looked at for statistics: sampled (default), all, none",
	"group_rows":          "least number of rows whose episodes share an encoder (1024)",
	"chunks_size":         "files in a folder; 0 = 1000",
	"data_file_bytes":     "size of data files; 0 = 100 MiB",
	"video_file_bytes":    "size of mp4s; 0 = 200 MiB",
	"stats_budget":        "bytes that the statistics may take",
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
}

// settle reads the choices that are text.
func settle(opt robocache.WriteOptions) (*settings, error) {
	o := &settings{WriteOptions: opt, codec: "copy", groupRows: groupLeast, out: Config{Frames: stats.SampledFrames}}
	number := func(to *int64) func(string) bool {
		return func(v string) bool {
			n, err := strconv.ParseInt(v, 10, 64)
			*to = n
			return err == nil && n >= 0
		}
	}
	whole := func(to *int) func(string) bool {
		return func(v string) bool {
			n, err := strconv.Atoi(v)
			*to = n
			return err == nil
		}
	}
	text := func(to *string, known ...string) func(string) bool {
		return func(v string) bool { *to = v; return len(known) == 0 || slices.Contains(known, v) }
	}
	yes := func(to *bool, when bool) func(string) bool {
		return func(v string) bool {
			b, err := strconv.ParseBool(v)
			*to = b == when
			return err == nil
		}
	}
	w := &o.out
	read := map[string]func(string) bool{
		"video_codec": text(&o.codec, "copy", "av1", "h264", "hevc"), "gop": whole(&w.Video.GOP), "crf": whole(&w.Video.CRF), "preset": text(&w.Video.Preset),
		"codec": text(&w.Video.Codec), "copy_only": yes(&o.copyOnly, true), "images": text(&o.images, "", "video", "images"), "recorded_timestamps": yes(&o.noTimestamps, false),
		"frames": func(v string) bool { w.Frames = cmp.Or(stats.FramePolicy(v), w.Frames); return true }, "group_rows": whole(&o.groupRows),
		"chunks_size": whole(&w.ChunksSize), "data_file_bytes": number(&w.DataFileBytes), "video_file_bytes": number(&w.VideoFileBytes), "stats_budget": number(&w.StatsBudget), "temp_dir": text(&w.TempDir),
	}
	for k, v := range robocache.CurrentOptions(opt.Options) {
		f, ok := read[k]
		if !ok {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Msg: "LeRobot is written without an option " + k, Hint: robocache.Nearest(k, slices.Sorted(maps.Keys(WriteOptions)))}
		}
		if !f(v) {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Msg: "option " + k, Want: WriteOptions[k], Got: strconv.Quote(v)}
		}
	}
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
	Aligned       bool                `json:"aligned,omitempty"` // the streams were brought onto one grid
	DryRun        bool                `json:"dry_run,omitempty"`
}

// Summary says in text what was done.
func (r *Report) Summary(dst string) string {
	var b strings.Builder
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	fmt.Fprintf(&b, "%s %s: LeRobot v3.0, %d episodes, %d frames at %s fps, from %s\n", verb, dst, r.NumEpisodes, r.NumFrames, r.FPS, strings.TrimSpace(r.SourceFormat+" "+r.SourceVersion))
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
	Old       int64             `json:"old_episode_index"`
	New       int               `json:"new_episode_index"`
	Length    int               `json:"length"`
	FromIndex int64             `json:"dataset_from_index"`
	StartNS   int64             `json:"start_ns,omitempty"` // the timestamp of row 0 in the source
	Video     map[string]string `json:"video,omitempty"`    // camera → "copied", or why it was encoded
}

// TaskMap says which task became which.
type TaskMap struct {
	Old  int64  `json:"old_task_index"`
	New  int64  `json:"new_task_index"`
	Text string `json:"task"`
}
