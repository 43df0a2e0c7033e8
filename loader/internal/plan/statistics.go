package plan

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"golang.org/x/sync/errgroup"
)

// Limits of statistics that are computed at opening without a request: bytes of numeric streams,
// and bytes of local files without videos. Larger passes need stats="compute".
const (
	unaskedValues = 256 << 20
	unaskedFiles  = 4 << 30
)

// progressEvery is the interval of progress messages of a long pass.
const progressEvery = 10 * time.Second

// normalized is a column to normalize and its options.
type normalized struct {
	*column.Column
	norm options.Norm
}

// findStatistics returns the statistics of columns: the configured ones, those of the dataset, or
// computed ones over the selected episodes. Missing statistics are an error that names the keys, so
// that no selected key stays raw.
func (src *Source) findStatistics(ctx context.Context, all []normalized) (robocache.Stats, error) {
	out := robocache.Stats{}
	var own robocache.Stats
	var missing []normalized
	for _, c := range all {
		if c.norm.Own() != nil || c.IsDepth() {
			continue
		}
		if s := src.Config.Stats[c.Key]; s != nil {
			// normVectors reports a missing mode: configured statistics are not completed
			out[c.Key] = s
			continue
		}
		if !src.Config.ComputeStats {
			if own == nil {
				var err error
				if own, err = src.Dataset.Stats(ctx); err != nil {
					return nil, err
				}
			}
			if s := own[c.Key]; s != nil && c.norm.In(s) {
				out[c.Key] = s
				continue
			}
		}
		missing = append(missing, c)
	}
	if len(missing) == 0 {
		return out, nil
	}
	return out, src.computeStatistics(ctx, missing, out)
}

// computeStatistics adds the statistics of columns over the selected episodes to out. It uses
// results that this process or the cache directory holds, and computes the others.
func (src *Source) computeStatistics(
	ctx context.Context,
	all []normalized,
	out robocache.Stats,
) error {
	files := src.filesOf(ctx)
	var todo []normalized
	var keys []string
	ids := map[string]cache.Key{}
	for _, c := range all {
		id, err := src.statisticsID(ctx, &files, c.Column)
		if err != nil {
			return err
		}
		if s := src.folder.lookupStatistics(id); s != nil {
			out[c.Key] = s
			continue
		}
		ids[c.Key] = id
		todo, keys = append(todo, c), append(keys, c.Key)
	}
	if len(todo) == 0 {
		return nil
	}
	bytes, reason, err := src.passCost(ctx, todo, &files)
	if err != nil {
		return err
	}
	lacks := fmt.Sprintf("no statistics for %s of %s", modeNames(todo), strings.Join(keys, ", "))
	switch {
	case src.Config.ComputeStats:
		src.logProgress(
			"normalize: %s: reading %s of %s in %d episodes",
			robocache.Option("stats", "compute"),
			sizeText(bytes),
			strings.Join(keys, ", "),
			src.Table.Len(),
		)
	case reason != "":
		return robocache.Misuse("loader", robocache.Where{"stream": strings.Join(keys, ", ")},
			"normalize: the dataset has %s, and %s", lacks, reason).
			WithHint(
				"%s computes them at opening, over the selected episodes; %s",
				robocache.Option("stats", "compute"),
				statisticsHint(),
			)
	default:
		src.logProgress(
			"normalize: the dataset has %s: they are computed, over %d episodes (%s of values)",
			lacks,
			src.Table.Len(),
			sizeText(bytes),
		)
	}
	begin := time.Now()
	computed, err := src.measureColumns(ctx, keys, bytes)
	if err != nil {
		return err
	}
	if took := time.Since(begin); took > progressEvery {
		src.logProgress("statistics: done in %.0f s", took.Seconds())
	}
	for k, s := range computed {
		out[k] = s
		src.folder.storeStatistics(ids[k], s)
	}
	return nil
}

// statisticsHint returns the part of a hint that names the other ways to provide statistics.
func statisticsHint() string {
	return "or give " + robocache.Option("stats") + " what " +
		robocache.Command("stats URI --out=FILE") +
		` writes; or the vectors: {"mode": …, "mean": […], "std": […]}`
}

