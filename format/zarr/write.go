package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// The arrays with one text per episode: its task, and the recording from which it was made.
const (
	taskArray   = "meta/episode_task"
	sourceArray = "meta/episode_source"
)

// blockBytes is the approximate amount of a stream that is read from the source at a time.
const blockBytes = 16 << 20

// writer writes a replay buffer: data/<name>, meta/episode_ends, meta/episode_task, with one clock.
// The metadata of the root come last, so that an incomplete result is not a store.
type writer struct {
	src     robocache.Dataset
	dst     store.Writable
	opt     robocache.WriteOptions
	rep     *robocache.WriteReport
	streams []*outStream
	times   *outStream
	ends    []int64
	tasks   []string
	sources []string // robocache.Origin of each written episode as JSON
	origins *origin.Tracer
	names   map[string]bool
	work    errgroup.Group // tasks that compress and write chunks
	failed  atomic.Bool    // a task failed; work.Wait returns its error
	ctx     context.Context
	rows    *robocache.RowCounter
}

// Write writes src as a Zarr v2 replay buffer to dst, which must be empty. The streams must share
// one clock (see align.View).
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (rep *robocache.WriteReport, err error) {
	defer crash.Recover("zarr write", &err)
	s, err := store.OpenWritable(dst)
	if err != nil {
		return rep, err
	}
	defer func() {
		if closeErr := store.Close(s); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()
	rep, err = writeTo(ctx, src, s, opt)
	return rep, robocache.At(err, robocache.Where{"dataset": s.URI()})
}

func writeTo(
	ctx context.Context,
	src robocache.Dataset,
	dst store.Writable,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	if err := opt.Check(src.Info()); err != nil {
		return nil, err
	}
	if err := reader.Op("zarr write").Settle(opt.Options, nil, nil); err != nil {
		return nil, err
	}
	if list, err := dst.List(ctx, ""); err != nil {
		return nil, err
	} else if len(list) > 0 {
		return nil, robocache.Misuse(
			"zarr write",
			robocache.Where{"file": list[0].Name},
			"the destination is not empty",
		).
			WithHint("choose an empty folder; what a conversion left that was killed can go")
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	w := &writer{
		ctx:   ctx,
		src:   src,
		dst:   dst,
		opt:   opt,
		rep:   &robocache.WriteReport{},
		names: map[string]bool{"timestamp": true, "task": true},
	}
	w.work.SetLimit(threads)
	err := w.waitForChunks(w.writeEpisodes())
	if err == nil {
		err = w.waitForChunks(func() error {
			if opt.Shard != nil {
				if err := w.endShard(); err != nil {
					return err
				}
				return nil
			}
			if w.times != nil {
				if err := w.timestampArray(
					areExactSeconds(w.times.timestamps),
					func(yield func([]int64) error) error { return yield(w.times.timestamps) },
				); err != nil {
					return err
				}
			}
			return w.writeMetadata(w.rootAttributes())
		}())
	}
	if err != nil {
		w.removeWritten(context.WithoutCancel(ctx))
		return nil, err
	}
	return w.rep, nil
}

// waitForChunks waits for the tasks that write chunks. If a task failed, its error is returned in
// place of err, because it caused the end of the writing.
func (w *writer) waitForChunks(err error) error {
	if werr := w.work.Wait(); err == nil || w.failed.Load() {
		return werr
	}
	return err
}

// removeWritten removes everything that was written before a failure.
func (w *writer) removeWritten(ctx context.Context) {
	list, _ := w.dst.List(ctx, "")
	for _, e := range list {
		_ = w.dst.Remove(ctx, e.Name)
	}
}

// badEpisode is an error of an episode that is skipped.
type badEpisode error

// tolerate runs fn. With SkipBad it returns an error of the data as badEpisode. Any other error
// ends the writing.
func (w *writer) tolerate(where robocache.Where, fn func() error) (badEpisode, error) {
	err := fn()
	if err != nil &&
		(!w.opt.SkipBad || w.ctx.Err() != nil || w.failed.Load() || !robocache.Bad(err)) {
		return nil, robocache.At(err, where)
	}
	return err, nil
}

func (w *writer) writeEpisodes() error {
	eps := reader.Episodes(w.opt.Episodes, w.src.Info().Episodes)
	w.rep.Findings = w.src.Info().SplitsDropped(eps)
	if perRow, err := w.readTasks(eps); err != nil {
		return err
	} else if w.opt.Shard != nil {
		if err := w.enterShard(); err != nil {
			return err
		}
	} else {
		if err := w.planStreams(eps, perRow); err != nil {
			return err
		}
	}
	var rows int64
	w.rows = robocache.NewRowCounter(w.src, eps, w.opt.Progress)
	w.origins = origin.NewTracer(w.src, w.opt)
	for i, e := range eps {
		n := w.src.Len(e)
		if w.opt.SkipBad {
			w.saveMarks()
		}
		var source string
		if err, failed := w.tolerate(
			robocache.Where{"episode": w.src.Info().EpisodeIndex(e)},
			func() error {
				if err := w.writeEpisode(e, n); err != nil {
					return err
				}
				var err error
				if source, err = w.origins.Text(w.ctx, e); err != nil {
					return err
				}
				return nil
			},
		); failed != nil {
			return failed
		} else if err != nil {
			w.rewind()
			w.addFinding(
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "episode-skipped",
					Where:    robocache.Where{"episode": w.src.Info().EpisodeIndex(e)},
					Message:  err.Error(),
				},
			)
			w.tasks[i] = skipped
			w.rows.Finish(e)
			continue
		}
		w.sources = append(w.sources, source)
		rows += int64(n)
		w.ends = append(w.ends, rows)
		w.rep.Episodes++
		w.rep.Frames = rows
		w.rows.Finish(e)
	}
	for _, s := range w.allStreams() {
		w.flushChunk(s)
	}
	return nil
}

// skipped replaces the task of a skipped episode: no text contains a NUL.
const skipped = "\x00"

func (w *writer) addFinding(f robocache.Finding) { w.rep.Findings = append(w.rep.Findings, f) }

func (w *writer) allStreams() []*outStream {
	if w.times == nil {
		return w.streams
	}
	return append([]*outStream{w.times}, w.streams...)
}

// readTasks reads the task of each episode, and reports whether an episode has several.
func (w *writer) readTasks(eps []int) (perRow bool, err error) {
	w.tasks = make([]string, len(eps))
	for i, e := range eps {
		// The error is reported when the rows are read.
		if _, err := w.tolerate(
			robocache.Where{"episode": w.src.Info().EpisodeIndex(e)},
			func() error {
				ep, err := w.src.Episode(w.ctx, e)
				if err != nil {
					return err
				}
				if len(ep.Tasks) > 0 {
					w.tasks[i] = ep.Tasks[0]
				}
				perRow = perRow || len(ep.Tasks) > 1
				return nil
			},
		); err != nil {
			return perRow, err
		}
	}
	return perRow, nil
}

// planStreams decides which streams become arrays.
func (w *writer) planStreams(eps []int, perRow bool) error {
	info := w.src.Info()
	if robocache.KeepsTime(w.ctx, w.src) {
		w.times = w.newStream(
			&robocache.Feature{
				Key:   "timestamp",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float64,
				Shape: []int{1},
			},
			"timestamp",
		)
	}
	for i := range info.Features {
		f := &info.Features[i]
		if !w.opt.Wants(f) || f.Key == "timestamp" {
			continue
		}
		s, why, err := w.prepareStream(f, eps)
		if err != nil {
			return err
		}
		if why != "" {
			w.rep.Dropped = append(w.rep.Dropped, f.Key)
			w.addFinding(
				robocache.Finding{
					Severity: robocache.SeverityWarning,
					Code:     "stream-dropped",
					Where:    robocache.Where{"stream": f.Key},
					Message:  why,
				},
			)
			continue
		}
		w.streams = append(w.streams, s)
		if f.Masked {
			if w.src.Capabilities().Valid != nil {
				m := w.newStream(
					&robocache.Feature{
						Key:   f.Key,
						Kind:  robocache.KindNumeric,
						DType: robocache.Bool,
						Shape: []int{1},
					},
					s.name+"_valid",
				)
				m.mask, m.attrs = true, map[string]any{"robocache_mask_of": f.Key}
				w.streams = append(w.streams, m)
			}
		}
	}
	if len(w.streams) == 0 && len(w.rep.Dropped) > 0 {
		return robocache.Unsupported(
			"zarr write",
			robocache.Where{"dataset": info.URI},
			"no stream of the dataset can be written: %v is left out",
			w.rep.Dropped,
		).
			WithHint(
				"formats that keep point clouds and clocks: %s",
				robocache.Option("to", "mcap"),
			)
	}
	if perRow && info.Feature("task") == nil {
		s := w.newStream(
			&robocache.Feature{
				Key:   "task",
				Kind:  robocache.KindText,
				DType: robocache.String,
				Shape: []int{1},
			},
			"task",
		)
		w.streams = append(w.streams, s)
	}
	return nil
}

// arrayName returns a unique array name for the key of a stream.
func (w *writer) arrayName(key string) string {
	n := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' || r == '\\' {
			return '.'
		}
		return r
	}, strings.TrimPrefix(key, "observation."))
	if n = strings.Trim(n, "."); n == "" {
		n = "stream"
	}
	for i, base := 2, n; w.names[n]; i++ {
		n = fmt.Sprintf("%s.%d", base, i)
	}
	w.names[n] = true
	return n
}

