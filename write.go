package robocache

import (
	"context"
	"encoding/json"
	"io"
	"slices"
)

// WriteOptions are the options that all writers have.
type WriteOptions struct {
	// Episodes are positions in the source, in the order in which they are written. nil is all.
	Episodes []int `json:"episodes,omitempty"`
	// Keys are the features to write. nil is all but bookkeeping columns.
	Keys    []string `json:"keys,omitempty"`
	Threads int      `json:"threads,omitempty"` // 0 = the number of CPUs
	// SkipBad omits episodes that cannot be read, with a finding for each.
	SkipBad bool `json:"skip_bad,omitempty"`
	// FPS replaces the rate of the source, if the format states one. Rows are not resampled.
	FPS Rate `json:"fps,omitzero"`
	// View describes, as JSON, how the source was derived from another dataset. It is empty if the
	// source is a dataset as it was opened. A run can be resumed only with the same View.
	View string `json:"-"`
	// OnGrid reports that the rows of every episode are at the rate of the source, counted from the
	// first row.
	OnGrid bool `json:"-"`
	// Findings of the conversion are part of the writer's report, after those of the source.
	Findings []Finding `json:"-"`
	// Replaces is the URI of the dataset that the result replaces, or "". It is not named as the
	// origin of an episode.
	Replaces string `json:"-"`
	// Renumber numbers the episodes of the result from 0. Without it, episodes keep their indices,
	// which must differ.
	Renumber bool `json:"-"`
	// DryRun reports what would be done and writes nothing. It needs Format.Resumes.
	DryRun bool `json:"-"`
	// Resume continues a killed run with the same options, and keeps the state from which another
	// run can continue. It needs Format.Resumes.
	Resume   bool              `json:"-"`
	Options  map[string]string `json:"options,omitempty"` // see Format.WriteOptions
	Shard    *WriteShard       `json:"-"`                 // nil: the whole dataset is written
	Progress func(Progress)    `json:"-"`                 // counts rows; calls do not overlap
}

// WriteShard is the part of a dataset that one call of Format.Write writes into a separate folder.
type WriteShard struct {
	Index, Count int             // number of the shard, from 0, and number of shards
	FirstEpisode int             // number of the shard's first episode in the whole dataset
	FirstRow     int64           // number of rows before the shard
	Schema       json.RawMessage // the result of Sharding.Plan
}

// Sharding describes how a format is written in shards. Write makes each shard, with
// WriteOptions.Shard, and Merge combines them.
type Sharding struct {
	// Plan returns the properties that all shards must share, for the options of the whole dataset.
	Plan func(ctx context.Context, src Dataset, opt WriteOptions) (json.RawMessage, error)
	// Kept reports whether a file of a shard becomes a file of the dataset without a change of its
	// name or contents.
	Kept func(name string) bool
	// Renumber returns a function that rewrites a file of a shard with lower numbers of episodes
	// and rows, because earlier shards have fewer than planned. It is nil, or returns nil, if the
	// file has no such numbers.
	Renumber func(
		name string, episodes int, rows int64,
	) func(ctx context.Context, in Ranged, out io.Writer) error
	// Place returns for each shard the names that its kept files get in the dataset at dst. It is
	// nil if they keep their names.
	Place func(
		dst string, schema json.RawMessage, shards []ShardReport,
	) ([]map[string]string, error)
	// Merge writes the files of the dataset that summarize all shards, and no others. It may be
	// called again after it was killed. The last file that it writes completes the dataset.
	Merge func(ctx context.Context, dst string, schema json.RawMessage, shards []ShardReport) error
	// Unfinished is a file in the folder of the dataset while shards are written. It is for formats
	// in which each file of a shard is a dataset. Readers reject the folder until it also has
	// _commit.json.
	Unfinished string
	// Whole reports that no shard may be missing.
	Whole bool
	// LeavesEmpty reports that episodes without rows are not numbered.
	LeavesEmpty bool
}

// ShardReport describes a written shard.
type ShardReport struct {
	Episodes int             `json:"num_episodes"`
	Frames   int64           `json:"num_frames"`
	Summary  json.RawMessage `json:"summary,omitempty"` // the format's input to Merge
	// Dir is the folder of the shard's files below the dataset. Files that are not Kept exist until
	// the commit.
	Dir string `json:"-"`
}

// WriteReport describes the result of a writer.
type WriteReport struct {
	Episodes int       `json:"num_episodes"`
	Frames   int64     `json:"num_frames"`
	Bytes    int64     `json:"bytes"`
	Dropped  []string  `json:"dropped_features"` // features that the format cannot hold
	Findings []Finding `json:"findings"`
	LeftOut  int       `json:"-"` // episodes of the source that are not in the result
	// Summary is the input of Sharding.Merge about a shard.
	Summary json.RawMessage `json:"-"`
	// Own is a more detailed report of the format, or nil. Its JSON replaces the JSON of this
	// report. It includes the findings of the source.
	Own OwnReport `json:"-"`
}

// OwnReport is a report of a format with more details than WriteReport.
type OwnReport interface {
	// Summary returns the report as text, without findings. dst is the URI of the result.
	Summary(dst string) string
}

// Wants reports whether a feature is to be written: Keys names it, or Keys is nil and it is no
// bookkeeping column.
func (o *WriteOptions) Wants(f *Feature) bool {
	return o.Keys == nil && !f.Default || slices.Contains(o.Keys, f.Key)
}

// Check rejects episodes and keys that a source does not have.
func (o *WriteOptions) Check(info *Info) error {
	for _, e := range o.Episodes {
		if e < 0 || e >= info.Episodes {
			return Misuse("convert", Where{"position": e}, "no such episode")
		}
	}
	for _, k := range o.Keys {
		if info.Feature(k) == nil {
			return Misuse("convert", Where{"dataset": info.URI}, "no feature %s to keep", k).
				WithHint("%s", Nearest(k, info.Keys()))
		}
	}
	return nil
}
