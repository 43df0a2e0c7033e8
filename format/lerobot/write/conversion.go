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

// Write writes a dataset whose streams lie on one grid as LeRobot v3.0 at dst, a path or URI that
// can be written. WriteReport.Own is a *Report.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	return writeBy(ctx, src, opt, func(c *conversion) error { return c.at(ctx, dst) })
}

// WriteStore is Write into an empty store.
func WriteStore(
	ctx context.Context,
	src robocache.Dataset,
	dst store.Writable,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	return writeBy(ctx, src, opt, func(c *conversion) error { return c.into(ctx, dst) })
}

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

// at runs the conversion to a destination.
func (c *conversion) at(ctx context.Context, dst string) error {
	if c.opt.DryRun {
		c.report.DryRun = true
		if err := c.dryRun(ctx); err != nil {
			return err
		}
		return nil
	}
	if dst == "" {
		return taken(dst, "no destination", "")
	}
	target, err := store.OpenWritable(dst)
	if err != nil {
		return err
	}
	defer store.Close(target)
	whole, err := free(ctx, target, dst, c.opt.Resume)
	if err != nil {
		return err
	}
	if path, ok := store.LocalPath(dst); ok && c.opt.Resume {
		c.parts = filepath.Join(path, partsName)
	}
	if whole {
		if err := c.conclude(ctx, target); err != nil {
			return err
		}
	} else {
		if err := c.into(ctx, target); err != nil {
			return err
		}
	}
	return nil
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
	if c.opt, err = settle(opt); err != nil {
		return c, err
	}
	c.origins = origin.NewTracer(src, opt)
	if err := c.plan(ctx); err != nil {
		return c, err
	}
	return c, nil
}

func (c *conversion) close() {
	if c.look != nil {
		c.look.Close()
		c.pool.Close()
	}
}

// into runs the conversion with its journal in the destination. An attempt at a shard keeps none:
// another begins anew.
func (c *conversion) into(ctx context.Context, target store.Writable) error {
	if c.opt.Shard != nil {
		if err := c.run(ctx, target, nil); err != nil {
			return err
		}
		return nil
	}
	j, err := openJournal(ctx, target, c.identity(), c.opt.Resume)
	if err == nil {
		err = crash.Func("convert", func() error { return c.run(ctx, target, j) })()
	}
	if err == nil {
		if err := target.Remove(ctx, journalName); err != nil {
			return err
		}
		return nil
	}
	// Without the caller's context: it may be the one that ended.
	if bg := context.Background(); j != nil && (!c.opt.Resume || alone(bg, target)) {
		_ = target.Remove(bg, journalName)
	}
	return err
}

// conclude ends a run that was killed when all was written but its journal not removed.
func (c *conversion) conclude(ctx context.Context, target store.Writable) error {
	if _, err := openJournal(ctx, target, c.identity(), true); err != nil {
		return err
	}
	c.report = &Report{}
	content, err := store.ReadFile(ctx, target, reportName, 1<<30)
	if err != nil {
		return err
	}
	if err := resumed(reportName, content, c.report); err != nil {
		return err
	}
	return target.Remove(ctx, journalName)
}

// conversion is one run of Write.
type conversion struct {
	src        robocache.Dataset
	opt        settings
	report     *Report
	fps        robocache.Rate
	features   []feature
	timestamps bool // RecordedTimestamps is written
	look       *stats.Look
	lib        *video.Library
	pool       *video.Pool
	decodes    bool
	shard      shardSchema
	summary    json.RawMessage
	// folder of encoded episodes that a resumed run takes over; "" = none are kept
	parts   string
	trials  sync.Mutex
	origins *origin.Tracer
	rows    *robocache.RowCounter
	// whether what is encoded here can be joined to a coding of the source's
	tried map[string]bool
}

// feature is a source feature and its name in the destination.
type feature struct {
	robocache.Feature        // as written
	source            string // key in the source
	still             bool   // the source's images are stills, written as video
	// which rows of the source's stream hold a value (robocache.Capabilities.Valid)
	mask bool
	// such a feature is there beside it: an image that is not there is black
	masked bool
}