// modeNames returns the modes of columns as text.
func modeNames(all []normalized) string {
	var out []string
	for _, c := range all {
		if !slices.Contains(out, c.norm.Mode) {
			out = append(out, c.norm.Mode)
		}
	}
	return strings.Join(out, " and ")
}

// passCost returns the bytes of values that a pass over columns reads. reason states why the pass
// needs a request; it is "" if it needs none.
func (src *Source) passCost(
	ctx context.Context,
	all []normalized,
	files *dataFiles,
) (bytes int64, reason string, err error) {
	for _, c := range all {
		if !c.IsNumericStream() {
			reason = c.Key + " is no stream of plain numbers, which takes decoding or reading " +
				"all of it"
			continue
		}
		for i := range src.Table.Len() {
			n, err := robocache.RowsIn(ctx, src.Dataset, src.Table.Episode(i), c.Feature)
			if err != nil {
				return 0, "", robocache.At(err, robocache.Where{"stream": c.Key})
			}
			bytes += int64(n) * int64(c.RowBytes)
		}
	}
	switch {
	case reason != "":
	case files.isRemote:
		reason = "the dataset is remote"
	case bytes > unaskedValues:
		reason = fmt.Sprintf(
			"%s of values are more than the %s that are read unasked",
			layout.FormatMiB(bytes),
			layout.FormatMiB(unaskedValues),
		)
	case files.bytes > unaskedFiles:
		reason = fmt.Sprintf(
			"%s of files are more than the %s that are read unasked",
			layout.FormatMiB(files.bytes),
			layout.FormatMiB(unaskedFiles),
		)
	}
	return bytes, reason, nil
}

// measureColumns computes the statistics of columns over the selected episodes, several columns at
// once. bytes is the expected size of their values. With on_bad_episode="skip" it omits episodes
// that cannot be read.
func (src *Source) measureColumns(
	ctx context.Context,
	keys []string,
	bytes int64,
) (robocache.Stats, error) {
	episodes := make([]int, src.Table.Len())
	for i := range episodes {
		episodes[i] = src.Table.Episode(i)
	}
	var read, lastReport atomic.Int64
	lastReport.Store(time.Now().UnixNano())
	progress := func(n int64) {
		done, at := read.Add(n), lastReport.Load()
		now := time.Now().UnixNano()
		if now-at > int64(progressEvery) && lastReport.CompareAndSwap(at, now) {
			src.logProgress(
				"statistics: %s of %s are read",
				sizeText(done),
				sizeText(max(done, bytes)),
			)
		}
	}
	parallel := max(1, min(src.Config.Threads, 4, len(keys)))
	out := robocache.Stats{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, key := range keys {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			s, err := stats.Compute(
				ctx,
				src.Dataset,
				stats.Options{
					Keys:     []string{key},
					Episodes: episodes,
					Budget:   min(256<<20, int64(src.Config.MemoryBudget)/8) / int64(parallel),
					Threads:  src.Config.Threads,
					Read:     progress,
					SkipBad:  src.Config.OnBadEpisode == "skip",
					OnFinding: func(f robocache.Finding) {
						src.report.Warn("statistics of " + key + ": " + f.Message)
					},
				},
			)
			mu.Lock()
			defer mu.Unlock()
			if s[key] != nil {
				out[key] = s[key]
			}
			return err
		})
	}
	return out, g.Wait()
}

// logProgress reports a step of opening that takes a while or was not requested.
func (src *Source) logProgress(format string, args ...any) {
	if log := src.Config.Log; log != nil {
		line := fmt.Sprintf(format, args...)
		if src.Name != "" {
			line = src.Name + ": " + line
		}
		log(line)
	}
}

// sizeText formats a number of bytes.
func sizeText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return layout.FormatMiB(n)
}

// dataFiles describes the files that a dataset's values are read from.
type dataFiles struct {
	id       []byte // hash of names, sizes and versions; nil: unknown
	bytes    int64  // total size without videos
	isRemote bool
}

var videoNames = []string{".mp4", ".mkv", ".avi", ".webm", ".mov"}

