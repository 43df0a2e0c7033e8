package rlds

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/stills"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// shardBytes is the planned size of a shard.
const shardBytes = 256 << 20

// writing is one run of Write.
//
//	rlds.W1  Every file appears complete or not at all. dataset_info.json is the last one. A folder
//	         without it is not a dataset.
//	rlds.W2  The same episodes and options give the same bytes, for any number of threads.
//	rlds.W3  Encoded JPEG and PNG bytes are unchanged. Tensors of float64 and of large integers are
//	         byte strings, so that no value is rounded.
//	rlds.W4  features.json names only standard classes. The timestamps of the steps are written
//	         unchanged (timestamp_ns).
type writing struct {
	src          robocache.Dataset
	info         *robocache.Info
	dst          store.Writable
	pool         *video.Pool
	options      robocache.WriteOptions
	name         string
	version      string
	shardCount   int // shards per split; 0 means by size
	leaves       []outLeaf
	timestampKey string
	origins      *origin.Tracer

	mu       sync.Mutex
	report   robocache.WriteReport
	rows     *robocache.RowCounter
	timeless bool              // the source has no times
	uneven   bool              // some timestamps differ from k/fps
	format   map[string]string // image format by key, as in the first image
}

var writeOptions = map[string]string{
	"name":    "name of the dataset; default: by the folder of the destination",
	"version": "version of the dataset; default: by the folder of the destination, or 1.0.0",
	"split":   "name of the split; default: the splits of the source",
	"shards":  "shards per split; default: by its size",
}

// Write writes a dataset of any format as RLDS. The options are "name" and "version" of the
// dataset, "split", and "shards" per split; writeOptions has their defaults.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (rep *robocache.WriteReport, err error) {
	s, err := store.OpenWritable(dst)
	if err != nil {
		return nil, err
	}
	defer store.Close(s)
	rep, err = WriteStore(ctx, src, s, opt)
	return rep, robocache.At(err, robocache.Where{"dataset": robocache.Redact(dst)})
}

// WriteStore does the same as Write, into a store.
func WriteStore(
	ctx context.Context,
	src robocache.Dataset,
	dst store.Writable,
	opt robocache.WriteOptions,
) (rep *robocache.WriteReport, err error) {
	defer guard.Recover("write rlds", &err)
	w := &writing{
		src:     src,
		info:    src.Info(),
		dst:     dst,
		options: opt,
		format:  map[string]string{},
		pool:    video.NewPool(0),
	}
	defer w.pool.Close()
	w.parseOptions()
	have := guard.Must(dst.List(ctx, ""))
	if len(have) > 0 {
		return nil, robocache.Misuse(
			"write rlds",
			robocache.Where{"file": have[0].Name},
			"the destination is not empty",
		).WithHint("choose an empty folder; files of a killed conversion can be deleted")
	}
	var splits []*outSplit
	if opt.Shard != nil {
		w.planLeaves(ctx)
		splits = w.shardSplits()
	} else {
		w.chooseName(dst.URI())
		splits = w.planSplits(ctx)
	}
	err = guard.Try(func() {
		if w.writeSplits(ctx, splits); opt.Shard != nil {
			w.report.Summary = w.summarizeShard(splits)
			return
		}
		own := w.ownMetadata()
		own["regular"] = !w.uneven
		w.writeMetadata(ctx, splits, featuresJSON(w.leaves), own)
	})
	if err != nil {
		names := []string{featuresName, metadataName, infoName}
		for _, s := range splits {
			names = append(names, s.files...)
		}
		for _, f := range names {
			_ = dst.Remove(context.WithoutCancel(ctx), f) // most of them exist
		}
		return nil, err
	}
	return &w.report, nil
}

// parseOptions parses the options of the writer.
func (w *writing) parseOptions() {
	guard.Check(
		reader.Op("write rlds").
			Settle(
				w.options.Options,
				writeOptions,
				map[string]reader.Set{"shards": reader.Whole(&w.shardCount, 1, maxShards)},
			),
	)
}

