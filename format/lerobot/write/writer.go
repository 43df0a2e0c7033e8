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
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// Writer writes a dataset, episode after episode, by one goroutine at a time. See the contract of
// the package.
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
	defer crash.Recover("write lerobot", &err)
	cfg.Features = slices.Clone(cfg.Features)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if _, err := dst.Stat(ctx, "meta/info.json"); err == nil {
		return nil, misuse(
			robocache.Where{"dataset": dst.URI()},
			"there is a dataset here already",
			"",
			"",
			"choose an empty destination",
		)
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	w := &Writer{
		dst:      dst,
		cfg:      cfg,
		tasks:    map[string]int64{},
		cams:     map[string]*outCamera{},
		collect:  stats.NewCollector(cfg.StatsBudget),
		looks:    map[string]*stats.Pixels{},
		known:    map[string]*known{},
		encoders: make(chan struct{}, cfg.Encoders),
	}
	var columns []outColumn
	for _, f := range slices.Concat(cfg.Features, Bookkeeping) {
		c, err := nodeOf(&f)
		if err != nil {
			return nil, err
		}
		wf := writtenFeature{Feature: f, pattern: pqw.Pattern(f.Shape...)}
		if c != nil {
			// one number again and again
			if f.Default && (f.Key == "episode_index" || f.Key == "task_index") {
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
	if w.data, err = w.newSeries("data", columns); err != nil {
		return nil, err
	}
	leaves := map[string][]*pqw.Leaf{}
	for i, p := range w.data.schema.Columns() {
		leaves[p[0]] = append(leaves[p[0]], w.data.leaves[i])
	}
	for i := range w.feats {
		w.feats[i].leaves = leaves[w.feats[i].Key]
	}
	for _, t := range cfg.Tasks {
		if _, err := w.task(t); err != nil {
			return nil, err
		}
	}
	w.enterShard()
	if w.index, err = newEpisodesWriter(w); err != nil {
		return nil, err
	}
	return w, nil
}

// task gives the number of a task, a new one where the text is new.
func (w *Writer) task(text string) (int64, error) {
	n, ok := w.tasks[text]
	if !ok {
		if w.cfg.Shard != nil && w.index != nil {
			return 0, robocache.Unsupported("write lerobot", nil, "a task that the plan of the shards does not have").
				Expected("", strconv.Quote(text)).
				WithHint("the source names its tasks in its rows alone: convert it in one run")
		}
		n = int64(len(w.texts))
		w.tasks[text] = n
		w.texts = append(w.texts, text)
	}
	return n, nil
}

// Findings are what the writer noticed: values left out of statistics, frames without statistics.
// Where names the first episode, Count says how many values or episodes.
func (w *Writer) Findings() []robocache.Finding { return w.findings }

// AddEpisode writes one episode.
func (w *Writer) AddEpisode(ctx context.Context, ep EpisodeData) (err error) {
	if w.failed != nil || w.ended {
		return robocache.Misuse("write lerobot", nil, "the writer has ended").WithCause(w.failed)
	}
	begun := false // what comes before leaves the writer as it was
	defer func() {
		if err = robocache.At(err, robocache.Where{"episode": w.written}); begun {
			w.failed = err
		}
	}()
	defer crash.Recover("write lerobot", &err)
	if err := w.check(&ep); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if ep.prepared == nil {
		if err := w.Prepare(ctx, []*EpisodeData{&ep}, w.written)[0]; err != nil {
			return err
		}
	}
	p := ep.prepared
	begun = true
	w.hear(p.notes)
	row := &writtenEpisode{
		index:  w.written,
		length: ep.Length,
		from:   w.rows,
		tasks:  taskTexts(&ep),
		stats:  robocache.Stats{},
		videos: map[string]*videoPlace{},
	}
	if err := w.bookkeeping(&ep, p.columns); err != nil {
		return err
	}
	if err := w.columns(ctx, &ep, p.columns, true); err != nil {
		return err
	}
	var chunks []*pqw.Chunk
	for i := range w.feats {
		chunks = append(chunks, p.columns[i].chunks...)
	}
	if err := w.data.turn(ctx, sizeOf(chunks)); err != nil {
		return err
	}
	row.chunk, row.file = w.data.chunk, w.data.file
	if err := w.data.group(ep.Length, chunks); err != nil {
		return err
	}
	if err := w.count(&ep, row); err != nil {
		return err
	}
	for _, key := range w.keys {
		if err := w.addVideo(ctx, w.cams[key], ep.Videos[key], p.parts[key], &ep, row); err != nil {
			return err
		}
	}
	w.pending = append(w.pending, row)
	w.rows += int64(ep.Length)
	w.written++
	if err := w.flush(ctx, false); err != nil {
		return err
	}
	return nil
}

// check refuses what would make a dataset that the reference misreads, before anything is written.
func (w *Writer) check(ep *EpisodeData) error {
	if ep.Length <= 0 {
		return misuse(
			nil,
			"an episode without rows",
			"",
			"",
			"leave it out: the format has no empty episodes",
		)
	}
	has := func(key string, n, want int, what string) error {
		if n != want {
			return misuse(robocache.Where{"stream": key}, "", what, strconv.Itoa(n), "")
		}
		return nil
	}
	if n := len(ep.Tasks); n != 1 {
		if err := has(
			"task",
			n,
			ep.Length,
			fmt.Sprintf("1 or %d task texts", ep.Length),
		); err != nil {
			return err
		}
	}
	for i := range w.feats {
		f := &w.feats[i]
		if f.Default {
			continue
		}
		switch f.Kind {
		case robocache.KindVideo:
			if p := ep.Videos[f.Key]; p.Library == nil && p.Frames == nil {
				return misuse(robocache.Where{"stream": f.Key}, "", "a video part", "none", "")
			}
		case robocache.KindImage:
			if err := has(
				f.Key,
				len(ep.Images[f.Key]),
				ep.Length,
				fmt.Sprintf("%d frames", ep.Length),
			); err != nil {
				return err
			}
		case robocache.KindText, robocache.KindEvent:
			if err := has(
				f.Key,
				len(ep.Text[f.Key]),
				ep.Length,
				fmt.Sprintf("%d texts", ep.Length),
			); err != nil {
				return err
			}
		default:
			n := ep.Length * f.Elements() * f.DType.Size()
			if err := has(
				f.Key,
				len(ep.Columns[f.Key]),
				n,
				fmt.Sprintf("%d bytes, %d rows of %v %v", n, ep.Length, f.DType, f.Shape),
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// count adds what was counted of an episode to the dataset's statistics, in the order of its
// features.
func (w *Writer) count(ep *EpisodeData, row *writtenEpisode) error {
	for i := range w.feats {
		f, c := &w.feats[i], &ep.prepared.columns[i]
		if look := ep.FrameStats[f.Key]; f.Kind == robocache.KindImage && look != nil {
			w.countFrames(f.Key, look, row)
		}
		if c.stats == nil {
			continue
		}
		if c.lost > 0 {
			w.find(
				robocache.SeverityWarning,
				"non-finite-values",
				f.Key,
				w.written,
				"values that are NaN or infinite take no part in the statistics",
				c.lost,
			)
		}
		row.stats[f.Key] = c.stats
		if err := robocache.At(
			w.collect.Add(f.Key, f.DType, f.Shape, c.raw),
			robocache.Where{"stream": f.Key},
		); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) find(
	s robocache.Severity,
	code, key string,
	episode int,
	msg string,
	count int64,
) {
	// One finding a code and stream, with the first episode: their number must not follow that of
	// the episodes.
	for i := range w.findings {
		if f := &w.findings[i]; f.Code == code && f.Where["stream"] == key {
			f.Count += max(1, count)
			return
		}
	}
	w.findings = append(
		w.findings,
		robocache.Finding{
			Severity: s,
			Code:     code,
			Where:    robocache.Where{"stream": key, "episode": episode},
			Message:  msg,
			Count:    max(1, count),
		},
	)
}

// maxGroups bounds the row groups of a file: Parquet numbers them in 16 bits.
const maxGroups = 1<<15 - 1

// nextFile is the reference's counter: file+1, or file 0 of the next chunk.
func nextFile(chunk, file, size int, what string, in *shardPlace) (int, int, error) {
	if file++; file >= size {
		chunk, file = chunk+1, 0
	}
	if in != nil && chunk*size+file >= in.firstFile+in.files {
		return 0, 0, robocache.ResourceLimit("write lerobot", nil, "").
			Expected(fmt.Sprintf("%d %s files in a shard", in.files, what), "more").
			WithHint("raise the size at which files are ended, or plan more shards")
	}
	if chunk > maxFileNumber {
		return 0, 0, robocache.ResourceLimit("write lerobot", nil, "over 1000 folders of %s files", what).
			WithHint("raise the size at which files are ended")
	}
	return chunk, file, nil
}

// Close writes what is left, the metadata, and meta/info.json last.
func (w *Writer) Close(ctx context.Context) (err error) {
	if w.ended {
		return nil
	}
	if w.failed != nil {
		return robocache.Misuse("write lerobot", nil, "an episode failed: the dataset cannot be ended").
			WithCause(w.failed)
	}
	defer func() { w.failed = err }()
	defer crash.Recover("write lerobot", &err)
	if w.episodes() == 0 && w.cfg.allowEmpty {
		w.data.abort()
		w.index.abort()
		info, err := w.info()
		if err != nil {
			return err
		}
		if err := w.put(ctx, infoName, info); err != nil {
			return err
		}
		w.ended = true
		w.release()
		return nil
	}
	if w.episodes() == 0 {
		return misuse(
			nil,
			"a dataset without episodes: none of the source has a row",
			"",
			"",
			"the format cannot hold one; robocache doctor says of the source what its episodes lack",
		)
	}
	// Each file waits for the disk: they do so together, beside the counting. info.json comes after
	// all of them.
	var g errgroup.Group
	parts := []func() error{w.data.end, func() error {
		for _, key := range w.keys {
			if err := w.endVideo(ctx, w.cams[key]); err != nil {
				return err
			}
		}
		return w.flush(ctx, true)
	}}
	if w.cfg.Shard == nil { // else Merge writes them
		parts = append(
			parts,
			func() error { return w.writeStats(ctx) },
			func() error { return w.writeTexts(ctx) },
		)
	}
	for _, part := range parts {
		g.Go(crash.Func("write lerobot", part))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if w.cfg.PartsDir != "" {
		if err := robocache.At(
			os.RemoveAll(w.cfg.PartsDir),
			robocache.Where{"file": w.cfg.PartsDir},
		); err != nil {
			return err
		}
	}
	if w.cfg.Shard == nil {
		info, err := w.info()
		if err != nil {
			return err
		}
		if err := w.put(ctx, "meta/info.json", info); err != nil {
			return err
		}
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
func (w *Writer) put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.begin(path.Clean(name))
	return store.Put(ctx, w.dst, name, data)
}