// filesOf describes the files of the dataset. The result is empty if they are unknown.
func (src *Source) filesOf(ctx context.Context) (f dataFiles) {
	d, ok := robocache.As[store.Source](src.Dataset)
	if !ok {
		return f
	}
	f.isRemote = robocache.IsRemote(d.Store())
	list, err := d.Store().List(ctx, "")
	if err != nil {
		return f // the store cannot list files, so statistics are not stored
	}
	h := sha256.New()
	for _, e := range list {
		if slices.Contains(videoNames, strings.ToLower(path.Ext(e.Name))) {
			continue
		}
		if e.Version == "" {
			return f
		}
		f.bytes += e.Size
		fmt.Fprintf(h, "%q %d %q\n", e.Name, e.Size, e.Version)
	}
	f.id = h.Sum(nil)
	return f
}

// ProbedRows is the number of rows that are hashed into the id of statistics.
const ProbedRows = 16

// statisticsID returns the id of the statistics of a column over the selected episodes: a hash of
// the files, the episodes and a few values. Values take part because a mapping or an option of
// opening may derive other values from the same files. The id is zero if the files are unknown.
func (src *Source) statisticsID(
	ctx context.Context,
	files *dataFiles,
	c *column.Column,
) (id cache.Key, err error) {
	if files.id == nil || !c.IsNumericStream() {
		return id, nil
	}
	info := src.Dataset.Info()
	h := sha256.New()
	fmt.Fprintf(
		h,
		"statistics 1 %x %q %q %q %q %q %v %v %+v",
		files.id,
		info.URI,
		info.Version,
		info.Split,
		src.DatasetKey(c.Key),
		c.Feature.Unit,
		c.StoredDType,
		c.Feature.Shape,
		src.Table.Fingerprint(),
	)
	if c.Feature.Derived != "" {
		fmt.Fprintf(h, " derived %s", c.Feature.Derived)
	}
	var rows []robocache.Row
	for i := range min(ProbedRows, src.Table.Len()) {
		e := src.Table.Episode(i * src.Table.Len() / min(ProbedRows, src.Table.Len()))
		n, err := robocache.RowsIn(ctx, src.Dataset, e, c.Feature)
		if err != nil {
			return id, robocache.At(err, robocache.Where{"stream": c.Key})
		}
		if n > 0 {
			rows = append(rows, robocache.Row{Episode: e, Index: n / 2})
		}
	}
	values := make([]byte, len(rows)*c.RowBytes)
	if err := src.Dataset.Gather(ctx, c.Key, rows, values); err != nil {
		return cache.Key{}, nil // the pass over all rows reports the error
	}
	h.Write(values)
	copy(id[:], h.Sum(nil))
	return id, nil
}

// Memory holds the statistics that this process computed.
var Memory = struct {
	sync.Mutex
	M map[cache.Key]*robocache.FeatureStats
}{M: map[cache.Key]*robocache.FeatureStats{}}

// maxRemembered bounds the entries of Memory, each of a few kilobytes.
const maxRemembered = 1024

// lookupStatistics returns statistics that this process, or with a cache directory another one,
// computed before. It returns nil if there are none.
func (f *CacheFolder) lookupStatistics(id cache.Key) *robocache.FeatureStats {
	if id == (cache.Key{}) {
		return nil
	}
	Memory.Lock()
	s := Memory.M[id]
	Memory.Unlock()
	if s != nil {
		return s
	}
	dir, err := f.Open()
	if err != nil || dir == nil {
		return nil // pipeline.New reports the error
	}
	e, ok := dir.Get(id)
	if !ok {
		return nil
	}
	defer e.Release()
	if json.Unmarshal(e.Data, &s) != nil {
		return nil
	}
	return s
}

// storeStatistics stores statistics for the process and in the cache directory, if there is one.
func (f *CacheFolder) storeStatistics(id cache.Key, s *robocache.FeatureStats) {
	if id == (cache.Key{}) {
		return
	}
	Memory.Lock()
	if len(Memory.M) >= maxRemembered {
		clear(Memory.M)
	}
	Memory.M[id] = s
	Memory.Unlock()
	if dir, err := f.Open(); err == nil && dir != nil {
		// JSON has no NaN. Such statistics are not stored, and each process computes them again.
		if text, err := json.Marshal(s); err == nil {
			_ = dir.Put(id, text)
		}
	}
}