// plan settles everything that must be known before the first episode is written.
func (c *conversion) plan(ctx context.Context) error {
	info := c.src.Info()
	c.report.SourceFormat, c.report.SourceVersion, c.report.Aligned = info.Format, info.Version, c.opt.View != ""
	if c.opt.Threads <= 0 {
		c.opt.Threads = runtime.GOMAXPROCS(0)
	}
	if c.fps = c.opt.FPS; c.fps.Zero() {
		c.fps = info.FPS
	}
	if c.fps.Zero() {
		return robocache.Misuse("convert", robocache.Where{"dataset": info.URI}, "the dataset states no rate").
			WithHint("give that of its rows: %s", robocache.Option("rows_hz"))
	}
	c.report.FPS = c.fps
	c.opt.Episodes = reader.Episodes(c.opt.Episodes, info.Episodes)
	c.look = stats.NewLook(c.src, c.opt.out.Frames, c.opt.Threads)
	c.pool = video.NewPool(256 << 20)
	c.lib = video.LibraryOf(c.src)
	_, err := video.ActiveBackend()
	c.decodes = err == nil
	c.chooseFeatures()
	if len(c.features) == 0 {
		return c.nothingLeft()
	}
	if c.opt.Shard != nil {
		if err := c.agreed(); err != nil {
			return err
		}
		return nil
	}
	if err := c.measure(ctx); err != nil {
		return err
	}
	for i := range c.features {
		if f := &c.features[i]; c.resizes(f) {
			f.Width, f.Height = c.opt.width, c.opt.height
			f.Shape = []int{f.Height, f.Width, max(3, f.Channels)}
		}
	}
	return c.chooseTimestamps(ctx)
}

// chooseFeatures takes what v3.0 can hold, and says what it cannot.
func (c *conversion) chooseFeatures() {
	taken := map[string]bool{
		"timestamp":     true,
		"frame_index":   true,
		"episode_index": true,
		"index":         true,
		"task_index":    true,
		"task":          true,
	}
	for _, f := range c.src.Info().Features {
		if f.Default && taken[f.Key] {
			continue
		}
		if c.opt.Keys != nil && !slices.Contains(c.opt.Keys, f.Key) {
			c.report.Dropped = append(c.report.Dropped, f.Key)
			continue
		}
		out := feature{Feature: f, source: f.Key}
		out.Default, out.Clock, out.Masked = false, "", false
		out.Key = legalKey(f.Key, taken)
		if f.Kind == robocache.KindImage && c.asVideo(&f) {
			out.still, out.Kind, out.DType = true, robocache.KindVideo, robocache.Uint8
		}
		if why := WhyDropped(&out.Feature); why != "" {
			c.report.Dropped = append(c.report.Dropped, f.Key)
			c.find(
				robocache.SeverityWarning,
				"feature-dropped",
				robocache.Where{"stream": f.Key},
				why,
			)
			continue
		}
		if out.Key != f.Key {
			c.report.Renamed[f.Key] = out.Key
			c.find(
				robocache.SeverityInfo,
				"feature-renamed",
				robocache.Where{"stream": f.Key},
				"LeRobot forbids the name; it is "+out.Key,
			)
		}
		taken[out.Key] = true
		if c.src.Capabilities().Valid != nil && f.Masked {
			mask := feature{
				source: f.Key,
				mask:   true,
				Feature: robocache.Feature{
					Key:   legalKey(out.Key+robocache.ValidSuffix, taken),
					Kind:  robocache.KindNumeric,
					DType: robocache.Bool,
					Shape: []int{1},
				},
			}
			taken[mask.Key], out.masked = true, true
			c.report.Added = append(c.report.Added, mask.Key)
			c.features = append(c.features, out, mask)
			continue
		}
		out.masked = c.src.Info().Feature(f.Key+robocache.ValidSuffix) != nil
		c.features = append(c.features, out)
	}
}