// prepareStream returns the array of a feature. If there is none, why contains the reason.
func (w *writer) prepareStream(
	f *robocache.Feature,
	eps []int,
) (s *outStream, why string, err error) {
	if f.Clock != "" {
		return nil, "it is on a clock of its own; a replay buffer has one", nil
	}
	if why := whyDropped(f); why != "" {
		return nil, why, nil
	}
	if f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo {
		return w.prepareImages(f, eps)
	}
	return w.newStream(f, w.arrayName(f.Key)), "", nil
}

// whyDropped returns the reason why a replay buffer cannot store a stream, or "". It does not
// consider the clock of the stream.
func whyDropped(f *robocache.Feature) string {
	switch {
	case f.Ragged():
		return "its rows vary in length"
	case f.Kind == robocache.KindNumeric && numpyType(f.DType) == "":
		return "NumPy has no " + f.DType.String()
	case f.Kind == robocache.KindText,
		f.Kind == robocache.KindEvent,
		f.Kind == robocache.KindNumeric,
		f.Kind == robocache.KindImage,
		f.Kind == robocache.KindVideo:
		return ""
	}
	return "streams of kind " + string(f.Kind) + " are not written"
}

// writeEpisode copies the rows of one episode, all streams in parallel.
func (w *writer) writeEpisode(e, n int) error {
	g, ctx := errgroup.WithContext(w.ctx)
	streams := w.allStreams()
	for _, s := range streams {
		g.Go(crash.Func("zarr write", func() (err error) {
			defer robocache.LocateIn(&err, "stream", s.f.Key)
			step := max(1, blockBytes/max(s.rowBytes, 64))
			for from := 0; from < n; from += step {
				to := min(from+step, n)
				if err := w.copyRows(ctx, s, reader.Rows(e, from, to)); err != nil {
					return err
				}
				w.rows.Advance(e, float64(to-from)/float64(n*len(streams)))
			}
			return nil
		}))
	}
	return g.Wait()
}

