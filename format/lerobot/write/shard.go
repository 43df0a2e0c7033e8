package write

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// Sharding writes a dataset in shards. A shard is a dataset whose episodes, rows and files have the
// numbers of the whole dataset, so its tables and mp4s become part of the whole without change.
// Merge writes the files that cover all episodes, from the summaries of the shards.
//
// Quantiles cannot be computed from those of the shards. Each shard therefore stores its numbers in
// ascending order, and Merge reads them near each quantile.
var Sharding = robocache.Sharding{
	Plan:        planShards,
	Kept:        isShardFile,
	Renumber:    renumber,
	LeavesEmpty: true,
	Merge:       mergeShards,
}

// sortedName is the file of a shard's stats.Sorter.
const sortedName = "statistics"

// isShardFile reports whether a file of a shard becomes part of the whole dataset.
func isShardFile(name string) bool {
	return slices.ContainsFunc(
		[]string{"data", "videos", "meta/episodes"},
		func(dir string) bool { return strings.HasPrefix(name, dir+"/") },
	)
}

// shardPlace is the range of episodes, rows and files that a shard has in the whole dataset.
type shardPlace struct {
	index, firstEpisode, firstFile, files int
	firstRow                              int64
}

// firstChunk returns the numbers of the shard's first file.
func (p *shardPlace) firstChunk(size int) (chunk, file int) {
	if p == nil {
		return 0, 0
	}
	return p.firstFile / size, p.firstFile % size
}

// enterShard sets the numbers of the next episode and row to the first ones of the shard.
func (w *Writer) enterShard() {
	start := w.shardStart()
	w.written = start.firstEpisode
	w.rows = start.firstRow
}

// shardStart returns the first numbers of the shard, or the zero value for a whole dataset.
func (w *Writer) shardStart() shardPlace {
	if w.cfg.Shard == nil {
		return shardPlace{}
	}
	return *w.cfg.Shard
}

// episodeCount returns the number of episodes that this writer has written.
func (w *Writer) episodeCount() int { return w.written - w.shardStart().firstEpisode }

// frameCount returns the number of rows that this writer has written.
func (w *Writer) frameCount() int64 { return w.rows - w.shardStart().firstRow }

// shardSchema is the part of the plan that all shards of a conversion share.
type shardSchema struct {
	Features   []shardFeature      `json:"features"`
	Timestamps bool                `json:"recorded_timestamps,omitempty"`
	Tasks      []string            `json:"tasks"`
	Splits     map[string]string   `json:"splits,omitempty"`
	Extra      map[string][]byte   `json:"extra,omitempty"`
	Findings   []robocache.Finding `json:"findings,omitempty"`
	Report     *Report             `json:"report"`
}

// shardFeature is a feature as written, with its key in the source.
type shardFeature struct {
	robocache.Feature
	Source string `json:"source"`
}