// nothingLeft refuses a dataset of which only the bookkeeping columns would be written.
func (c *conversion) nothingLeft() error {
	e := robocache.Unsupported("convert", robocache.Where{"dataset": c.src.Info().URI}, "no stream of the dataset can be written as LeRobot").
		WithHint("formats that keep point clouds: %s", robocache.Option("to", "mcap"))
	for _, f := range c.report.Findings {
		if f.Code == "feature-dropped" {
			e.Msg += fmt.Sprintf("; %v: %s", f.Where["stream"], f.Message)
		}
	}
	return e
}

// asVideo says whether still images become video. Depth does not.
func (c *conversion) asVideo(f *robocache.Feature) bool {
	if f.Depth != nil || f.DType == robocache.Uint16 || f.DType == robocache.Float32 {
		return false
	}
	return c.opt.images == "video" || c.opt.images == "" && c.src.Info().Format != "lerobot"
}

// resizes says that images of a stream are brought to the size that was asked for. Depth keeps its
// own: between two distances there may be nothing.
func (c *conversion) resizes(f *feature) bool {
	return c.opt.width > 0 && f.Depth == nil &&
		(f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage && f.DType == robocache.Uint8 && f.Channels != 1)
}

// legalKey gives a name that LeRobot takes: no "/", not taken.
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

func (c *conversion) find(s robocache.Severity, code string, where robocache.Where, msg string) {
	c.report.Findings = append(
		c.report.Findings,
		robocache.Finding{Severity: s, Code: code, Where: where, Message: msg},
	)
}

// sourceFindings puts what the source found, and the grid over it, before what the conversion did.
func (c *conversion) sourceFindings() {
	c.report.Findings = append(
		append(robocache.Findings(c.src), c.opt.Findings...),
		c.report.Findings...)
}

// reportName is where the report lies in the result.
const reportName = "meta/conversion.json"

// maxReport bounds the bytes of a report that is read.
const maxReport = 1 << 30

