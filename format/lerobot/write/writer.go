package write

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// Writer writes a dataset, episode after episode, by one goroutine at a time. See the contract of the package.
type Writer struct {
	dst       store.Writable
	cfg       Config
	journal   *journal // of a conversion that may be resumed; or nil
	feats     []writtenFeature
	data      *tableSeries
	tasks     map[string]int64
	texts     []string
	rows      int64
	pending   []*writtenEpisode
	whole     int // of pending, from the head, are complete
	written   int
	index     *episodesWriter
	cams      map[string]*outCamera
	keys      []string // of cams, in the order of the features
	collect   *stats.Collector
	looks     map[string]*stats.Pixels
	known     map[string]*known
	encoders  chan struct{} // a place for each that may run
	tempMu    sync.Mutex
	temp      string // folder of encoded episodes
	tempStore store.Store
	fileMu    sync.Mutex
	files     []string // begun, so that Abort can remove them
	failed    error
	ended     bool

	findings []robocache.Finding
}

type writtenFeature struct {
	robocache.Feature
	leaves  []*pqw.Leaf
	pattern []byte // of a row's repetition levels
}

// NewWriter begins a dataset in a store that has no dataset yet.
func NewWriter(ctx context.Context, dst store.Writable, cfg Config) (_ *Writer, err error) {
	defer guard.Recover("write lerobot", &err)
	cfg.Features = slices.Clone(cfg.Features)
	cfg.validate()
	if _, err := dst.Stat(ctx, "meta/info.json"); err == nil {
		return nil, misuse(robocache.Where{"dataset": dst.URI()}, "there is a dataset here already", "", "", "choose an empty destination")
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	w := &Writer{dst: dst, cfg: cfg, tasks: map[string]int64{}, cams: map[string]*outCamera{}, collect: stats.NewCollector(cfg.StatsBudget), looks: map[string]*stats.Pixels{}, known: map[string]*known{}, encoders: make(chan struct{}, cfg.Encoders)}
	var columns []outColumn
	for _, f := range slices.Concat(cfg.Features, Bookkeeping) {
		c := nodeOf(&f)
		wf := writtenFeature{Feature: f, pattern: pqw.Pattern(f.Shape...)}
		if c != nil {
			if f.Default && (f.Key == "episode_index" || f.Key == "task_index") { // one number again and again
				*c = scalarColumn(f.Key, f.DType, true)
			}
			columns = append(columns, *c)
		} else {
			c := &outCamera{feature: f}
			c.chunk, c.file = cfg.Shard.first(cfg.ChunksSize)
			w.cams[f.Key] = c
			w.keys = append(w.keys, f.Key)
		}
		w.feats = append(w.feats, wf)
	}
	w.data = w.newSeries("data", columns)
	leaves := map[string][]*pqw.Leaf{}
	for i, p := range w.data.schema.Columns() {
		leaves[p[0]] = append(leaves[p[0]], w.data.leaves[i])
	}
	for i := range w.feats {
		w.feats[i].leaves = leaves[w.feats[i].Key]
	}
	for _, t := range cfg.Tasks {
		w.task(t)
	}
	w.enterShard()
	w.index = newEpisodesWriter(w)
	return w, nil
}

// task gives the number of a task, a new one where the text is new.
func (w *Writer) task(text string) int64 {
	n, ok := w.tasks[text]
	if !ok {
		if w.cfg.Shard != nil && w.index != nil {
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "write lerobot", Msg: "a task that the plan of the shards does not have", Got: strconv.Quote(text), Hint: "the source names its tasks in its rows alone: convert it in one run"})
		}
		n = int64(len(w.texts))
		w.tasks[text] = n
		w.texts = append(w.texts, text)
	}
	return n
}

// Findings are what the writer noticed: values left out of statistics, frames without statistics. Where names the first episode, Count says how many
// values or episodes.
func (w *Writer) Findings() []robocache.Finding { return w.findings }