// planShards examines the whole source as a conversion in one process would. It returns the
// shardSchema as JSON.
func planShards(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (_ json.RawMessage, err error) {
	defer crash.Recover("plan", &err)
	c, err := newConversion(ctx, src, opt)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if c.options.out.perEpisode() {
		return nil, robocache.Unsupported("plan", nil, "shards of LeRobot %s", episodesVersion).
			WithHint("convert in one run")
	}
	s := shardSchema{Timestamps: c.timestamps, Tasks: c.chooseTasks(), Report: c.report}
	known := map[string]bool{}
	for _, text := range s.Tasks {
		known[text] = true
	}
	for _, f := range c.features {
		s.Features = append(s.Features, shardFeature{f.Feature, f.source})
	}
	if len(src.Info().Tasks) == 0 { // formats that state the task with the episode
		for _, e := range c.options.Episodes {
			meta, err := src.Episode(ctx, e)
			if err != nil && !(c.options.SkipBad && robocache.Bad(err)) {
				return nil, err
			}
			texts := meta.Tasks
			if len(texts) == 0 {
				texts = []string{""} // as tasksOf returns
			}
			for _, text := range texts {
				if !known[text] && c.src.Len(e) > 0 {
					known[text] = true
					s.Tasks = append(s.Tasks, text)
				}
			}
		}
	}
	// splitRanges needs to know which episodes are written. Empty ones are not.
	for _, e := range c.options.Episodes {
		m := EpisodeMap{New: -1}
		if c.src.Len(e) > 0 {
			m.New = 0
			c.report.NumEpisodes++
		}
		c.report.Episodes = append(c.report.Episodes, m)
	}
	splits := c.splitRanges()
	if len(src.Info().Splits) > 0 {
		s.Splits = splits
	}
	if c.timestamps {
		c.report.Added = append(c.report.Added, RecordedTimestamps)
	}
	s.Extra = c.extraFiles(ctx)
	c.sourceFindings()
	c.report.Episodes = nil
	return json.Marshal(s)
}

// applyPlan reads the plan of the shards instead of examining the source.
func (c *conversion) applyPlan() error {
	if err := json.Unmarshal(c.options.Shard.Schema, &c.shardPlan); err != nil {
		return robocache.Malformed("convert", nil, "the schema of the plan").WithCause(err)
	}
	isOther := len(c.features) != len(c.shardPlan.Features)
	for i := 0; i < len(c.features) && !isOther; i++ {
		f := &c.features[i]
		planned := &c.shardPlan.Features[i]
		isOther = f.source != planned.Source || f.Key != planned.Key || f.Kind != planned.Kind
		f.Width, f.Height, f.Channels = planned.Width, planned.Height, planned.Channels
		f.DType, f.Shape, f.Names = planned.DType, planned.Shape, planned.Names
	}
	if isOther {
		return robocache.Malformed(
			"convert",
			nil,
			"the source has other streams than when it was planned",
		).WithHint("plan again")
	}
	c.timestamps = c.shardPlan.Timestamps
	return nil
}

// setShardRange sets in cfg which episode, row and file numbers the shard may use. All shards get
// equally many file numbers. If there are at most 1000 shards, each gets one chunk.
func (c *conversion) setShardRange(cfg *Config) {
	s := c.options.Shard
	if s == nil {
		return
	}
	cfg.Tasks = c.shardPlan.Tasks
	cfg.ChunksSize = maxFileNumber + 1
	// There are ChunksSize² file numbers. With few shards, each gets one chunk of them.
	files := cfg.ChunksSize * cfg.ChunksSize / max(s.Count, cfg.ChunksSize)
	cfg.Shard = &shardPlace{
		index:        s.Index,
		firstEpisode: s.FirstEpisode,
		firstRow:     s.FirstRow,
		firstFile:    s.Index * files,
		files:        files,
	}
}

// shardSummary is what mergeShards needs to know about a shard in addition to its files.
type shardSummary struct {
	Numbers map[string][]stats.Part `json:"numbers,omitempty"` // sorted values of numeric features
	// The pixel counts (stats.Pixels) of each camera's frames.
	Images map[string]json.RawMessage `json:"images,omitempty"`
	Info   json.RawMessage            `json:"info,omitempty"` // info.json of the shard
	Report *Report                    `json:"report"`         // without its episodes
}

// endShard writes the remaining files of a shard and its summary.
func (c *conversion) endShard(ctx context.Context, w *Writer) error {
	s := shardSummary{Report: &Report{}}
	*s.Report = *c.report
	s.Report.Episodes = nil
	text, err := reportText(c.report)
	if err != nil {
		return err
	}
	if err := w.putFile(ctx, reportName, text); err != nil {
		return err
	}
	if w.episodeCount() > 0 {
		s.Images = map[string]json.RawMessage{}
		for key, p := range w.pixels {
			if s.Images[key], err = json.Marshal(p); err != nil {
				return err
			}
		}
		if s.Numbers, err = w.sortNumbers(ctx); err != nil {
			return err
		}
		if err := w.Close(ctx); err != nil {
			return err
		}
		info, err := w.infoText()
		if err != nil {
			return err
		}
		if s.Info, err = compactJSON(info); err != nil {
			return err
		}
	}
	c.summary, err = json.Marshal(s)
	return err
}

// sortNumbers writes the collected numbers, sorted, to a file of the shard.
func (w *Writer) sortNumbers(ctx context.Context) (map[string][]stats.Part, error) {
	var out store.Writer
	parts, err := w.collector.Parts(ctx, &stats.Sorter{Create: func() (_ io.Writer, err error) {
		w.recordFile(sortedName)
		out, err = w.dst.Create(ctx, sortedName)
		return out, err
	}})
	if out != nil {
		defer out.Abort()
	}
	if err != nil {
		return nil, err
	}
	if out != nil {
		if err := out.Commit(); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// compactJSON returns b without insignificant spaces.
func compactJSON(b []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// mergeShards writes the files that cover all shards. It writes info.json last, which completes the
// dataset, and does not overwrite an existing one.
func mergeShards(
	ctx context.Context,
	uri string,
	plan json.RawMessage,
	shards []robocache.ShardReport,
) (err error) {
	defer crash.Recover("commit", &err)
	var schema shardSchema
	if err := decodeJSON("the schema of the plan", plan, &schema); err != nil {
		return err
	}
	dst, err := store.OpenWritable(uri)
	if err != nil {
		return err
	}
	defer store.Close(dst)
	w := &Writer{
		dst:   dst,
		texts: schema.Tasks,
		cfg:   Config{Extra: schema.Extra, FPS: schema.Report.FPS},
	}
	if w.cfg.Extra == nil {
		w.cfg.Extra = map[string][]byte{}
	}
	summaries, err := decodeSummaries(shards)
	if err != nil {
		return err
	}
	m := shardMerge{
		writer:          w,
		dst:             dst,
		report:          schema.Report,
		plannedFindings: len(schema.Report.Findings),
		images:          map[string]*stats.Pixels{},
		numbers:         map[string][]stats.Part{},
	}
	defer m.closeFiles()
	for i := range summaries {
		if err := m.addShard(ctx, &shards[i], &summaries[i]); err != nil {
			return err
		}
	}
	if w.written == 0 || m.info == nil {
		return misuse(nil, "a dataset without episodes: none of the shards has a row", "", "", "")
	}
	r := m.report
	if w.written != r.NumEpisodes && schema.Splits != nil {
		lost := robocache.LostSplits(
			slices.Sorted(maps.Keys(schema.Splits)),
			"episodes of the plan are missing",
		)
		r.Findings = append(r.Findings, lost...)
		schema.Splits = nil
	}
	r.NumEpisodes = w.written
	r.NumFrames = w.rows
	if w.cfg.Extra[reportName], err = reportText(r); err != nil {
		return err
	}
	if err := w.writeTexts(ctx); err != nil {
		return err
	}
	w.cfg.Splits = schema.Splits
	if w.cfg.Splits == nil {
		w.cfg.Splits = map[string]string{"train": fmt.Sprintf("0:%d", w.written)}
	}
	info, err := m.infoText()
	if err != nil {
		return err
	}
	if err := m.writeStats(ctx); err != nil {
		return err
	}
	return putInfo(ctx, dst, info)
}

// decodeSummaries decodes the summaries of the shards.
func decodeSummaries(shards []robocache.ShardReport) ([]shardSummary, error) {
	summaries := make([]shardSummary, len(shards))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range shards {
		g.Go(crash.Func("commit", func() error {
			return decodeJSON(
				fmt.Sprintf("the summary of shard %d", i),
				shards[i].Summary,
				&summaries[i],
			)
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return summaries, nil
}

// shardMerge joins the reports and statistics of the shards of a dataset.
type shardMerge struct {
	writer          *Writer // counts the episodes and rows
	dst             store.Store
	report          *Report
	plannedFindings int // findings of the plan, which each shard repeats
	images          map[string]*stats.Pixels
	numbers         map[string][]stats.Part
	files           []*stats.SortedFile
	info            map[string]json.RawMessage // info.json of the first shard that has rows
}

// closeFiles closes the files of sorted numbers.
func (m *shardMerge) closeFiles() {
	for _, file := range m.files {
		file.Close()
	}
}

// addShard adds a shard. The shards must be added in order.
func (m *shardMerge) addShard(
	ctx context.Context,
	shard *robocache.ShardReport,
	s *shardSummary,
) error {
	w := m.writer
	if err := m.addNumbers(ctx, shard.Dir, s.Numbers); err != nil {
		return err
	}
	episodes, err := shardEpisodes(ctx, m.dst, shard.Dir, w.written, w.rows)
	if err != nil {
		return err
	}
	w.written += shard.Episodes
	w.rows += shard.Frames
	for key, counted := range s.Images {
		if m.images[key] == nil {
			m.images[key] = &stats.Pixels{}
		}
		if err := decodeJSON("the pixel counts of "+key, counted, m.images[key]); err != nil {
			return err
		}
	}
	r := m.report
	r.Episodes = append(r.Episodes, episodes...)
	r.Copied += s.Report.Copied
	r.Encoded += s.Report.Encoded
	r.Findings = mergeFindings(m.plannedFindings, r.Findings, s.Report.Findings)
	if m.info == nil && s.Info != nil {
		return decodeJSON("info.json", s.Info, &m.info)
	}
	return nil
}

// addNumbers adds the sorted numbers of the shard in dir, by stream.
func (m *shardMerge) addNumbers(
	ctx context.Context,
	dir string,
	numbers map[string][]stats.Part,
) error {
	file := &stats.SortedFile{
		Open: func() (robocache.Ranged, error) {
			return m.dst.Open(ctx, dir+"/"+sortedName)
		},
	}
	m.files = append(m.files, file)
	// Numbers were planned before episodes were left out. If episodes before this shard are
	// missing, the actual numbers are lower.
	actual := map[string]float64{
		"episode_index": float64(m.writer.written),
		"index":         float64(m.writer.rows),
	}
	for key, parts := range numbers {
		for k := range parts {
			parts[k].File = file
		}
		less := 0.0
		if first, ok := actual[key]; ok && len(parts) > 0 {
			planned, err := parts[0].Least(0)
			if err != nil {
				return err
			}
			less = planned - first
		}
		for k := range parts {
			parts[k].Less = less
		}
		m.numbers[key] = append(m.numbers[key], parts...)
	}
	return nil
}

// infoText returns the content of info.json.
func (m *shardMerge) infoText() (_ []byte, err error) {
	w := m.writer
	for key, v := range map[string]any{
		"total_episodes": w.written,
		"total_frames":   w.rows,
		"total_tasks":    len(w.texts),
		"splits":         w.cfg.Splits,
	} {
		if m.info[key], err = jsonMarshal(v); err != nil {
			return nil, err
		}
	}
	var ordered jsonObject
	for _, key := range infoKeys {
		ordered = append(ordered, jsonField{key, m.info[key]})
	}
	return indentedJSON(ordered)
}

// writeStats writes the statistics of all shards.
func (m *shardMerge) writeStats(ctx context.Context) error {
	merged := robocache.Stats{}
	for key, parts := range m.numbers {
		fs, _, err := stats.Whole(ctx, parts)
		if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
			return err
		}
		merged[key] = fs
	}
	for key, p := range m.images {
		if fs := p.Stats(); fs != nil {
			merged[key] = fs
		}
	}
	encoded, err := stats.Marshal(merged)
	if err != nil {
		return err
	}
	return m.writer.putFile(ctx, "meta/stats.json", encoded)
}

// putInfo writes info.json, which completes the dataset. A file with the same content may exist.
func putInfo(ctx context.Context, dst store.Writable, text []byte) error {
	err := store.PutNew(ctx, dst, infoName, text)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	have, err := store.ReadFile(ctx, dst, infoName, 64<<20)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, text) {
		return misuse(
			robocache.Where{"dataset": dst.URI(), "file": infoName},
			"the destination holds another dataset",
			"",
			"",
			"choose an empty destination",
		)
	}
	return nil
}

// shardEpisodes reads from the report of a shard how source episodes map to written ones. The first
// written episode gets the given index and first row, because planned numbers are higher if
// episodes before it were left out.
func shardEpisodes(
	ctx context.Context, st store.Store, dir string, index int, row int64,
) ([]EpisodeMap, error) {
	name := dir + "/" + reportName
	text, err := store.ReadFile(ctx, st, name, maxReport)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := decodeJSON(name, text, &r); err != nil {
		return nil, err
	}
	isWritten := func(m EpisodeMap) bool { return m.New >= 0 }
	first := slices.IndexFunc(r.Episodes, isWritten)
	if first < 0 {
		return r.Episodes, nil
	}
	lessEpisodes := r.Episodes[first].New - index
	lessRows := r.Episodes[first].FromIndex - row
	for i := range r.Episodes {
		if m := &r.Episodes[i]; isWritten(*m) {
			m.New -= lessEpisodes
			m.FromIndex -= lessRows
		}
	}
	return r.Episodes, nil
}

// decodeJSON decodes b. what names the content in errors.
func decodeJSON(what string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return robocache.Malformed("commit", nil, "%s", what).WithCause(err)
	}
	return nil
}

// mergeFindings adds the findings of another shard. Equal findings are merged and their counts
// added. The first planned findings come from the plan and already cover the whole dataset, so
// their counts stay.
func mergeFindings(planned int, all, more []robocache.Finding) []robocache.Finding {
	for _, f := range more {
		i := slices.IndexFunc(all, func(g robocache.Finding) bool {
			// Each shard has its own folder, so only the end of the location is compared.
			samePlace := path.Base(g.Where.String()) == path.Base(f.Where.String())
			return g.Code == f.Code && g.Message == f.Message && samePlace
		})
		if i < 0 {
			all = append(all, f)
		} else if i >= planned {
			all[i].Count = max(1, all[i].Count) + max(1, f.Count)
		}
	}
	return all
}
