package write

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Write writes a dataset whose streams share one grid as LeRobot v3.0. dst is a path or a writable
// URI. WriteReport.Own is a *Report.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	return writeBy(ctx, src, opt, func(c *conversion) error { return c.writeTo(ctx, dst) })
}

// WriteStore does the same as Write, into an empty store.
func WriteStore(
	ctx context.Context,
	src robocache.Dataset,
	dst store.Writable,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	return writeBy(ctx, src, opt, func(c *conversion) error { return c.writeJournaled(ctx, dst) })
}

// writeBy plans a conversion, executes it with run, and returns its report.
func writeBy(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
	run func(*conversion) error,
) (_ *robocache.WriteReport, err error) {
	defer crash.Recover("convert", &err)
	c, err := newConversion(ctx, src, opt)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := run(c); err != nil {
		return nil, err
	}
	r := c.report
	out := &robocache.WriteReport{
		Episodes: r.NumEpisodes,
		Frames:   r.NumFrames,
		Dropped:  r.Dropped,
		Findings: r.Findings,
		Own:      r,
		Summary:  c.summary,
	}
	for _, e := range r.Episodes {
		if e.New < 0 {
			out.LeftOut++
		}
	}
	return out, nil
}

// writeTo runs the conversion to a path or URI.
func (c *conversion) writeTo(ctx context.Context, dst string) error {
	if c.options.DryRun {
		c.report.DryRun = true
		return c.dryRun(ctx)
	}
	if dst == "" {
		return destinationError(dst, "no destination", "")
	}
	target, err := store.OpenWritable(dst)
	if err != nil {
		return err
	}
	defer store.Close(target)
	isWhole, err := checkDestination(ctx, target, dst, c.options.Resume)
	if err != nil {
		return err
	}
	if path, ok := store.LocalPath(dst); ok && c.options.Resume {
		c.partsDir = filepath.Join(path, partsName)
	}
	if isWhole {
		return c.finishResumed(ctx, target)
	}
	return c.writeJournaled(ctx, target)
}

