package write

import (
	"bytes"
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

// Writer writes a dataset, one episode after the other. Its methods may be called by one goroutine
// at a time. The package comment has its contract.
type Writer struct {
	dst           store.Writable
	cfg           Config
	journal       *journal // set if the conversion can be resumed
	features      []writtenFeature
	data          *tableSeries
	tasks         map[string]int64
	texts         []string
	rows          int64
	pending       []*writtenEpisode
	completeCount int // how many episodes at the head of pending are complete
	written       int
	index         episodeTable
	cameras       map[string]*outCamera
	cameraKeys    []string // keys of cameras, in the order of the features
	collector     *stats.Collector
	pixels        map[string]*stats.Pixels
	known         map[string]*knownStats
	encoders      chan struct{} // one element per running encoder
	tempMu        sync.Mutex
	tempDir       string // folder of encoded episodes
	tempStore     store.Store
	fileMu        sync.Mutex
	files         []string // started, so that Abort can remove them
	failed        error
	ended         bool

	findings []robocache.Finding
}

// writtenFeature is a feature with its columns in the data files.
type writtenFeature struct {
	robocache.Feature
	leaves     []*pqw.Leaf
	repetition []byte // repetition levels of a row
}

// NewWriter begins a dataset in a store that holds no dataset yet.
func NewWriter(ctx context.Context, dst store.Writable, cfg Config) (_ *Writer, err error) {
	defer crash.Recover("write lerobot", &err)
	cfg.Features = slices.Clone(cfg.Features)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	_, err = dst.Stat(ctx, infoName)
	if err == nil {
		return nil, misuse(
			robocache.Where{"dataset": dst.URI()},
			"there is a dataset here already",
			"",
			"",
			"choose an empty destination",
		)
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	w := &Writer{
		dst:       dst,
		cfg:       cfg,
		tasks:     map[string]int64{},
		cameras:   map[string]*outCamera{},
		collector: stats.NewCollector(cfg.StatsBudget),
		pixels:    map[string]*stats.Pixels{},
		known:     map[string]*knownStats{},
		encoders:  make(chan struct{}, cfg.Encoders),
	}
	if err := w.openColumns(); err != nil {
		return nil, err
	}
	for _, t := range cfg.Tasks {
		if _, err := w.taskNumber(t); err != nil {
			return nil, err
		}
	}
	w.enterShard()
	if cfg.perEpisode() {
		w.index = &episodeLines{writer: w}
	} else if w.index, err = newEpisodesWriter(w); err != nil {
		return nil, err
	}
	return w, nil
}

// openColumns sets the features, cameras and data columns of the dataset.
func (w *Writer) openColumns() (err error) {
	var columns []outColumn
	for _, f := range slices.Concat(w.cfg.Features, Bookkeeping) {
		column, err := nodeOf(&f)
		if err != nil {
			return err
		}
		w.features = append(w.features, writtenFeature{
			Feature:    f,
			repetition: pqw.Pattern(f.Shape...),
		})
		if column == nil { // video has no column
			camera := &outCamera{feature: f}
			camera.chunk, camera.file = w.cfg.Shard.firstChunk(w.cfg.ChunksSize)
			w.cameras[f.Key] = camera
			w.cameraKeys = append(w.cameraKeys, f.Key)
			continue
		}
		isConstant := f.Key == "episode_index" || f.Key == "task_index" // within an episode
		if f.Default && isConstant {
			*column = scalarColumn(f.Key, f.DType, true)
		}
		if w.cfg.perEpisode() { // readers of v2.1 do not know the type List
			column.hf = bytes.ReplaceAll(column.hf, []byte(`"List"`), []byte(`"Sequence"`))
		}
		columns = append(columns, *column)
	}
	if w.data, err = w.newSeries("data", columns); err != nil {
		return err
	}
	leaves := map[string][]*pqw.Leaf{}
	for i, p := range w.data.schema.Columns() {
		leaves[p[0]] = append(leaves[p[0]], w.data.leaves[i])
	}
	for i := range w.features {
		w.features[i].leaves = leaves[w.features[i].Key]
	}
	return nil
}

// taskNumber returns the number of a task. A new text gets the next number.
func (w *Writer) taskNumber(text string) (int64, error) {
	n, ok := w.tasks[text]
	if !ok {
		// The index is nil while NewWriter adds the tasks of the plan.
		if w.cfg.Shard != nil && w.index != nil {
			return 0, robocache.Unsupported(
				"write lerobot",
				nil,
				"a task that the plan of the shards does not have",
			).Expected("", strconv.Quote(text)).
				WithHint("the source names its tasks only in its rows: convert it in one run")
		}
		n = int64(len(w.texts))
		w.tasks[text] = n
		w.texts = append(w.texts, text)
	}
	return n, nil
}

// Findings returns what the writer noticed, such as values left out of statistics and frames
// without statistics. Where names the first episode, and Count is the number of values or episodes.
func (w *Writer) Findings() []robocache.Finding { return w.findings }

// AddEpisode writes one episode. An error before the first byte is written leaves the writer
// unchanged. After any other error, only Abort may be called.
func (w *Writer) AddEpisode(ctx context.Context, ep EpisodeData) (err error) {
	if w.failed != nil || w.ended {
		return robocache.Misuse("write lerobot", nil, "the writer has ended").WithCause(w.failed)
	}
	begun := false // an error after this is set makes the writer unusable
	defer func() {
		err = robocache.At(err, robocache.Where{"episode": w.written})
		if begun {
			w.failed = err
		}
	}()
	defer crash.Recover("write lerobot", &err)
	if err := w.checkEpisode(&ep); err != nil {
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
	prepared := ep.prepared
	begun = true
	w.reportNotes(prepared.notes)
	row := &writtenEpisode{
		index:  w.written,
		length: ep.Length,
		from:   w.rows,
		tasks:  taskTexts(&ep),
		stats:  robocache.Stats{},
		videos: map[string]*videoPlace{},
	}
	if err := w.fillBookkeeping(&ep, prepared.columns); err != nil {
		return err
	}
	if err := w.prepareFeatures(ctx, &ep, prepared.columns, true); err != nil {
		return err
	}
	var chunks []*pqw.Chunk
	for i := range w.features {
		chunks = append(chunks, prepared.columns[i].chunks...)
	}
	if err := w.data.startGroup(ctx, groupBytes(chunks)); err != nil {
		return err
	}
	row.chunk, row.file = w.data.chunk, w.data.file
	if err := w.data.writeGroup(ep.Length, chunks); err != nil {
		return err
	}
	if err := w.countEpisode(&ep, row); err != nil {
		return err
	}
	for _, key := range w.cameraKeys {
		err := w.addVideo(ctx, w.cameras[key], ep.Videos[key], prepared.parts[key], &ep, row)
		if err != nil {
			return err
		}
	}
	w.pending = append(w.pending, row)
	w.rows += int64(ep.Length)
	w.written++
	return w.flushEpisodes(ctx, false)
}

// checkEpisode rejects an episode that LeRobot would misread, before anything is written.
func (w *Writer) checkEpisode(ep *EpisodeData) error {
	if ep.Length <= 0 {
		return misuse(
			nil,
			"an episode without rows",
			"",
			"",
			"leave it out: the format has no empty episodes",
		)
	}
	checkCount := func(key string, n, want int, expected string) error {
		if n != want {
			return misuse(robocache.Where{"stream": key}, "", expected, strconv.Itoa(n), "")
		}
		return nil
	}
	if n := len(ep.Tasks); n != 1 {
		err := checkCount("task", n, ep.Length, fmt.Sprintf("1 or %d task texts", ep.Length))
		if err != nil {
			return err
		}
	}
	for i := range w.features {
		f := &w.features[i]
		if f.Default {
			continue
		}
		switch f.Kind {
		case robocache.KindVideo:
			if p := ep.Videos[f.Key]; p.Library == nil && p.Frames == nil {
				return misuse(robocache.Where{"stream": f.Key}, "", "a video part", "none", "")
			}
		case robocache.KindImage:
			expected := fmt.Sprintf("%d frames", ep.Length)
			if err := checkCount(f.Key, len(ep.Images[f.Key]), ep.Length, expected); err != nil {
				return err
			}
		case robocache.KindText, robocache.KindEvent:
			expected := fmt.Sprintf("%d texts", ep.Length)
			if err := checkCount(f.Key, len(ep.Text[f.Key]), ep.Length, expected); err != nil {
				return err
			}
		default:
			n := ep.Length * f.Elements() * f.DType.Size()
			expected := fmt.Sprintf("%d bytes, %d rows of %v %v", n, ep.Length, f.DType, f.Shape)
			if err := checkCount(f.Key, len(ep.Columns[f.Key]), n, expected); err != nil {
				return err
			}
		}
	}
	return nil
}

// countEpisode adds the statistics of an episode to those of the dataset, in the order of its
// features.
func (w *Writer) countEpisode(ep *EpisodeData, row *writtenEpisode) error {
	for i := range w.features {
		f := &w.features[i]
		column := &ep.prepared.columns[i]
		if pixels := ep.FrameStats[f.Key]; f.Kind == robocache.KindImage && pixels != nil {
			w.countFrames(f.Key, pixels, row)
		}
		if column.stats == nil {
			continue
		}
		if column.nonFinite > 0 {
			w.addFinding(
				robocache.SeverityWarning,
				"non-finite-values",
				f.Key,
				w.written,
				"values that are NaN or infinite are left out of the statistics",
				column.nonFinite,
			)
		}
		row.stats[f.Key] = column.stats
		if err := robocache.At(w.collector.Add(f.Key, f.DType, f.Shape, column.raw),
			robocache.Where{"stream": f.Key}); err != nil {
			return err
		}
	}
	return nil
}

// addFinding adds a finding, or counts it if one with the same code and stream exists.
func (w *Writer) addFinding(
	s robocache.Severity,
	code, key string,
	episode int,
	msg string,
	count int64,
) {
	// One finding per code and stream, with the first episode. The number of findings must not grow
	// with the number of episodes.
	for i := range w.findings {
		if f := &w.findings[i]; f.Code == code && f.Where["stream"] == key {
			f.Count += max(1, count)
			return
		}
	}
	w.findings = append(w.findings, robocache.Finding{
		Severity: s,
		Code:     code,
		Where:    robocache.Where{"stream": key, "episode": episode},
		Message:  msg,
		Count:    max(1, count),
	})
}

// maxGroups bounds the row groups of a file, because Parquet numbers them in 16 bits.
const maxGroups = 1<<15 - 1

// nextFile returns file+1, or file 0 of the next chunk, as lerobot counts. what names the kind of
// file in errors. in is the shard whose numbers may be used, or nil.
func nextFile(chunk, file, size int, what string, in *shardPlace) (int, int, error) {
	file++
	if file >= size {
		chunk++
		file = 0
	}
	if in != nil && chunk*size+file >= in.firstFile+in.files {
		return 0, 0, robocache.ResourceLimit("write lerobot", nil, "").
			Expected(fmt.Sprintf("%d %s files in a shard", in.files, what), "more").
			WithHint("raise the size at which files are ended, or plan more shards")
	}
	if chunk > maxFileNumber {
		return 0, 0, robocache.ResourceLimit(
			"write lerobot",
			nil,
			"over 1000 folders of %s files",
			what,
		).WithHint("raise the size at which files are ended")
	}
	return chunk, file, nil
}

// Close writes the remaining episodes and the metadata, with meta/info.json last.
func (w *Writer) Close(ctx context.Context) (err error) {
	if w.ended {
		return nil
	}
	if w.failed != nil {
		return robocache.Misuse(
			"write lerobot",
			nil,
			"an episode failed, so the dataset cannot be completed",
		).WithCause(w.failed)
	}
	defer func() { w.failed = err }()
	defer crash.Recover("write lerobot", &err)
	isEmpty := w.episodeCount() == 0
	switch {
	case isEmpty && w.cfg.allowEmpty:
		w.data.abortFile()
		w.index.abortFile()
	case isEmpty:
		return misuse(
			nil,
			"no episode has a row, and LeRobot cannot store a dataset without episodes",
			"",
			"",
			"Run robocache doctor on the source to see why its episodes are empty.",
		)
	default:
		if err := w.endFiles(ctx); err != nil {
			return err
		}
	}
	if w.cfg.Shard == nil || isEmpty {
		info, err := w.infoText()
		if err != nil {
			return err
		}
		if err := w.putFile(ctx, infoName, info); err != nil {
			return err
		}
	}
	w.ended = true
	w.releaseAll()
	return nil
}

// endFiles writes the remaining episodes and all files except info.json. Each file waits for the
// disk, so they are closed concurrently, while the statistics are computed.
func (w *Writer) endFiles(ctx context.Context) error {
	var g errgroup.Group
	parts := []func() error{w.data.endFile, func() error {
		for _, key := range w.cameraKeys {
			if err := w.endVideo(ctx, w.cameras[key]); err != nil {
				return err
			}
		}
		return w.flushEpisodes(ctx, true)
	}}
	if w.cfg.Shard == nil { // otherwise mergeShards writes them
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
	if w.cfg.PartsDir == "" {
		return nil
	}
	return robocache.At(os.RemoveAll(w.cfg.PartsDir), robocache.Where{"file": w.cfg.PartsDir})
}

// Abort abandons the dataset and removes every file of it. After Close it does nothing.
func (w *Writer) Abort() { w.stopWriting(false) }

// stopWriting abandons the dataset. If keep is true, finished files remain for a resumed run.
func (w *Writer) stopWriting(keep bool) {
	if w.ended {
		return
	}
	w.ended = true
	w.data.abortFile()
	w.index.abortFile()
	if !keep {
		// The caller's context may have been canceled, so this uses its own.
		for _, f := range w.files {
			_ = w.dst.Remove(context.Background(), f)
		}
		if w.cfg.PartsDir != "" {
			_ = os.RemoveAll(w.cfg.PartsDir)
		}
	}
	w.releaseAll()
}

// releaseAll removes temporary files and releases memory.
func (w *Writer) releaseAll() {
	w.collector.Close()
	for _, c := range w.cameras {
		w.closeTemp(c.parts)
	}
	if w.tempStore != nil {
		_ = store.Close(w.tempStore)
	}
	if w.tempDir != "" && w.cfg.PartsDir == "" {
		_ = os.RemoveAll(w.tempDir)
	}
}

// recordFile records a file that Abort must remove.
func (w *Writer) recordFile(name string) {
	w.fileMu.Lock()
	defer w.fileMu.Unlock()
	w.files = append(w.files, name)
}

// putFile writes one small file.
func (w *Writer) putFile(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.recordFile(path.Clean(name))
	return store.Put(ctx, w.dst, name, data)
}