// copyRows reads a block of a stream and appends it.
func (w *writer) copyRows(ctx context.Context, s *outStream, rows []robocache.Row) error {
	switch {
	case s == w.times:
		t, err := w.src.Times(ctx, rows[0].Episode, "")
		if err != nil {
			return err
		}
		if last := rows[len(rows)-1].Index; last >= len(t) {
			return bad("%d timestamps for %d rows", len(t), last+1)
		}
		s.timestamps = append(s.timestamps, t[rows[0].Index:rows[0].Index+len(rows)]...)
	case s.mask:
		b := make([]byte, len(rows))
		if err := robocache.Valid(ctx, w.src, s.f.Key, rows, b); err != nil {
			return err
		}
		if err := w.appendRows(s, b); err != nil {
			return err
		}
	case s.text:
		text, err := w.src.Text(ctx, s.f.Key, rows)
		if err != nil {
			return err
		}
		if err := w.appendTexts(s, text); err != nil {
			return err
		}
	case s.f.Kind == robocache.KindNumeric:
		b := make([]byte, len(rows)*s.rowBytes)
		if err := w.src.Gather(ctx, s.f.Key, rows, b); err != nil {
			return err
		}
		if err := w.appendRows(s, b); err != nil {
			return err
		}
	default:
		if err := w.copyImages(ctx, s, rows); err != nil {
			return err
		}
	}
	return nil
}