// run writes the dataset.
func (c *conversion) run(ctx context.Context, target store.Writable, j *journal) error {
	cfg := c.opt.out
	cfg.FPS, cfg.Robot, cfg.PartsDir, cfg.Encoders, cfg.Tasks = c.fps, c.src.Info().Robot, c.parts, c.opt.Threads, c.chooseTasks()
	cfg.allowEmpty = c.src.Info().Episodes == 0 && cfg.Shard == nil
	c.intoShard(&cfg)
	for _, f := range c.features {
		cfg.Features = append(cfg.Features, f.Feature)
	}
	if c.timestamps {
		cfg.Features = append(
			cfg.Features,
			robocache.Feature{
				Key:   RecordedTimestamps,
				Kind:  robocache.KindNumeric,
				DType: robocache.Float64,
				Shape: []int{1},
			},
		)
		c.report.Added = append(c.report.Added, RecordedTimestamps)
	}
	w, err := NewWriter(ctx, target, cfg)
	if err != nil {
		return err
	}
	w.journal = j
	// of a failure; after Close it does nothing
	defer func() { w.stop(c.opt.Resume && j.worth(c.parts)) }()
	if err := c.write(ctx, w); err != nil {
		return err
	}
	if err := c.sample(ctx, w); err != nil {
		return err
	}
	c.report.NumEpisodes, c.report.NumFrames = w.episodes(), w.frames()
	c.report.Findings = append(c.report.Findings, w.findings...)
	if c.opt.Shard != nil {
		if err := c.endShard(ctx, w); err != nil {
			return err
		}
		return nil
	}
	if splits := c.splits(); len(c.src.Info().Splits) > 0 {
		w.cfg.Splits = map[string]string{}
		maps.Copy(w.cfg.Splits, splits)
	}
	w.cfg.Extra = c.extras(ctx)
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

func reportText(r *Report) ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err := robocache.At(err, robocache.Where{"file": reportName}); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// splits gives the source's as ranges of the episodes that were written, and finds those that are
// none.
func (c *conversion) splits() map[string]string {
	written := []int{}
	for i, m := range c.report.Episodes {
		if m.New >= 0 {
			written = append(written, c.opt.Episodes[i])
		}
	}
	ranges, lost := c.src.Info().SplitsOf(written)
	c.report.Findings = append(
		c.report.Findings,
		robocache.LostSplits(
			lost,
			"their episodes are no range here, and LeRobot keeps splits as ranges",
		)...)
	return ranges
}

// Carrier is a source with files, and keys of info.json, that the result is to have beside what is
// written of it. It is asked when all episodes are written.
type Carrier interface {
	Carried(
		ctx context.Context,
		r *Report,
	) (files map[string][]byte, info map[string]json.RawMessage, err error)
}

// extras keeps files that belong to the schema and that LeRobot does not know of.
func (c *conversion) extras(ctx context.Context) map[string][]byte {
	out := map[string][]byte{}
	if s, ok := robocache.As[store.Source](c.src); ok {
		const name = "meta/modality.json"
		b, err := store.ReadFile(ctx, s.Store(), name, 16<<20)
		if err == nil {
			out[name] = b
		} else if !errors.Is(err, robocache.ErrNotFound) {
			c.find(
				robocache.SeverityWarning,
				"file-dropped",
				robocache.Where{"file": name},
				err.Error(),
			)
		}
	}
	return out
}

// dryRun reads what a run would read of the metadata and the sample tables, and writes nothing.
func (c *conversion) dryRun(ctx context.Context) error {
	c.chooseTasks()
	if c.timestamps {
		c.report.Added = append(c.report.Added, RecordedTimestamps)
	}
	var from int64
	for _, e := range c.opt.Episodes {
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
			c.find(
				robocache.SeverityWarning,
				"empty-episode",
				robocache.Where{"episode": meta.Index},
				"an episode without rows is left out",
			)
			m.New = -1
		} else {
			for i := range c.features {
				switch f := &c.features[i]; {
				case f.still:
					m.Video[f.Key] = stillVerdict
				case f.Kind == robocache.KindVideo:
					err := func() error {
						segmentValue, err := c.segment(ctx, f, e)
						if err != nil {
							return err
						}
						segmentValue.into(&m, f.Key)
						return nil
					}()
					if err := robocache.At(
						err,
						robocache.Where{"episode": meta.Index, "stream": f.source},
					); err != nil {
						return err
					}
				}
			}
			c.count(m)
			c.report.NumEpisodes++
			from += int64(m.Length)
		}
		c.report.Episodes = append(c.report.Episodes, m)
	}
	c.report.NumFrames = from
	c.splits()
	c.sourceFindings()
	return nil
}

// chooseTasks gives the tasks that keep their numbers (C3), and fills in the report's map.
func (c *conversion) chooseTasks() []string {
	tasks := slices.Clone(c.src.Info().Tasks)
	slices.SortStableFunc(
		tasks,
		func(a, b robocache.Task) int { return cmp.Compare(a.Index, b.Index) },
	)
	number := map[string]int64{}
	var texts []string
	same := true
	for _, t := range tasks {
		n, ok := number[t.Text]
		if !ok {
			n = int64(len(texts))
			number[t.Text] = n
			texts = append(texts, t.Text)
		}
		same = same && n == t.Index
		c.report.Tasks = append(c.report.Tasks, TaskMap{Old: t.Index, New: n, Text: t.Text})
	}
	if !same {
		sev := robocache.SeverityInfo
		if slices.ContainsFunc(
			c.features,
			func(f feature) bool { return strings.HasPrefix(f.Key, "annotation.") },
		) {
			sev = robocache.SeverityWarning
		}
		c.find(
			sev,
			"tasks-renumbered",
			nil,
			"task numbers were not 0…n−1, each text once: columns that hold task numbers (annotations) still hold the old ones; see the report's tasks",
		)
	}
	return texts
}
