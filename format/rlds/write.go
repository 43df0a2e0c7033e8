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

// shardBytes is what a shard is planned to hold.
const shardBytes = 256 << 20

// writing is one run of Write.
//
//	W1  Every file appears whole or not at all; dataset_info.json is the last: a folder without it is no data set.
//	W2  The same episodes and options give the same bytes, on any number of threads.
//	W3  Encoded JPEG and PNG bytes are kept as they are. float64 and large integer tensors are byte strings, so that no value is rounded.
//	W4  features.json names standard classes alone. The timestamps of the steps are written as they are (timestamp_ns).
type writing struct {
	src          robocache.Dataset
	info         *robocache.Info
	dst          store.Writable
	pool         *video.Pool
	opt          robocache.WriteOptions
	name         string
	version      string
	asked        int // shards a split; 0 = by its size
	leaves       []outLeaf
	timestampKey string
	origins      *origin.Tracer

	mu       sync.Mutex
	report   robocache.WriteReport
	rows     *robocache.RowCounter
	timeless bool              // nothing says when the steps were
	uneven   bool              // timestamps that are not k/fps
	format   map[string]string // of images, by key: what the first one is
}

var writeOptions = map[string]string{
	"name":    "of the data set; by the destination's folder where it is not given",
	"version": "of the data set",
	"split":   "default: those of the source",
	"shards":  "a split; default: by its size",
}

// Write writes a data set of any format as RLDS. Options: "name" and "version" of the data set (by
// the destination's folder where they are not given), "split" ("train"; by default those of the
// source), "shards" a split (by its size).
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

// WriteStore is Write into a store.
func WriteStore(
	ctx context.Context,
	src robocache.Dataset,
	dst store.Writable,
	opt robocache.WriteOptions,
) (rep *robocache.WriteReport, err error) {
	defer guard.Recover("write rlds", &err)
	w := &writing{
		src:    src,
		info:   src.Info(),
		dst:    dst,
		opt:    opt,
		format: map[string]string{},
		pool:   video.NewPool(0),
	}
	defer w.pool.Close()
	w.settle()
	have := guard.Must(dst.List(ctx, ""))
	if len(have) > 0 {
		return nil, robocache.Misuse("write rlds", robocache.Where{"file": have[0].Name}, "the destination is not empty").
			WithHint("choose an empty folder; what a conversion left that was killed can go")
	}
	var splits []*outSplit
	if opt.Shard != nil {
		w.planLeaves(ctx)
		splits = w.shardSplits()
	} else {
		w.names(dst.URI())
		splits = w.planSplits(ctx)
	}
	err = guard.Try(func() {
		if w.writeSplits(ctx, splits); opt.Shard != nil {
			w.report.Summary = w.summary(splits)
			return
		}
		own := w.own()
		own["regular"] = !w.uneven
		w.metadata(ctx, splits, featuresJSON(w.leaves), own)
	})
	if err != nil {
		names := []string{featuresName, metadataName, infoName}
		for _, s := range splits {
			names = append(names, s.files...)
		}
		for _, f := range names {
			_ = dst.Remove(context.WithoutCancel(ctx), f) // most are there
		}
		return nil, err
	}
	return &w.report, nil
}

func (w *writing) settle() {
	guard.Check(
		reader.Op("write rlds").
			Settle(w.opt.Options, writeOptions, map[string]reader.Set{"shards": reader.Whole(&w.asked, 1, maxShards)}),
	)
}

func (w *writing) find(s robocache.Severity, code, stream, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Findings = append(
		w.report.Findings,
		robocache.Finding{
			Severity: s,
			Code:     code,
			Where:    robocache.Where{"stream": stream},
			Message:  message,
		},
	)
}

// names chooses name and version: TFDS finds <name>/<version> below its data folder.
func (w *writing) names(uri string) {
	uri = strings.TrimRight(uri, "/")
	base := path.Base(uri)
	w.version = w.opt.Options["version"]
	if _, ok := parseVersion(base); ok {
		w.version = cmp.Or(w.version, base)
		base = path.Base(path.Dir(uri))
	}
	w.version = cmp.Or(w.version, "1.0.0")
	if _, ok := parseVersion(w.version); !ok {
		guard.Fail(robocache.Misuse("write rlds", robocache.Where{"option": "version"}, "").
			Expected("three numbers, such as 1.0.0", clip(w.version)))
	}
	if w.name = cmp.Or(w.opt.Options["name"], snake(base)); w.name != snake(w.name) {
		guard.Fail(robocache.Misuse("write rlds", robocache.Where{"option": "name"}, "").
			Expected("letters, digits and _, a letter first", clip(w.name)).
			WithHint("for example %s", snake(w.name)))
	}
}

