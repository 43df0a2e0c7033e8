package write

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// Writer writes a dataset, episode after episode, by one goroutine at a time. See the contract of the package.
type Writer struct {
	dst       store.Writable
	cfg       Config
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
	defer guard.Malformed("write lerobot", &err)
	cfg.Features = append([]robocache.Feature(nil), cfg.Features...)
	guard.Check(cfg.validate())
	if _, err := dst.Stat(ctx, "meta/info.json"); err == nil {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Where: robocache.Where{"dataset": dst.URI()}, Msg: "there is a dataset here already", Hint: "choose an empty destination"}
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	w := &Writer{dst: dst, cfg: cfg, tasks: map[string]int64{}, cams: map[string]*outCamera{}, collect: stats.NewCollector(cfg.StatsBudget), looks: map[string]*stats.Pixels{}, encoders: make(chan struct{}, cfg.Encoders)}
	var columns []outColumn
	for _, f := range append(append([]robocache.Feature(nil), cfg.Features...), Bookkeeping...) {
		c := guard.Must(nodeOf(&f))
		wf := writtenFeature{Feature: f, pattern: pqw.Pattern(f.Shape...)}
		if c != nil {
			if f.Default && (f.Key == "episode_index" || f.Key == "task_index") { // one number again and again
				*c = scalarColumn(f.Key, f.DType, true)
			}
			columns = append(columns, *c)
		} else {
			w.cams[f.Key] = newCamera(f)
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
	w.index = newEpisodesWriter(w)
	return w, nil
}

// task gives the number of a task, a new one where the text is new.
func (w *Writer) task(text string) int64 {
	n, ok := w.tasks[text]
	if !ok {
		n = int64(len(w.texts))
		w.tasks[text] = n
		w.texts = append(w.texts, text)
	}
	return n
}

// Episodes is the number of episodes taken so far; Frames that of rows.
func (w *Writer) Episodes() int { return w.written }
func (w *Writer) Frames() int64 { return w.rows }

// Failed is the error that ended the writer (W5); nil while it takes episodes.
func (w *Writer) Failed() error { return w.failed }

// Findings are what the writer noticed: values left out of statistics, frames without statistics. Where names the first episode, Count says how many
// values or episodes.
func (w *Writer) Findings() []robocache.Finding { return w.findings }

// AddEpisode writes one episode.
func (w *Writer) AddEpisode(ctx context.Context, ep EpisodeData) (err error) {
	if w.failed != nil || w.ended {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "the writer has ended", Err: w.failed}
	}
	if err := w.check(&ep); err != nil {
		return robocache.At(err, robocache.Where{"episode": w.written})
	}
	begun := false // what comes before leaves the writer as it was
	defer func() {
		if err != nil {
			err = robocache.At(err, robocache.Where{"episode": w.written})
			if begun {
				w.failed = err
			}
		}
	}()
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
	row := &writtenEpisode{index: w.written, length: ep.Length, from: w.rows, tasks: taskTexts(&ep), stats: robocache.Stats{}, videos: map[string]*videoPlace{}}
	w.bookkeeping(&ep, p.columns)
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
			return robocache.At(err, robocache.Where{"stream": key})
		}
	}
	w.pending = append(w.pending, row)
	w.rows += int64(ep.Length)
	w.written++
	return w.flush(ctx, false)
}

