package convert

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/stats"
)

// RecordedStamps is the feature that keeps recorded timestamps, float64 seconds, where they are not frame_index/fps.
const RecordedTimestamps = "recorded_timestamp"

// Options are the choices of a conversion. The zero value converts everything and copies video where it can.
type Options struct {
	Episodes []int    // positions in the source, in the order wanted; nil = all
	Keys     []string // features to keep; nil = all. The bookkeeping columns are always there
	// VideoCodec: "copy" (default) copies where C2 allows and encodes the rest as Encode says; "av1", "h264", "hevc" encode everything.
	VideoCodec string
	Encode     write.VideoConfig
	// Images: what still images become: "video" (encoded as Encode says), "images" (their bytes in the table; raw pixels as PNG), or "":
	// images of a LeRobot dataset, else video. Depth is always images: its code of 12 bits would lose millimetres.
	Images string
	// Align brings all streams onto one grid first (align.View). A source whose streams have clocks of their own is aligned at FPS, or at its own
	// rate, where this is nil.
	Align *align.Config
	// DropInvalid leaves out rows at which some stream has no value, in place of writing "<key>.valid".
	DropInvalid bool
	// CopyOnly refuses (ErrUnsupported) what cannot be copied.
	CopyOnly bool
	// FPS replaces the source's rate; it is needed where the source has none. Rows are not resampled.
	FPS    robocache.Rate
	DryRun bool
	// Resume continues what a killed conversion with the same options left, and leaves finished files for another when this one fails.
	// Finished mp4s of copied images, and encoded episodes, are taken over; rows are made again. Encoded episodes are kept for that
	// until the end: they take the space of their video once more.
	Resume bool
	// SkipBad leaves out episodes that cannot be read, with a finding, instead of failing.
	SkipBad bool
	// Frames says which images the statistics look at.
	Frames  stats.FramePolicy
	Threads int // decoders at once; 0 = the number of CPUs
	// Sizes of files, in bytes; 0 = the reference's 100 and 200 MiB, 1000 files a folder.
	DataFileBytes, VideoFileBytes int64
	ChunksSize                    int
	StatsBudget                   int64
	TempDir                       string
	Progress                      func(Progress)
}

// Progress is told after every episode.
type Progress struct {
	Episodes, TotalEpisodes int
	Frames, TotalFrames     int64
	Bytes                   int64 // of rows and of video read
}

// Report says what a conversion did.
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