// snake makes a name that TFDS takes.
func snake(s string) string {
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

// sample makes the first episode that is not empty: its size plans the shards, and its images say
// how they are encoded.
func (w *writing) sample(ctx context.Context, splits []*outSplit) (perFrame int64) {
	p := stills.New(w.src, w.pool)
	tries := 0
	for _, s := range splits {
		for _, e := range s.episodes {
			n := w.src.Len(e)
			if n == 0 {
				continue
			}
			rows := min(n, 16)
			b, err := w.episode(ctx, p, e, rows)
			if err != nil && w.opt.SkipBad && robocache.Bad(err) && tries < 99 {
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

func (w *writing) writeSplits(ctx context.Context, splits []*outSplit) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(w.opt.Threads, 0), runtime.GOMAXPROCS(0)))
	var episodes []int
	for _, s := range splits {
		episodes = append(episodes, s.episodes...)
	}
	w.rows = robocache.NewRowCounter(w.src, episodes, w.opt.Progress)
	for _, s := range splits {
		for i := range s.shards {
			f := splitFile{Name: s.name, Template: defaultTemplate}
			name := s.name + recordsEnding
			if w.opt.Shard == nil {
				name = guard.Must(f.file(w.name, "tfrecord", i, len(s.shards)))
			}
			g.Go(func() (err error) {
				defer guard.Recover("write rlds", &err)
				defer guard.At(robocache.Where{"file": name})
				return w.shard(ctx, s, i, name)
			})
		}
	}
	guard.Check(g.Wait())
}

// shard writes one file.
func (w *writing) shard(ctx context.Context, s *outSplit, i int, name string) (err error) {
	defer guard.Recover("rlds", &err)
	out := guard.Must(w.dst.Create(ctx, name))
	defer out.Abort()
	p := stills.New(w.src, w.pool)
	for _, e := range s.shards[i] {
		guard.Check(ctx.Err())
		n := w.src.Len(e)
		b, err := w.episode(ctx, p, e, n)
		if err = robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}); err != nil {
			if !w.opt.SkipBad || !robocache.Bad(err) {
				return err
			}
			w.mu.Lock()
			w.report.Findings = append(
				w.report.Findings,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "episode-skipped",
					Where:    robocache.Where{"episode": w.info.EpisodeIndex(e)},
					Message:  err.Error(),
				},
			)
			w.mu.Unlock()
			w.rows.Finish(e)
			continue
		}
		guard.Must(out.Write(appendRecord(nil, b)))
		s.lengths[i]++
		w.mu.Lock()
		s.bytes += int64(len(b))
		w.mu.Unlock()
		w.count(int64(n), int64(len(b))+headBytes+tailBytes)
		w.rows.Finish(e)
	}
	if s.lengths[i] == 0 && w.opt.Shard != nil {
		return nil
	}
	guard.Check(out.Commit())
	w.mu.Lock()
	s.files[i] = name
	w.mu.Unlock()
	return nil
}

// count adds an episode to the report.
func (w *writing) count(frames, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Episodes++
	w.report.Frames += frames
	w.report.Bytes += bytes
}

// own is what metadata.json says of the data set beside whether it is regular.
func (w *writing) own() map[string]any {
	own := map[string]any{"stamps": w.timestampKey}
	if !w.info.FPS.Zero() {
		own["fps"] = w.info.FPS
	}
	if w.info.Robot != "" {
		own["robot_type"] = w.info.Robot
	}
	if extra := w.extras(); len(extra) > 0 {
		own["features"] = extra
	}
	return own
}

// metadata writes what is not shards, dataset_info.json last.
func (w *writing) metadata(
	ctx context.Context,
	splits []*outSplit,
	features []byte,
	own map[string]any,
) {
	w.file(ctx, featuresName, features)
	w.file(
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
		list = append(
			list,
			map[string]any{
				"name":             s.name,
				"filepathTemplate": defaultTemplate,
				"numBytes":         strconv.FormatInt(s.bytes, 10),
				"shardLengths":     lengths,
			},
		)
	}
	b := guard.Must(
		json.MarshalIndent(
			map[string]any{
				"name":        w.name,
				"version":     w.version,
				"fileFormat":  "tfrecord",
				"description": "Written by RoboCache.",
				"splits":      list,
			},
			"",
			"  ",
		),
	)
	w.file(ctx, infoName, b)
}

// extras is what features.json has no place for.
func (w *writing) extras() map[string]featureNote {
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
			n.Unit = "m" // so stills decodes it
		}
		if n.Kind != "" || n.Names != nil || n.Unit != "" || n.Interpolation != "" ||
			n.Relative != nil {
			out[w.leaves[i].key] = n
		}
	}
	return out
}

func (w *writing) file(ctx context.Context, name string, b []byte) {
	f := guard.Must(w.dst.Create(ctx, name))
	defer f.Abort()
	guard.Must(f.Write(b))
	w.mu.Lock()
	w.report.Bytes += int64(len(b))
	w.mu.Unlock()
	guard.Check(f.Commit())
}