// areExactSeconds reports whether timestamps converted to float seconds keep every nanosecond.
func areExactSeconds(timestamps []int64) bool {
	return !slices.ContainsFunc(timestamps, func(t int64) bool {
		whole, rest := math.Modf(float64(t) / 1e9)
		return int64(whole)*1e9+int64(math.RoundToEven(rest*1e9)) != t
	})
}

// timestampArray writes timestamps as float seconds, as replay buffers do, if that keeps every
// nanosecond. Otherwise it writes integers.
func (w *writer) timestampArray(exact bool, each func(yield func([]int64) error) error) error {
	s := w.times
	s.attrs = map[string]any{"unit": "s"}
	if !exact {
		s.f.DType, s.attrs["unit"] = robocache.Int64, "ns"
	}
	if err := each(func(timestamps []int64) error {
		for part := range slices.Chunk(timestamps, 1<<16) {
			b := make([]byte, 0, 8*len(part))
			for _, t := range part {
				v := uint64(t)
				if exact {
					v = math.Float64bits(float64(t) / 1e9)
				}
				b = le.AppendUint64(b, v)
			}
			if err := w.appendRows(s, b); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	w.flushChunk(s)
	return nil
}

// rootAttributes returns the attributes of the root.
func (w *writer) rootAttributes() map[string]any {
	root := map[string]any{"writer": "robocache"}
	info := w.src.Info()
	if !info.FPS.Zero() {
		root["fps"] = info.FPS
	}
	if info.Robot != "" {
		root["robot_type"] = info.Robot
	}
	return root
}

// reportMissing adds a finding for the rows of a camera that have no image.
func (w *writer) reportMissing(s *outStream) {
	if s.missing > 0 {
		w.addFinding(
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "images-missing",
				Where:    robocache.Where{"stream": s.f.Key},
				Message:  fmt.Sprintf("%d rows have no image; they are black", s.missing),
				Count:    s.missing,
			},
		)
	}
}

// writeMetadata writes the ends, tasks and sources, and then the metadata. The root comes last.
func (w *writer) writeMetadata(root map[string]any) error {
	ends := w.newStream(
		&robocache.Feature{Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}},
		"",
	)
	ends.dir, ends.chunkRows = "meta/episode_ends", max(len(w.ends), 1)
	for _, e := range w.ends {
		ends.buf = le.AppendUint64(ends.buf, uint64(e))
		ends.bufferedRows++
	}
	w.flushChunk(ends)
	arrays := append(w.allStreams(), ends)
	tasks := slices.DeleteFunc(w.tasks, func(t string) bool { return t == skipped })
	for _, of := range []struct {
		dir   string
		texts []string
	}{{taskArray, tasks}, {sourceArray, w.sources}} {
		if !slices.ContainsFunc(of.texts, func(t string) bool { return t != "" }) {
			continue
		}
		s := w.newStream(
			&robocache.Feature{Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}},
			"",
		)
		s.dir = of.dir
		if err := w.appendTexts(s, of.texts); err != nil {
			return err
		}
		w.flushChunk(s)
		arrays = append(arrays, s)
	}
	if err := w.work.Wait(); err != nil {
		return err
	}
	group := json.RawMessage(`{"zarr_format": 2}`)
	meta := map[string]any{
		".zgroup":      group,
		"data/.zgroup": group,
		"meta/.zgroup": group,
		".zattrs":      root,
	}
	for _, s := range arrays {
		if err := w.pruneChunks(s); err != nil {
			return err
		}
		meta[path.Join(s.dir, metaV2Name)] = s.arrayMetadata()
		if a := s.attributes(); a != nil {
			meta[path.Join(s.dir, attrsV2Name)] = a
		}
		w.rep.Bytes += s.bytes.Load()
		w.reportMissing(s)
	}
	for name, v := range meta {
		if name != ".zgroup" {
			if err := w.putJSON(name, v); err != nil {
				return err
			}
		}
	}
	if err := w.putJSON(consolidated,
		map[string]any{"zarr_consolidated_format": 1, "metadata": meta}); err != nil {
		return err
	}
	return w.putJSON(".zgroup", group)
}

func (w *writer) putJSON(name string, v any) error {
	encoded, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	return w.putFile(name, encoded)
}

func (w *writer) putFile(name string, b []byte) error { return store.Put(w.ctx, w.dst, name, b) }
