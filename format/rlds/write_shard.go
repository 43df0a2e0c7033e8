package rlds

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// sharding writes a dataset in shards. A shard writes one file of records for each split of which
// it has episodes. The final names state the number of files, which is only known for the whole
// dataset.
var sharding = robocache.Sharding{
	Plan:  planShards,
	Kept:  func(name string) bool { return strings.HasSuffix(name, recordsEnding) },
	Place: placeShards,
	Merge: mergeShards,
}

const recordsEnding = ".tfrecord"

// shardSchema is the part of the plan that all shards share.
type shardSchema struct {
	Name    string       `json:"name,omitempty"`
	Version string       `json:"version,omitempty"`
	Splits  []shardSplit `json:"splits"`
	// Images maps a key to the format of its images.
	Images   map[string]string          `json:"images,omitempty"`
	Features string                     `json:"features"` // content of features.json
	Own      map[string]json.RawMessage `json:"own"`
}

// shardSplit is a run of episodes of the source. Episodes < 0 means all.
type shardSplit struct {
	Name     string `json:"name"`
	First    int    `json:"first"`
	Episodes int    `json:"episodes"`
}

// shardSummary is what mergeShards needs to know about a shard.
type shardSummary struct {
	Splits map[string]shardPart `json:"splits"`
	Uneven bool                 `json:"uneven,omitempty"`
}

type shardPart struct {
	Length int64 `json:"length"`
	Bytes  int64 `json:"bytes"`
}

// planShards examines the whole source and returns the schema of all shards.
func planShards(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (_ json.RawMessage, err error) {
	defer guard.Recover("plan", &err)
	w := &writing{
		src:     src,
		info:    src.Info(),
		options: opt,
		format:  map[string]string{},
		pool:    video.NewPool(0),
	}
	defer w.pool.Close()
	if w.parseOptions(); w.shardCount > 0 {
		return nil, robocache.Misuse(
			"plan",
			nil,
			"the option shards cannot be used: each shard of a plan writes a file",
		).WithHint("--shards of plan")
	}
	w.chooseName("set")
	splits := w.planSplits(ctx)
	s := shardSchema{
		Name:     opt.Options["name"],
		Version:  opt.Options["version"],
		Images:   w.format,
		Features: string(featuresJSON(w.leaves)),
		Own:      map[string]json.RawMessage{},
	}
	for key, v := range w.ownMetadata() {
		s.Own[key] = guard.Must(json.Marshal(v))
	}
	for _, split := range splits {
		s.Splits = append(s.Splits, shardSplit{split.name, split.first, len(split.episodes)})
	}
	if len(splits) == 1 {
		s.Splits[0].Episodes = -1
	}
	return json.Marshal(s)
}

// shardSplits returns the shard's part of each split of the plan.
func (w *writing) shardSplits() (out []*outSplit) {
	s := readSchema(w.options.Shard.Schema)
	for i := range w.leaves {
		w.leaves[i].format = s.Images[w.leaves[i].key]
	}
	for _, split := range s.Splits {
		o := &outSplit{name: split.Name, files: []string{""}, lengths: []int64{0}}
		for _, e := range w.options.Episodes {
			if split.Episodes < 0 || e >= split.First && e < split.First+split.Episodes {
				o.episodes = append(o.episodes, e)
			}
		}
		if o.shards = [][]int{o.episodes}; len(o.episodes) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// summarizeShard returns the summary for mergeShards.
func (w *writing) summarizeShard(splits []*outSplit) json.RawMessage {
	s := shardSummary{Splits: map[string]shardPart{}, Uneven: w.uneven}
	for _, o := range splits {
		s.Splits[o.name] = shardPart{o.lengths[0], o.bytes}
	}
	return guard.Must(json.Marshal(s))
}

// readSchema decodes the schema of the plan.
func readSchema(b json.RawMessage) (s shardSchema) {
	if err := json.Unmarshal(b, &s); err != nil {
		guard.Fail(robocache.Malformed("write rlds", nil, "the schema of the plan").WithCause(err))
	}
	return s
}

// joinShards returns the whole dataset of the shards, and the final names of their files.
func joinShards(
	uri string,
	schema json.RawMessage,
	shards []robocache.ShardReport,
) (w *writing, s shardSchema, splits []*outSplit, names []map[string]string) {
	s = readSchema(schema)
	w = &writing{
		options: robocache.WriteOptions{
			Options: map[string]string{"name": s.Name, "version": s.Version},
		},
	}
	w.chooseName(uri)
	names = make([]map[string]string, len(shards))
	for _, split := range s.Splits {
		o := &outSplit{name: split.Name}
		var from []int
		for i := range shards {
			var sum shardSummary
			if err := json.Unmarshal(shards[i].Summary, &sum); err != nil {
				guard.Fail(robocache.Malformed("commit", nil, "the summary of a shard").
					WithCause(err))
			}
			w.uneven = w.uneven || sum.Uneven
			if part := sum.Splits[o.name]; part.Length > 0 {
				from = append(from, i)
				o.lengths = append(o.lengths, part.Length)
				o.bytes += part.Bytes
			}
		}
		f := splitFile{Name: o.name, Template: defaultTemplate}
		for k, i := range from {
			if names[i] == nil {
				names[i] = map[string]string{}
			}
			names[i][o.name+recordsEnding] = guard.Must(
				f.fileName(w.name, "tfrecord", k, len(from)),
			)
		}
		if len(from) > 0 {
			splits = append(splits, o)
		}
	}
	return w, s, splits, names
}

// placeShards returns the final names of the files of each shard.
func placeShards(
	uri string,
	schema json.RawMessage,
	shards []robocache.ShardReport,
) (_ []map[string]string, err error) {
	defer guard.Recover("commit", &err)
	dst := guard.Must(store.OpenWritable(uri))
	defer store.Close(dst)
	_, _, _, names := joinShards(dst.URI(), schema, shards)
	return names, nil
}

// mergeShards writes the files other than records.
func mergeShards(
	ctx context.Context,
	uri string,
	schema json.RawMessage,
	shards []robocache.ShardReport,
) (err error) {
	defer guard.Recover("commit", &err)
	dst := guard.Must(store.OpenWritable(uri))
	defer store.Close(dst)
	w, s, splits, _ := joinShards(dst.URI(), schema, shards)
	w.dst = dst
	own := map[string]any{"regular": !w.uneven}
	for key, v := range s.Own {
		own[key] = v
	}
	w.writeMetadata(ctx, splits, []byte(s.Features), own)
	return nil
}
