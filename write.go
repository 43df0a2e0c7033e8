package robocache

import (
	"context"
	"encoding/json"
	"io"
	"slices"
)

// WriteOptions are the choices that hold for every writer.
type WriteOptions struct {
	// positions in the source, in the order wanted; nil = all
	Episodes []int `json:"episodes,omitempty"`
	// features to keep; nil = all but bookkeeping columns
	Keys    []string `json:"keys,omitempty"`
	Threads int      `json:"threads,omitempty"` // 0 = the number of CPUs
	// leave out episodes that cannot be read, with a finding
	SkipBad bool `json:"skip_bad,omitempty"`
	// in place of the source's, where the format states one; rows are not resampled
	FPS Rate `json:"fps,omitzero"`
	// View says how the source was made of another dataset, as JSON; "" = it is as it was opened. A
	// run is resumed with the same one alone.
	View string `json:"-"`
	// OnGrid says that the rows of every episode lie at the rate of the source, from its first one
	// on.
	OnGrid bool `json:"-"`
	// Findings of the conversion are part of the writer's report, after those of the source.
	Findings []Finding `json:"-"`
	// Replaces is the URI of the dataset whose place the result takes; "" = none. It is not named
	// as the origin of an episode.
	Replaces string `json:"-"`
	// Renumber numbers the episodes of the result from 0: several may have one index in the source.
	Renumber bool `json:"-"`
	// DryRun says what would be done; Resume goes on where a killed run with the same options
	// stopped, and keeps what another can go on from. Both are for formats that know them
	// (Format.Resumes).
	DryRun   bool              `json:"-"`
	Resume   bool              `json:"-"`
	Options  map[string]string `json:"options,omitempty"` // Format.WriteOptions
	Shard    *WriteShard       `json:"-"`                 // nil: the whole dataset is written
	Progress func(Progress)    `json:"-"`                 // counts rows, in one call at a time
}

// WriteShard is the part of a dataset that a call of Format.Write makes, in a folder of its own.
type WriteShard struct {
	Index, Count int             // of the shards
	FirstEpisode int             // the number of its first episode in the whole
	FirstRow     int64           // rows before it
	Schema       json.RawMessage // of Sharding.Plan
}

// Sharding is how a format is written in shards: Write makes each, with WriteOptions.Shard, and
// Merge the whole of them.
type Sharding struct {
	// Plan settles what all shards must agree on, with the options of the whole.
	Plan func(ctx context.Context, src Dataset, opt WriteOptions) (json.RawMessage, error)
	// Kept says which files of a shard are the whole's as they are, under the same name.
	Kept func(name string) bool
	// Renumber says how a file of a shard is written again with its episodes and rows numbered
	// lower: episodes of shards before it are not there. It is nil, and gives nil, where there are
	// no such numbers.
	Renumber func(name string, episodes int, rows int64) func(ctx context.Context, in Ranged, out io.Writer) error
	// Place gives for each shard the names that its kept files get in the whole at dst, where they
	// depend on the other shards; nil: they keep theirs.
	Place func(dst string, schema json.RawMessage, shards []ShardReport) ([]map[string]string, error)
	// Merge writes, at the whole's place, what stands over all shards, and nothing else: it may be
	// called again after a kill. Its last file makes the dataset one.
	Merge func(ctx context.Context, dst string, schema json.RawMessage, shards []ShardReport) error
	// Unfinished is a file that lies at the whole's place while shards are made, where each of
	// their files is a dataset: readers refuse it until there is a _commit.json beside it.
	Unfinished string
	// Whole says that no shard may be missing.
	Whole bool
	// LeavesEmpty says that episodes without rows have no number.
	LeavesEmpty bool
}

// ShardReport says what was written of a shard.
type ShardReport struct {
	Episodes int             `json:"num_episodes"`
	Frames   int64           `json:"num_frames"`
	Summary  json.RawMessage `json:"summary,omitempty"` // the format's own, for Merge
	// of its files, below the whole's place: those that are not Kept are there until the commit
	Dir string `json:"-"`
}

// WriteReport says what a writer did.
type WriteReport struct {
	Episodes int       `json:"num_episodes"`
	Frames   int64     `json:"num_frames"`
	Bytes    int64     `json:"bytes"`
	Dropped  []string  `json:"dropped_features"` // what the format cannot hold
	Findings []Finding `json:"findings"`
	LeftOut  int       `json:"-"` // episodes of the source that are not in the result
	// Summary is what Sharding.Merge wants to know of a shard.
	Summary json.RawMessage `json:"-"`
	// Own is the format's own report, where it has a larger one: its JSON stands for this one's. It
	// holds what the source found, too.
	Own OwnReport `json:"-"`
}

// OwnReport is what a format says of a conversion beside WriteReport.
type OwnReport interface {
	// Summary is its text, without findings.
	Summary(dst string) string
}

// Wants says that a feature is asked for: by its key, or as all but bookkeeping columns are.
func (o *WriteOptions) Wants(f *Feature) bool {
	return o.Keys == nil && !f.Default || slices.Contains(o.Keys, f.Key)
}

// Check refuses episodes and keys that a source does not have.
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