// AddEpisode writes one episode.
func (w *Writer) AddEpisode(ctx context.Context, ep EpisodeData) (err error) {
	if w.failed != nil || w.ended {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "the writer has ended", Err: w.failed}
	}
	begun := false // what comes before leaves the writer as it was
	defer func() {
		if err = robocache.At(err, robocache.Where{"episode": w.written}); begun {
			w.failed = err
		}
	}()
	defer guard.Recover("write lerobot", &err)
	w.check(&ep)
	guard.Check(ctx.Err())
	if ep.prepared == nil {
		guard.Check(w.Prepare(ctx, []*EpisodeData{&ep}, w.written)[0])
	}
	p := ep.prepared
	begun = true
	w.hear(p.notes)
	row := &writtenEpisode{index: w.written, length: ep.Length, from: w.rows, tasks: taskTexts(&ep), stats: robocache.Stats{}, videos: map[string]*videoPlace{}}
	w.bookkeeping(&ep, p.columns)
	w.columns(ctx, &ep, p.columns, true)
	var chunks []*pqw.Chunk
	for i := range w.feats {
		chunks = append(chunks, p.columns[i].chunks...)
	}
	w.data.turn(ctx, sizeOf(chunks))
	row.chunk, row.file = w.data.chunk, w.data.file
	w.data.group(ep.Length, chunks)
	w.count(&ep, row)
	for _, key := range w.keys {
		w.addVideo(ctx, w.cams[key], ep.Videos[key], p.parts[key], &ep, row)
	}
	w.pending = append(w.pending, row)
	w.rows += int64(ep.Length)
	w.written++
	w.flush(ctx, false)
	return nil
}

// check refuses what would make a dataset that the reference misreads, before anything is written.
func (w *Writer) check(ep *EpisodeData) {
	if ep.Length <= 0 {
		guard.Fail(misuse(nil, "an episode without rows", "", "", "leave it out: the format has no empty episodes"))
	}
	has := func(key string, n, want int, what string) {
		if n != want {
			guard.Fail(misuse(robocache.Where{"stream": key}, "", what, strconv.Itoa(n), ""))
		}
	}
	if n := len(ep.Tasks); n != 1 {
		has("task", n, ep.Length, fmt.Sprintf("1 or %d task texts", ep.Length))
	}
	for i := range w.feats {
		f := &w.feats[i]
		if f.Default {
			continue
		}
		switch f.Kind {
		case robocache.KindVideo:
			if p := ep.Videos[f.Key]; p.Library == nil && p.Frames == nil {
				guard.Fail(misuse(robocache.Where{"stream": f.Key}, "", "a video part", "none", ""))
			}
		case robocache.KindImage:
			has(f.Key, len(ep.Images[f.Key]), ep.Length, fmt.Sprintf("%d frames", ep.Length))
		case robocache.KindText, robocache.KindEvent:
			has(f.Key, len(ep.Text[f.Key]), ep.Length, fmt.Sprintf("%d texts", ep.Length))
		default:
			n := ep.Length * f.Elements() * f.DType.Size()
			has(f.Key, len(ep.Columns[f.Key]), n, fmt.Sprintf("%d bytes, %d rows of %v %v", n, ep.Length, f.DType, f.Shape))
		}
	}
}

// count adds what was counted of an episode to the dataset's statistics, in the order of its features.
func (w *Writer) count(ep *EpisodeData, row *writtenEpisode) {
	for i := range w.feats {
		f, c := &w.feats[i], &ep.prepared.columns[i]
		if look := ep.FrameStats[f.Key]; f.Kind == robocache.KindImage && look != nil {
			w.countFrames(f.Key, look, row)
		}
		if c.stats == nil {
			continue
		}
		if c.lost > 0 {
			w.find(robocache.SeverityWarning, "non-finite-values", f.Key, w.written, "values that are NaN or infinite take no part in the statistics", c.lost)
		}
		row.stats[f.Key] = c.stats
		guard.Check(robocache.At(w.collect.Add(f.Key, f.DType, f.Shape, c.raw), robocache.Where{"stream": f.Key}))
	}
}

func (w *Writer) find(s robocache.Severity, code, key string, episode int, msg string, count int64) {
	// One finding a code and stream, with the first episode: their number must not follow that of the episodes.
	for i := range w.findings {
		if f := &w.findings[i]; f.Code == code && f.Where["stream"] == key {
			f.Count += max(1, count)
			return
		}
	}
	w.findings = append(w.findings, robocache.Finding{Severity: s, Code: code, Where: robocache.Where{"stream": key, "episode": episode}, Message: msg, Count: max(1, count)})
}