// addFinding adds a finding about a stream to the report.
func (w *writing) addFinding(s robocache.Severity, code, stream, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Findings = append(w.report.Findings, robocache.Finding{
		Severity: s,
		Code:     code,
		Where:    robocache.Where{"stream": stream},
		Message:  message,
	})
}

// chooseName sets name and version. TFDS finds <name>/<version> below its data folder.
func (w *writing) chooseName(uri string) {
	uri = strings.TrimRight(uri, "/")
	base := path.Base(uri)
	w.version = w.options.Options["version"]
	if _, ok := parseVersion(base); ok {
		w.version = cmp.Or(w.version, base)
		base = path.Base(path.Dir(uri))
	}
	w.version = cmp.Or(w.version, "1.0.0")
	if _, ok := parseVersion(w.version); !ok {
		guard.Fail(robocache.Misuse("write rlds", robocache.Where{"option": "version"}, "").
			Expected("three numbers, such as 1.0.0", quoteClipped(w.version)))
	}
	if w.name = cmp.Or(w.options.Options["name"], snakeCase(base)); w.name != snakeCase(w.name) {
		guard.Fail(robocache.Misuse("write rlds", robocache.Where{"option": "name"}, "").
			Expected("letters, digits and _, a letter first", quoteClipped(w.name)).
			WithHint("for example %s", snakeCase(w.name)))
	}
}

// snakeCase returns a name that TFDS accepts.
func snakeCase(s string) string {
	n := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToLower(s)), "_")
	if n == "" || n[0] >= '0' && n[0] <= '9' {
		n = "set_" + n
	}
	return strings.TrimRight(n, "_")
}

// encodeSample encodes the beginning of the first episode that is not empty, and returns its bytes
// per frame. They determine the size of shards, and its images the image formats.
func (w *writing) encodeSample(ctx context.Context, splits []*outSplit) (perFrame int64) {
	p := stills.New(w.src, w.pool)
	tries := 0
	for _, s := range splits {
		for _, e := range s.episodes {
			n := w.src.Len(e)
			if n == 0 {
				continue
			}
			rows := min(n, 16)
			b, err := w.encodeEpisode(ctx, p, e, rows)
			if err != nil && w.options.SkipBad && robocache.Bad(err) && tries < 99 {
				tries++
				continue
			}
			guard.Check(robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}))
			for i := range w.leaves {
				w.leaves[i].format = w.format[w.leaves[i].key]
			}
			return int64(len(b))/int64(rows) + 1
		}
	}
	return 1
}

// writeSplits writes the shards of all splits concurrently.
func (w *writing) writeSplits(ctx context.Context, splits []*outSplit) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(w.options.Threads, 0), runtime.GOMAXPROCS(0)))
	var episodes []int
	for _, s := range splits {
		episodes = append(episodes, s.episodes...)
	}
	w.rows = robocache.NewRowCounter(w.src, episodes, w.options.Progress)
	for _, s := range splits {
		for i := range s.shards {
			f := splitFile{Name: s.name, Template: defaultTemplate}
			name := s.name + recordsEnding
			if w.options.Shard == nil {
				name = guard.Must(f.fileName(w.name, "tfrecord", i, len(s.shards)))
			}
			g.Go(func() (err error) {
				defer guard.Recover("write rlds", &err)
				defer guard.At(robocache.Where{"file": name})
				return w.writeShard(ctx, s, i, name)
			})
		}
	}
	guard.Check(g.Wait())
}

