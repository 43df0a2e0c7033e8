package zarr

import (
	"context"
	"encoding/json"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// sharding describes how shards are written. Chunks inside one shard are final. The rows of chunks
// at the edges of a shard are joined by Merge. Merge also writes the timestamps, because their type
// depends on all of them.
var sharding = robocache.Sharding{
	Plan:  planShards,
	Merge: mergeShards,
	Whole: true,
	Kept:  func(name string) bool { return !strings.HasPrefix(name, edges) },
}

const edges = "edges/"

// edgeName returns the name of the file with a shard's rows of an incomplete chunk.
func (s *outStream) edgeName(
	chunk int,
) string {
	return path.Join(edges, s.dir, strconv.Itoa(chunk))
}

// shardSchema is the schema that all shards share.
type shardSchema struct {
	Streams []shardStream              `json:"streams"`
	Times   bool                       `json:"timestamps"`
	Root    map[string]json.RawMessage `json:"root"`
}

// shardStream is the serialized form of an outStream.
type shardStream struct {
	Feature *robocache.Feature         `json:"feature"`
	Name    string                     `json:"name"`
	Shape   []int                      `json:"shape,omitempty"`
	Row     int                        `json:"row"`
	Per     int                        `json:"per"`
	Text    bool                       `json:"text,omitempty"`
	Mask    bool                       `json:"mask,omitempty"`
	Gray    bool                       `json:"gray,omitempty"`
	Attrs   map[string]json.RawMessage `json:"attrs,omitempty"`
}

// shardSummary is the information about a shard that Merge needs.
type shardSummary struct {
	FirstRow int64    `json:"first_row"`
	Ends     []int64  `json:"ends"` // relative to FirstRow
	Tasks    []string `json:"tasks"`
	Sources  []string `json:"sources,omitempty"`
	Exact    bool     `json:"exact"` // float seconds represent its timestamps exactly
}

func planShards(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (_ json.RawMessage, err error) {
	defer crash.Recover("plan", &err)
	if opt.SkipBad {
		return nil, robocache.Unsupported(
			"plan",
			nil,
			"zarr in shards cannot skip episodes: all chunks have the same number of rows, so "+
				"the plan fixes the position of each shard",
		).
			WithHint("leave the bad episodes out by %s (%s finds them), or convert to lerobot, "+
				"rlds or mcap",
				robocache.Option("episodes"), robocache.Command("doctor"))
	}
	w := &writer{
		ctx:   ctx,
		src:   src,
		opt:   opt,
		rep:   &robocache.WriteReport{},
		names: map[string]bool{"timestamp": true, "task": true},
	}
	if err := reader.Op("zarr write").Settle(opt.Options, nil, nil); err != nil {
		return nil, err
	}
	eps := reader.Episodes(opt.Episodes, src.Info().Episodes)
	tasks, err := w.readTasks(eps)
	if err != nil {
		return nil, err
	}
	if err := w.planStreams(eps, tasks); err != nil {
		return nil, err
	}
	schema := shardSchema{Times: w.times != nil, Root: map[string]json.RawMessage{}}
	for key, v := range w.rootAttributes() {
		if schema.Root[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	for _, s := range w.streams {
		o := shardStream{
			Feature: s.f,
			Name:    s.name,
			Shape:   s.shape,
			Row:     s.rowBytes,
			Per:     s.chunkRows,
			Text:    s.text,
			Mask:    s.mask,
			Gray:    s.gray,
			Attrs:   map[string]json.RawMessage{},
		}
		for key, v := range s.attributes() {
			if o.Attrs[key], err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		schema.Streams = append(schema.Streams, o)
	}
	return json.Marshal(schema)
}

// applySchema creates the streams of the plan.
func (w *writer) applySchema(text json.RawMessage) (schema shardSchema, err error) {
	if err := json.Unmarshal(text, &schema); err != nil {
		return schema, bad("the schema of the plan: %v", err)
	}
	if schema.Times {
		w.times = w.newStream(
			&robocache.Feature{
				Key:   "timestamp",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float64,
				Shape: []int{1},
			},
			"timestamp",
		)
	}
	for _, o := range schema.Streams {
		if o.Feature == nil || o.Per < 1 || o.Row < 0 || o.Row > math.MaxInt32 ||
			o.Per > max(1, chunkBytes/max(1, o.Row), imageBytes/max(1, o.Row)) {
			return schema, bad("the schema of the plan: a stream %q", o.Name)
		}
		s := &outStream{
			f:         o.Feature,
			name:      o.Name,
			dir:       "data/" + o.Name,
			shape:     o.Shape,
			rowBytes:  o.Row,
			chunkRows: o.Per,
			text:      o.Text,
			mask:      o.Mask,
			gray:      o.Gray,
		}
		for key, v := range o.Attrs {
			if s.attrs == nil {
				s.attrs = map[string]any{}
			}
			s.attrs[key] = v
		}
		w.streams = append(w.streams, s)
	}
	return schema, nil
}

// enterShard sets the start position of the streams in a shard.
func (w *writer) enterShard() error {
	if _, err := w.applySchema(w.opt.Shard.Schema); err != nil {
		return err
	}
	for _, s := range w.streams {
		s.chunk = int(w.opt.Shard.FirstRow / int64(s.chunkRows))
		s.leadingRows = int(w.opt.Shard.FirstRow % int64(s.chunkRows))
	}
	return nil
}

// endShard writes the timestamps and the summary for Merge.
func (w *writer) endShard() error {
	sum := shardSummary{
		FirstRow: w.opt.Shard.FirstRow,
		Ends:     w.ends,
		Tasks:    w.tasks,
		Sources:  w.sources,
	}
	if w.times != nil {
		var b []byte
		for _, t := range w.times.timestamps {
			b = le.AppendUint64(b, uint64(t))
		}
		sum.Exact = areExactSeconds(w.times.timestamps)
		if err := w.putFile(w.times.edgeName(0), b); err != nil {
			return err
		}
	}
	for _, s := range w.streams {
		w.rep.Bytes += s.bytes.Load()
		w.reportMissing(s)
	}
	var err error
	if w.rep.Summary, err = json.Marshal(sum); err != nil {
		return err
	}
	return nil
}

// mergeShards writes the chunks at the edges of shards, and the metadata of the arrays.
func mergeShards(
	ctx context.Context,
	uri string,
	schema json.RawMessage,
	shards []robocache.ShardReport,
) (err error) {
	defer crash.Recover("commit", &err)
	dst, err := store.OpenWritable(uri)
	if err != nil {
		return err
	}
	defer store.Close(dst)
	w := &writer{ctx: ctx, dst: dst, rep: &robocache.WriteReport{}}
	w.work.SetLimit(runtime.GOMAXPROCS(0))
	root := map[string]any{}
	agreed, err := w.applySchema(schema)
	if err != nil {
		return err
	}
	for key, v := range agreed.Root {
		root[key] = v
	}
	var rows int64
	seconds := true
	for i := range shards {
		var sum shardSummary
		if err := json.Unmarshal(shards[i].Summary, &sum); err != nil {
			return bad("the summary of a shard: %v", err)
		}
		if sum.FirstRow != rows {
			return robocache.Unsupported(
				"commit",
				nil,
				"the rows %d to %d are missing, and the plan fixes the position of each zarr shard",
				rows,
				sum.FirstRow,
			).
				WithHint("run the shards that are missing")
		}
		for _, end := range sum.Ends {
			w.ends = append(w.ends, rows+end)
		}
		w.sources = append(w.sources, sum.Sources...)
		w.tasks, rows, seconds = append(
			w.tasks,
			sum.Tasks...), rows+shards[i].Frames, seconds &&
			sum.Exact
	}
	read := func(shard int, name string) ([]byte, error) {
		return store.ReadFile(ctx, dst, shards[shard].Dir+"/"+name, 16<<30)
	}
	var g errgroup.Group
	for _, s := range w.streams {
		g.Go(crash.Func("commit", func() error { return w.joinEdges(s, shards, read) }))
	}
	if err := w.waitForChunks(g.Wait()); err != nil {
		return err
	}
	return w.waitForChunks(func() error {
		if w.times != nil {
			if err := w.timestampArray(seconds, func(yield func([]int64) error) error {
				for i := range shards {
					content, err := read(i, w.times.edgeName(0))
					if err != nil {
						return err
					}
					if err := yield(robocache.Int64s(nil, robocache.Int64, content)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return w.writeMetadata(root)
	}())
}

// joinEdges writes the chunks of a stream that no shard has completely.
func (w *writer) joinEdges(
	s *outStream,
	shards []robocache.ShardReport,
	read func(shard int, name string) ([]byte, error),
) error {
	per, from := int64(s.chunkRows), int64(0)
	for i := range shards {
		to := from + shards[i].Frames
		for k := from / per; (s.text || s.rowBytes > 0) && k*per < to; k++ {
			first, end := max(from, k*per), min(to, (k+1)*per)
			if end-first == per {
				k = max(k, to/per-1) // skip whole chunks up to the last one
				continue
			}
			b, err := read(i, s.edgeName(int(k)))
			if err != nil {
				return err
			}
			if !s.text && int64(len(b)) != (end-first)*int64(s.rowBytes) {
				return bad(
					"%s of a shard: %d bytes for %d rows",
					s.edgeName(int(k)),
					len(b),
					end-first,
				)
			}
			s.chunk, s.buf, s.bufferedRows = int(k), append(s.buf, b...), s.bufferedRows+
				int(end-first)
			if s.bufferedRows == s.chunkRows {
				w.flushChunk(s)
			}
		}
		from = to
	}
	w.flushChunk(s)
	if s.text || s.rowBytes > 0 {
		s.chunk, s.rows = int((from+per-1)/per), from
	}
	return nil
}