// maxGroups bounds the row groups of a file: Parquet numbers them in 16 bits.
const maxGroups = 1<<15 - 1

// nextFile is the reference's counter: file+1, or file 0 of the next chunk.
func nextFile(chunk, file, size int, what string, in *shardPlace) (int, int, error) {
	if file++; file >= size {
		chunk, file = chunk+1, 0
	}
	if in != nil && chunk*size+file >= in.firstFile+in.files {
		return 0, 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "write lerobot", Want: fmt.Sprintf("%d %s files in a shard", in.files, what), Got: "more", Hint: "raise the size at which files are ended, or plan more shards"}
	}
	if chunk > maxFileNumber {
		return 0, 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "write lerobot", Msg: "over 1000 folders of " + what + " files", Hint: "raise the size at which files are ended"}
	}
	return chunk, file, nil
}

// Close writes what is left, the metadata, and meta/info.json last.
func (w *Writer) Close(ctx context.Context) (err error) {
	if w.ended {
		return nil
	}
	if w.failed != nil {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "an episode failed: the dataset cannot be ended", Err: w.failed}
	}
	defer func() { w.failed = err }()
	defer guard.Recover("write lerobot", &err)
	if w.episodes() == 0 && w.cfg.allowEmpty {
		w.data.abort()
		w.index.abort()
		w.put(ctx, infoName, w.info())
		w.ended = true
		w.release()
		return nil
	}
	if w.episodes() == 0 {
		return misuse(nil, "a dataset without episodes: none of the source has a row", "", "", "the format cannot hold one; robocache doctor says of the source what its episodes lack")
	}
	// Each file waits for the disk: they do so together, beside the counting. info.json comes after all of them.
	var g errgroup.Group
	parts := []func(){w.data.end, func() {
		for _, key := range w.keys {
			w.endVideo(ctx, w.cams[key])
		}
		w.flush(ctx, true)
	}}
	if w.cfg.Shard == nil { // else Merge writes them
		parts = append(parts, func() { w.writeStats(ctx) }, func() { w.writeTexts(ctx) })
	}
	for _, part := range parts {
		g.Go(guard.Func("write lerobot", part))
	}
	guard.Check(g.Wait())
	if w.cfg.PartsDir != "" {
		guard.Check(robocache.At(os.RemoveAll(w.cfg.PartsDir), robocache.Where{"file": w.cfg.PartsDir}))
	}
	if w.cfg.Shard == nil {
		w.put(ctx, "meta/info.json", w.info())
	}
	w.ended = true
	w.release()
	return nil
}

// Abort gives the dataset up and removes every file that was made. After Close it does nothing.
func (w *Writer) Abort() { w.stop(false) }

// stop gives the dataset up; where keep says so, finished files stay for a resumed run.
func (w *Writer) stop(keep bool) {
	if w.ended {
		return
	}
	w.ended = true
	w.data.abort()
	w.index.abort()
	if !keep {
		// Without the caller's context: it may be the one that ended.
		for _, f := range w.files {
			_ = w.dst.Remove(context.Background(), f)
		}
		if w.cfg.PartsDir != "" {
			_ = os.RemoveAll(w.cfg.PartsDir)
		}
	}
	w.release()
}

func (w *Writer) release() {
	w.collect.Close()
	for _, c := range w.cams {
		w.closeTemp(c.parts)
	}
	if w.tempStore != nil {
		_ = store.Close(w.tempStore)
	}
	if w.temp != "" && w.cfg.PartsDir == "" {
		_ = os.RemoveAll(w.temp)
	}
}

// begin remembers a file for Abort.
func (w *Writer) begin(name string) {
	w.fileMu.Lock()
	defer w.fileMu.Unlock()
	w.files = append(w.files, name)
}

// put writes one small file.
func (w *Writer) put(ctx context.Context, name string, data []byte) {
	guard.Check(ctx.Err())
	w.begin(path.Clean(name))
	guard.Check(store.Put(ctx, w.dst, name, data))
}