// check refuses what would make a dataset that the reference misreads, before anything is written.
func (w *Writer) check(ep *EpisodeData) error {
	if ep.Length <= 0 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "an episode without rows", Hint: "leave it out: the format has no empty episodes"}
	}
	wrong := func(key, want string, got any) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Where: robocache.Where{"stream": key}, Want: want, Got: fmt.Sprint(got)}
	}
	if n := len(ep.Tasks); n != 1 && n != ep.Length {
		return wrong("task", fmt.Sprintf("1 or %d task texts", ep.Length), n)
	}
	for i := range w.feats {
		f := &w.feats[i]
		if f.Default {
			continue
		}
		switch f.Kind {
		case robocache.KindVideo:
			p, ok := ep.Videos[f.Key]
			if !ok || p.Library == nil && p.Frames == nil {
				return wrong(f.Key, "a video part", "none")
			}
		case robocache.KindImage:
			if n := len(ep.Images[f.Key]); n != ep.Length {
				return wrong(f.Key, fmt.Sprintf("%d frames", ep.Length), n)
			}
		case robocache.KindText, robocache.KindEvent:
			if n := len(ep.Text[f.Key]); n != ep.Length {
				return wrong(f.Key, fmt.Sprintf("%d texts", ep.Length), n)
			}
		default:
			if n := len(ep.Columns[f.Key]); n != ep.Length*f.Elements()*f.DType.Size() {
				return wrong(f.Key, fmt.Sprintf("%d bytes, %d rows of %v %v", ep.Length*f.Elements()*f.DType.Size(), ep.Length, f.DType, f.Shape), n)
			}
		}
	}
	return nil
}

// count adds what was counted of an episode to the dataset's statistics, in the order of its features.
func (w *Writer) count(ep *EpisodeData, row *writtenEpisode) error {
	for i := range w.feats {
		f, c := &w.feats[i], &ep.prepared.columns[i]
		if f.Kind == robocache.KindImage {
			if look := ep.FrameStats[f.Key]; look != nil {
				if fs := look.Stats(); fs != nil {
					row.stats[f.Key] = fs
					w.countFrames(f.Key, look)
				}
			}
		}
		if c.stats == nil {
			continue
		}
		if c.lost > 0 {
			w.find(robocache.SeverityWarning, "non-finite-values", f.Key, w.written, "values that are NaN or infinite take no part in the statistics", c.lost)
		}
		row.stats[f.Key] = c.stats
		if err := w.collect.Add(f.Key, f.DType, f.Shape, c.raw); err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
	}
	return nil
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
func nextFile(chunk, file, size int, what string) (int, int, error) {
	if file++; file >= size {
		chunk, file = chunk+1, 0
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
	defer func() {
		if err != nil {
			w.failed = err
		}
	}()
	if w.written == 0 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "a dataset without episodes: none of the source has a row", Hint: "the format cannot hold one; robocache doctor says of the source what its episodes lack"}
	}
	// Each file waits for the disk: they do so together, beside the counting. info.json comes after all of them.
	var g errgroup.Group
	part := func(f func() error) {
		g.Go(func() (err error) {
			defer guard.Malformed("write lerobot", &err)
			return f()
		})
	}
	part(func() error { return w.writeStats(ctx) })
	part(func() error { return w.writeTexts(ctx) })
	part(w.data.end)
	part(func() error {
		for _, key := range w.keys {
			if err := w.endVideo(ctx, w.cams[key]); err != nil {
				return robocache.At(err, robocache.Where{"stream": key})
			}
		}
		return w.flush(ctx, true)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if w.cfg.PartsDir != "" {
		if err := os.RemoveAll(w.cfg.PartsDir); err != nil {
			return robocache.At(err, robocache.Where{"file": w.cfg.PartsDir})
		}
	}
	info, err := w.info()
	if err != nil {
		return err
	}
	if err := w.put(ctx, "meta/info.json", info); err != nil {
		return err
	}
	w.ended = true
	w.release()
	return nil
}

// Abort gives the dataset up and removes every file that was made. After Close it does nothing.
func (w *Writer) Abort() { w.stop(false) }

// Stop gives the dataset up, but leaves finished files for a resumed run.
func (w *Writer) Stop() { w.stop(true) }

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
	f, err := w.dst.Create(ctx, name)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": name})
	}
	if _, err := f.Write(data); err != nil {
		f.Abort()
		return robocache.At(err, robocache.Where{"file": name})
	}
	return robocache.At(f.Commit(), robocache.Where{"file": name})
}