// newConversion plans a conversion.
func newConversion(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (c *conversion, err error) {
	c = &conversion{
		src: src,
		report: &Report{
			Renamed:  map[string]string{},
			Episodes: []EpisodeMap{},
			Tasks:    []TaskMap{},
			Added:    []string{},
			Dropped:  []string{},
			Findings: []robocache.Finding{},
		},
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	defer crash.Recover("convert", &err)
	if c.options, err = parseOptions(opt); err != nil {
		return c, err
	}
	c.origins = origin.NewTracer(src, opt)
	if err := c.planConversion(ctx); err != nil {
		return c, err
	}
	return c, nil
}

// close releases the decoders.
func (c *conversion) close() {
	if c.frameCounter != nil {
		c.frameCounter.Close()
		c.pool.Close()
	}
}

// writeJournaled runs the conversion with its journal in the destination. An attempt to write a
// shard has no journal, because another attempt starts from the beginning.
func (c *conversion) writeJournaled(ctx context.Context, target store.Writable) error {
	if c.options.Shard != nil {
		return c.writeDataset(ctx, target, nil)
	}
	j, err := openJournal(ctx, target, c.identity(), c.options.Resume)
	if err == nil {
		err = crash.Func("convert", func() error { return c.writeDataset(ctx, target, j) })()
	}
	if err == nil {
		return target.Remove(ctx, journalName)
	}
	if j == nil {
		return err
	}
	// The journal stays only if a later run can resume and finds finished files. The caller's
	// context may have been canceled, so the removal uses its own.
	bg := context.Background()
	if !c.options.Resume || holdsOnlyJournal(bg, target) {
		_ = target.Remove(bg, journalName)
	}
	return err
}

// finishResumed completes a run that was killed after it had written everything but before it
// removed its journal.
func (c *conversion) finishResumed(ctx context.Context, target store.Writable) error {
	if _, err := openJournal(ctx, target, c.identity(), true); err != nil {
		return err
	}
	c.report = &Report{}
	content, err := store.ReadFile(ctx, target, reportName, 1<<30)
	if err != nil {
		return err
	}
	if err := decodeResumed(reportName, content, c.report); err != nil {
		return err
	}
	return target.Remove(ctx, journalName)
}

// conversion is one run of Write.
type conversion struct {
	src          robocache.Dataset
	options      settings
	report       *Report
	fps          robocache.Rate
	features     []feature
	timestamps   bool // RecordedTimestamps is written
	frameCounter *stats.Look
	library      *video.Library
	pool         *video.Pool
	decodes      bool // this build has a video decoder
	shardPlan    shardSchema
	summary      json.RawMessage
	// partsDir is the folder of encoded episodes for a resumed run, or "" if none are kept.
	partsDir string
	trials   sync.Mutex
	origins  *origin.Tracer
	rows     *robocache.RowCounter
	// canJoin caches whether frames that this run encodes can be joined with a coding of the
	// source.
	canJoin map[string]bool
}

// feature is a source feature and its name in the destination.
type feature struct {
	robocache.Feature        // as written
	source            string // key in the source
	fromStills        bool   // the source has still images, which are written as video
	// The column of which rows of the source's stream hold a value (robocache.Capabilities.Valid).
	isMask bool
	// A mask feature belongs to this feature; a missing image is black.
	hasMask bool
}

// planConversion determines everything that must be known before the first episode is written.
func (c *conversion) planConversion(ctx context.Context) error {
	info := c.src.Info()
	c.report.SourceFormat, c.report.SourceVersion = info.Format, info.Version
	c.report.Aligned = c.options.View != ""
	if c.options.out.perEpisode() {
		c.report.Version = episodesVersion
	}
	if c.options.Threads <= 0 {
		c.options.Threads = runtime.GOMAXPROCS(0)
	}
	if c.fps = c.options.FPS; c.fps.Zero() {
		c.fps = info.FPS
	}
	if c.fps.Zero() {
		return robocache.Misuse(
			"convert",
			robocache.Where{"dataset": info.URI},
			"the dataset states no rate",
		).WithHint("pass the rate of its rows: %s", robocache.Option("rows_hz"))
	}
	c.report.FPS = c.fps
	c.options.Episodes = reader.Episodes(c.options.Episodes, info.Episodes)
	c.frameCounter = stats.NewLook(c.src, c.options.out.Frames, c.options.Threads)
	c.pool = video.NewPool(256 << 20)
	c.library = video.LibraryOf(c.src)
	_, err := video.ActiveBackend()
	c.decodes = err == nil
	c.chooseFeatures()
	if len(c.features) == 0 {
		return c.noFeaturesError()
	}
	if c.options.Shard != nil {
		return c.applyPlan()
	}
	if err := c.measureCameras(ctx); err != nil {
		return err
	}
	for i := range c.features {
		if f := &c.features[i]; c.shouldResize(f) {
			f.Width, f.Height = c.options.width, c.options.height
			f.Shape = []int{f.Height, f.Width, max(3, f.Channels)}
		}
	}
	return c.chooseTimestamps(ctx)
}

// chooseFeatures selects the features that the version can hold, and reports the others.
func (c *conversion) chooseFeatures() {
	taken := map[string]bool{
		"timestamp":     true,
		"frame_index":   true,
		"episode_index": true,
		"index":         true,
		"task_index":    true,
		"task":          true,
	}
	// The reader computes the bookkeeping columns, and subtasks from the language columns.
	hasLanguage := c.src.Info().Feature(LanguagePersistent) != nil && !c.options.out.perEpisode()
	for _, f := range c.src.Info().Features {
		if f.Default && taken[f.Key] || f.Computed && hasLanguage {
			continue
		}
		if c.options.Keys != nil && !slices.Contains(c.options.Keys, f.Key) {
			c.report.Dropped = append(c.report.Dropped, f.Key)
			continue
		}
		out := feature{Feature: f, source: f.Key}
		out.Default, out.Computed, out.Clock, out.Masked = false, false, "", false
		out.Key = legalKey(f.Key, taken)
		if f.Kind == robocache.KindImage && c.becomesVideo(&f) {
			out.fromStills = true
			out.Kind = robocache.KindVideo
			out.DType = robocache.Uint8
		}
		reason := WhyDropped(&out.Feature)
		if c.options.out.perEpisode() && f.Kind == robocache.KindEvent {
			reason = "LeRobot " + episodesVersion + " has no language columns"
		}
		if reason != "" {
			c.report.Dropped = append(c.report.Dropped, f.Key)
			c.addFinding(
				robocache.SeverityWarning,
				"feature-dropped",
				robocache.Where{"stream": f.Key},
				reason,
			)
			continue
		}
		if out.Key != f.Key {
			c.report.Renamed[f.Key] = out.Key
			c.addFinding(
				robocache.SeverityInfo,
				"feature-renamed",
				robocache.Where{"stream": f.Key},
				"LeRobot forbids the name; the feature is written as "+out.Key,
			)
		}
		taken[out.Key] = true
		if c.src.Capabilities().Valid != nil && f.Masked {
			mask := maskOf(f.Key, legalKey(out.Key+robocache.ValidSuffix, taken))
			taken[mask.Key] = true
			out.hasMask = true
			c.report.Added = append(c.report.Added, mask.Key)
			c.features = append(c.features, out, mask)
			continue
		}
		out.hasMask = c.src.Info().Feature(f.Key+robocache.ValidSuffix) != nil
		c.features = append(c.features, out)
	}
}

// maskOf returns the mask of a feature of the source. key is its name in the result.
func maskOf(source, key string) feature {
	return feature{
		source: source,
		isMask: true,
		Feature: robocache.Feature{
			Key:   key,
			Kind:  robocache.KindNumeric,
			DType: robocache.Bool,
			Shape: []int{1},
		},
	}
}

// noFeaturesError returns the error for a dataset of which only the bookkeeping columns would be
// written.
func (c *conversion) noFeaturesError() error {
	e := robocache.Unsupported(
		"convert",
		robocache.Where{"dataset": c.src.Info().URI},
		"no stream of the dataset can be written as LeRobot",
	).WithHint("for point clouds, choose another format: %s", robocache.Option("to", "mcap"))
	for _, f := range c.report.Findings {
		if f.Code == "feature-dropped" {
			e.Msg += fmt.Sprintf("; %v: %s", f.Where["stream"], f.Message)
		}
	}
	return e
}

// becomesVideo reports whether still images become video. Depth images do not.
func (c *conversion) becomesVideo(f *robocache.Feature) bool {
	if f.Depth != nil || f.DType == robocache.Uint16 || f.DType == robocache.Float32 {
		return false
	}
	return c.options.images == "video" || c.options.images == "" && c.src.Info().Format != "lerobot"
}

// shouldResize reports whether the images of a stream are scaled to the requested size. Depth keeps
// its size, because scaling would blend the depths of two surfaces into one that neither has.
func (c *conversion) shouldResize(f *feature) bool {
	isColorImage := f.Kind == robocache.KindImage && f.DType == robocache.Uint8 && f.Channels != 1
	isScalable := f.Kind == robocache.KindVideo || isColorImage
	return c.options.width > 0 && f.Depth == nil && isScalable
}

// legalKey returns a name that LeRobot accepts. It has no "/" and is not in taken.
func legalKey(key string, taken map[string]bool) string {
	name := strings.TrimLeft(
		strings.NewReplacer("/", ".", "\\", ".", "\x00", ".").Replace(key),
		".",
	)
	name = cmp.Or(name, "unnamed")
	for taken[name] {
		name += "_source"
	}
	return name
}

// addFinding appends a finding to the report.
func (c *conversion) addFinding(
	s robocache.Severity,
	code string,
	where robocache.Where,
	msg string,
) {
	c.report.Findings = append(
		c.report.Findings,
		robocache.Finding{Severity: s, Code: code, Where: where, Message: msg},
	)
}

// sourceFindings puts the findings of the source, and of its alignment, before those of the
// conversion.
func (c *conversion) sourceFindings() {
	findings := robocache.Findings(c.src)
	findings = append(findings, c.options.Findings...)
	c.report.Findings = append(findings, c.report.Findings...)
}

// reportName is the file of the report in the result.
const reportName = "meta/conversion.json"

// maxReport bounds the bytes of a report that is read.
const maxReport = 1 << 30

// writeDataset writes the episodes and the metadata of the dataset, or of one shard of it. j is nil
// if the run has no journal.
func (c *conversion) writeDataset(ctx context.Context, target store.Writable, j *journal) error {
	cfg := c.options.out
	cfg.FPS = c.fps
	cfg.Robot = c.src.Info().Robot
	cfg.PartsDir = c.partsDir
	cfg.Encoders = c.options.Threads
	cfg.Tasks = c.chooseTasks()
	cfg.allowEmpty = c.src.Info().Episodes == 0 && cfg.Shard == nil
	c.setShardRange(&cfg)
	for _, f := range c.features {
		cfg.Features = append(cfg.Features, f.Feature)
	}
	if c.timestamps {
		cfg.Features = append(cfg.Features, robocache.Feature{
			Key:   RecordedTimestamps,
			Kind:  robocache.KindNumeric,
			DType: robocache.Float64,
			Shape: []int{1},
		})
		c.report.Added = append(c.report.Added, RecordedTimestamps)
	}
	w, err := NewWriter(ctx, target, cfg)
	if err != nil {
		return err
	}
	w.journal = j
	// Abandons the dataset after an error. After Close it does nothing.
	defer func() { w.stopWriting(c.options.Resume && j.hasWork(c.partsDir)) }()
	if err := c.writeEpisodes(ctx, w); err != nil {
		return err
	}
	if err := c.sampleKnown(ctx, w); err != nil {
		return err
	}
	c.report.NumEpisodes = w.episodeCount()
	c.report.NumFrames = w.frameCount()
	c.report.Findings = append(c.report.Findings, w.findings...)
	if c.options.Shard != nil {
		return c.endShard(ctx, w)
	}
	splits := c.splitRanges()
	if len(c.src.Info().Splits) > 0 {
		w.cfg.Splits = map[string]string{}
		maps.Copy(w.cfg.Splits, splits)
	}
	w.cfg.Extra = c.extraFiles(ctx)
	if s, ok := robocache.As[Carrier](c.src); ok {
		files, info, err := s.Carried(ctx, c.report)
		if err != nil {
			return err
		}
		maps.Copy(w.cfg.Extra, files)
		w.cfg.Info = info
	}
	c.sourceFindings()
	if w.cfg.Extra[reportName], err = reportText(c.report); err != nil {
		return err
	}
	return w.Close(ctx)
}

// reportText returns the report as JSON text.
func reportText(r *Report) ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err := robocache.At(err, robocache.Where{"file": reportName}); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// splitRanges returns the source's splits as ranges of the written episodes. It reports splits that
// are not ranges.
func (c *conversion) splitRanges() map[string]string {
	written := []int{}
	for i, m := range c.report.Episodes {
		if m.New >= 0 {
			written = append(written, c.options.Episodes[i])
		}
	}
	ranges, lost := c.src.Info().SplitsOf(written)
	c.report.Findings = append(
		c.report.Findings,
		robocache.LostSplits(
			lost,
			"their episodes are not a range here, and LeRobot keeps splits as ranges",
		)...)
	return ranges
}

// Carrier is a source with additional files, and keys of info.json, for the result.
type Carrier interface {
	// Carried returns these files and keys. It is called when all episodes are written.
	Carried(ctx context.Context, r *Report) (files map[string][]byte,
		info map[string]json.RawMessage, err error)
}

// extraFiles returns files of the source that belong to the schema but are unknown to lerobot.
func (c *conversion) extraFiles(ctx context.Context) map[string][]byte {
	out := map[string][]byte{}
	if s, ok := robocache.As[store.Source](c.src); ok {
		const name = "meta/modality.json"
		b, err := store.ReadFile(ctx, s.Store(), name, 16<<20)
		if err == nil {
			out[name] = b
		} else if !errors.Is(err, robocache.ErrNotFound) {
			c.addFinding(
				robocache.SeverityWarning,
				"file-dropped",
				robocache.Where{"file": name},
				err.Error(),
			)
		}
	}
	return out
}

// dryRun reads the metadata and sample tables that a run would read, and writes nothing.
func (c *conversion) dryRun(ctx context.Context) error {
	c.chooseTasks() // fills in the tasks of the report
	if c.timestamps {
		c.report.Added = append(c.report.Added, RecordedTimestamps)
	}
	var from int64
	for _, e := range c.options.Episodes {
		meta, err := c.src.Episode(ctx, e)
		if err != nil {
			return err
		}
		m := EpisodeMap{
			Old:       meta.Index,
			New:       c.report.NumEpisodes,
			Length:    c.src.Len(e),
			FromIndex: from,
			Video:     map[string]string{},
		}
		if m.Length == 0 {
			c.addFinding(
				robocache.SeverityWarning,
				"empty-episode",
				robocache.Where{"episode": meta.Index},
				"an episode without rows is left out",
			)
			m.New = -1
		} else {
			for i := range c.features {
				f := &c.features[i]
				switch {
				case f.fromStills:
					m.Video[f.Key] = stillVerdict
				case f.Kind == robocache.KindVideo:
					planned, err := c.planSegment(ctx, f, e)
					if err != nil {
						where := robocache.Where{"episode": meta.Index, "stream": f.source}
						return robocache.At(err, where)
					}
					planned.recordIn(&m, f.Key)
				}
			}
			c.countSegments(m)
			c.report.NumEpisodes++
			from += int64(m.Length)
		}
		c.report.Episodes = append(c.report.Episodes, m)
	}
	c.report.NumFrames = from
	c.splitRanges() // reports splits that are lost
	c.sourceFindings()
	return nil
}

// chooseTasks returns the tasks that keep their numbers (write.C3), and fills in the tasks of the
// report.
func (c *conversion) chooseTasks() []string {
	tasks := slices.Clone(c.src.Info().Tasks)
	slices.SortStableFunc(
		tasks,
		func(a, b robocache.Task) int { return cmp.Compare(a.Index, b.Index) },
	)
	indexOf := map[string]int64{}
	var texts []string
	keepsNumbers := true
	for _, t := range tasks {
		newIndex, ok := indexOf[t.Text]
		if !ok {
			newIndex = int64(len(texts))
			indexOf[t.Text] = newIndex
			texts = append(texts, t.Text)
		}
		keepsNumbers = keepsNumbers && newIndex == t.Index
		c.report.Tasks = append(c.report.Tasks, TaskMap{Old: t.Index, New: newIndex, Text: t.Text})
	}
	if !keepsNumbers {
		severity := robocache.SeverityInfo
		isAnnotation := func(f feature) bool { return strings.HasPrefix(f.Key, "annotation.") }
		if slices.ContainsFunc(c.features, isAnnotation) {
			severity = robocache.SeverityWarning
		}
		c.addFinding(
			severity,
			"tasks-renumbered",
			nil,
			"task numbers were not 0…n−1, each text once: "+
				"columns that hold task numbers (annotations) still hold the old ones; see the "+
				"report's tasks",
		)
	}
	return texts
}