// writeShard writes one file.
func (w *writing) writeShard(ctx context.Context, s *outSplit, i int, name string) (err error) {
	defer guard.Recover("rlds", &err)
	out := guard.Must(w.dst.Create(ctx, name))
	defer out.Abort()
	p := stills.New(w.src, w.pool)
	for _, e := range s.shards[i] {
		guard.Check(ctx.Err())
		n := w.src.Len(e)
		b, err := w.encodeEpisode(ctx, p, e, n)
		if err = robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}); err != nil {
			if !w.options.SkipBad || !robocache.Bad(err) {
				return err
			}
			w.mu.Lock()
			w.report.Findings = append(w.report.Findings, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "episode-skipped",
				Where:    robocache.Where{"episode": w.info.EpisodeIndex(e)},
				Message:  err.Error(),
			})
			w.mu.Unlock()
			w.rows.Finish(e)
			continue
		}
		guard.Must(out.Write(appendRecord(nil, b)))
		s.lengths[i]++
		w.mu.Lock()
		s.bytes += int64(len(b))
		w.mu.Unlock()
		w.countEpisode(int64(n), int64(len(b))+headBytes+tailBytes)
		w.rows.Finish(e)
	}
	if s.lengths[i] == 0 && w.options.Shard != nil {
		return nil
	}
	guard.Check(out.Commit())
	w.mu.Lock()
	s.files[i] = name
	w.mu.Unlock()
	return nil
}

// countEpisode adds an episode to the report.
func (w *writing) countEpisode(frames, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Episodes++
	w.report.Frames += frames
	w.report.Bytes += bytes
}

// ownMetadata returns our entry of metadata.json, without the key regular.
func (w *writing) ownMetadata() map[string]any {
	own := map[string]any{"stamps": w.timestampKey}
	if !w.info.FPS.Zero() {
		own["fps"] = w.info.FPS
	}
	if w.info.Robot != "" {
		own["robot_type"] = w.info.Robot
	}
	if extra := w.featureNotes(); len(extra) > 0 {
		own["features"] = extra
	}
	return own
}

// writeMetadata writes the files other than shards, with dataset_info.json last.
func (w *writing) writeMetadata(
	ctx context.Context,
	splits []*outSplit,
	features []byte,
	own map[string]any,
) {
	w.writeFile(ctx, featuresName, features)
	w.writeFile(
		ctx,
		metadataName,
		guard.Must(json.MarshalIndent(map[string]any{"robocache": own}, "", "  ")),
	)
	var list []map[string]any
	for _, s := range splits {
		lengths := make([]string, len(s.lengths))
		for i, n := range s.lengths {
			lengths[i] = strconv.FormatInt(n, 10)
		}
		list = append(list, map[string]any{
			"name":             s.name,
			"filepathTemplate": defaultTemplate,
			"numBytes":         strconv.FormatInt(s.bytes, 10),
			"shardLengths":     lengths,
		})
	}
	b := guard.Must(json.MarshalIndent(
		map[string]any{
			"name":        w.name,
			"version":     w.version,
			"fileFormat":  "tfrecord",
			"description": "Written by RoboCache.",
			"splits":      list,
		},
		"",
		"  ",
	))
	w.writeFile(ctx, infoName, b)
}

// featureNotes returns properties that features.json cannot state.
func (w *writing) featureNotes() map[string]featureNote {
	out := map[string]featureNote{}
	for i := range w.leaves {
		f := w.leaves[i].feature
		if f == nil {
			continue
		}
		n := featureNote{
			Names:         f.Names,
			Unit:          f.Unit,
			Interpolation: f.Interpolation,
			Rotations:     f.Rotations,
			Relative:      f.Relative,
			Unsummable:    f.Unsummable,
		}
		if f.Kind == robocache.KindPointCloud {
			n.Kind = f.Kind
		}
		if f.Kind == robocache.KindVideo && f.Depth != nil {
			n.Unit = "m" // the unit into which stills decodes it
		}
		if n.Kind != "" || n.Names != nil || n.Unit != "" || n.Interpolation != "" ||
			n.Relative != nil {
			out[w.leaves[i].key] = n
		}
	}
	return out
}

// writeFile writes a small file.
func (w *writing) writeFile(ctx context.Context, name string, b []byte) {
	f := guard.Must(w.dst.Create(ctx, name))
	defer f.Abort()
	guard.Must(f.Write(b))
	w.mu.Lock()
	w.report.Bytes += int64(len(b))
	w.mu.Unlock()
	guard.Check(f.Commit())
}
