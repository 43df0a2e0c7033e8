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

// sharding: the chunks that lie in one shard are the whole's. Those at its edges belong to its
// neighbours too: their rows are put together by Merge, and so are the timestamps, whose type
// follows from all of them.
var sharding = robocache.Sharding{
	Plan:  planShards,
	Merge: mergeShards,
	Whole: true,
	Kept:  func(name string) bool { return !strings.HasPrefix(name, edges) },
}

const edges = "edges/"

// edge is the file of a shard's rows of a chunk.
func (s *outStream) edge(chunk int) string { return path.Join(edges, s.dir, strconv.Itoa(chunk)) }

// shardSchema is what the shards agree on.
type shardSchema struct {
	Streams []shardStream              `json:"streams"`
	Times   bool                       `json:"timestamps"`
	Root    map[string]json.RawMessage `json:"root"`
}

// shardStream is an outStream.
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

// shardSummary is what the whole needs to know of a shard.
type shardSummary struct {
	FirstRow int64    `json:"first_row"`
	Ends     []int64  `json:"ends"` // counted from FirstRow
	Tasks    []string `json:"tasks"`
	Sources  []string `json:"sources,omitempty"`
	Exact    bool     `json:"exact"` // seconds keep its timestamps
}

func planShards(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (_ json.RawMessage, err error) {
	defer crash.Recover("plan", &err)
	if opt.SkipBad {
		return nil, robocache.Unsupported("plan", nil, "zarr in shards with episodes left out: a chunk has as many rows as the next, so that each shard stands where it was planned").
			WithHint("leave the bad episodes out by %s (%s finds them), or convert to lerobot, rlds or mcap",
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
	if err := w.plan(eps, tasks); err != nil {
		return nil, err
	}
	schema := shardSchema{Times: w.times != nil, Root: map[string]json.RawMessage{}}
	for key, v := range w.root() {
		if schema.Root[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	for _, s := range w.streams {
		o := shardStream{
			Feature: s.f,
			Name:    s.name,
			Shape:   s.shape,
			Row:     s.row,
			Per:     s.per,
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

// agreed takes what the plan settled.
func (w *writer) agreed(text json.RawMessage) (schema shardSchema, err error) {
	if err := json.Unmarshal(text, &schema); err != nil {
		return schema, bad("the schema of the plan: %v", err)
	}
	if schema.Times {
		w.times = w.stream(
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
			f:     o.Feature,
			name:  o.Name,
			dir:   "data/" + o.Name,
			shape: o.Shape,
			row:   o.Row,
			per:   o.Per,
			text:  o.Text,
			mask:  o.Mask,
			gray:  o.Gray,
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

// enterShard puts the streams where the shard stands.
func (w *writer) enterShard() error {
	if _, err := w.agreed(w.opt.Shard.Schema); err != nil {
		return err
	}
	for _, s := range w.streams {
		s.chunk, s.lead = int(
			w.opt.Shard.FirstRow/int64(s.per),
		), int(
			w.opt.Shard.FirstRow%int64(s.per),
		)
	}
	return nil
}

// endShard writes the timestamps, and what Merge wants to know.
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
		sum.Exact = exact(w.times.timestamps)
		if err := w.put(w.times.edge(0), b); err != nil {
			return err
		}
	}
	for _, s := range w.streams {
		w.rep.Bytes += s.bytes.Load()
		w.missed(s)
	}
	var err error
	if w.rep.Summary, err = json.Marshal(sum); err != nil {
		return err
	}
	return nil
}

// mergeShards writes the chunks at the shards' edges, and what describes the arrays.
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
	agreed, err := w.agreed(schema)
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
			return robocache.Unsupported("commit", nil, "zarr without the rows %d to %d: each shard stands where it was planned", rows, sum.FirstRow).
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
	if err := w.packed(g.Wait()); err != nil {
		return err
	}
	return w.packed(func() error {
		if w.times != nil {
			if err := w.timestampArray(seconds, func(yield func([]int64) error) error {
				for i := range shards {
					content, err := read(i, w.times.edge(0))
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
		return w.finish(root)
	}())
}

// joinEdges writes the chunks of a stream that no shard has whole.
func (w *writer) joinEdges(
	s *outStream,
	shards []robocache.ShardReport,
	read func(shard int, name string) ([]byte, error),
) error {
	per, from := int64(s.per), int64(0)
	for i := range shards {
		to := from + shards[i].Frames
		for k := from / per; (s.text || s.row > 0) && k*per < to; k++ {
			first, end := max(from, k*per), min(to, (k+1)*per)
			if end-first == per {
				k = max(k, to/per-1) // whole chunks up to the last, which may be none
				continue
			}
			b, err := read(i, s.edge(int(k)))
			if err != nil {
				return err
			}
			if !s.text && int64(len(b)) != (end-first)*int64(s.row) {
				return bad("%s of a shard: %d bytes for %d rows", s.edge(int(k)), len(b), end-first)
			}
			s.chunk, s.buf, s.count = int(k), append(s.buf, b...), s.count+int(end-first)
			if s.count == s.per {
				w.flush(s)
			}
		}
		from = to
	}
	w.flush(s)
	if s.text || s.row > 0 {
		s.chunk, s.rows = int((from+per-1)/per), from
	}
	return nil
}
