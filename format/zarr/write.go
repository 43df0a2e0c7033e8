package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// blockBytes is about how much of a stream is read from the source at a time.
const blockBytes = 16 << 20

// writer writes a replay buffer: data/<name>, meta/episode_ends, meta/episode_task, one clock. The root's metadata come last, so that
// what is not whole is no store.
type writer struct {
	src     robocache.Dataset
	dst     store.Writable
	opt     robocache.WriteOptions
	rep     *robocache.WriteReport
	streams []*outStream
	times   *outStream
	ends    []int64
	tasks   []string
	names   map[string]bool
	work    errgroup.Group // packs and writes chunks
	failed  atomic.Bool    // one of them could not: work.Wait says why
	ctx     context.Context
}

// Write writes src as a Zarr v2 replay buffer at dst, which must be empty. Streams must share one clock (align.View makes them).
func Write(ctx context.Context, src robocache.Dataset, dst string, opt robocache.WriteOptions) (rep *robocache.WriteReport, err error) {
	defer guard.Malformed("zarr write", &err)
	s, err := store.OpenWritable(dst)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close(s)) }()
	rep, err = writeTo(ctx, src, s, opt)
	return rep, robocache.At(err, robocache.Where{"dataset": s.URI()})
}

func writeTo(ctx context.Context, src robocache.Dataset, dst store.Writable, opt robocache.WriteOptions) (*robocache.WriteReport, error) {
	for k := range opt.Options {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "zarr write", Where: robocache.Where{"option": k}, Msg: "the writer has no options"}
	}
	if list, err := dst.List(ctx, ""); err != nil {
		return nil, err
	} else if len(list) > 0 {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "zarr write", Where: robocache.Where{"file": list[0].Name}, Msg: "the destination is not empty", Hint: "choose an empty folder; what a conversion left that was killed can go"}
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	w := &writer{src: src, dst: dst, opt: opt, rep: &robocache.WriteReport{}, names: map[string]bool{"timestamp": true, "task": true}}
	w.ctx = ctx
	w.work.SetLimit(threads)
	err := w.run()
	if werr := w.work.Wait(); err == nil || w.failed.Load() {
		err = werr
	}
	if err == nil {
		err = w.finish(ctx)
	}
	if err != nil {
		w.clean(context.WithoutCancel(ctx))
		return nil, err
	}
	return w.rep, nil
}

// clean takes away what was written before the failure.
func (w *writer) clean(ctx context.Context) {
	list, err := w.dst.List(ctx, "")
	if err != nil {
		return
	}
	for _, e := range list {
		_ = w.dst.Remove(ctx, e.Name)
	}
}

func (w *writer) run() error {
	eps := w.opt.Episodes
	if eps == nil {
		for e := range w.src.Info().Episodes {
			eps = append(eps, e)
		}
	}
	w.rep.Findings = w.src.Info().SplitsDropped(eps)
	perRow, err := w.readTasks(eps)
	if err != nil {
		return err
	}
	if err := w.plan(eps, perRow); err != nil {
		return err
	}
	var rows int64
	for i, e := range eps {
		n := w.src.Len(e)
		if w.opt.SkipBad {
			w.mark()
		}
		if err := w.episode(e, n); err != nil {
			if w.ctx.Err() != nil || w.failed.Load() || !w.opt.SkipBad {
				return robocache.At(err, robocache.Where{"episode": e})
			}
			w.rewind()
			w.find(robocache.Finding{Severity: robocache.SeverityError, Code: "episode-skipped", Where: robocache.Where{"episode": e}, Message: err.Error()})
			w.tasks[i] = skipped
			continue
		}
		rows += int64(n)
		w.ends = append(w.ends, rows)
		w.rep.Episodes++
		w.rep.Frames = rows
		if w.opt.Progress != nil {
			w.opt.Progress(i+1, len(eps))
		}
	}
	for _, s := range w.all() {
		w.flush(s)
	}
	return nil
}

// skipped stands for the task of an episode that was left out: no text has a NUL.
const skipped = "\x00"

func (w *writer) find(f robocache.Finding) { w.rep.Findings = append(w.rep.Findings, f) }

func (w *writer) all() []*outStream {
	if w.times == nil {
		return w.streams
	}
	return append([]*outStream{w.times}, w.streams...)
}

// readTasks reads each episode's task, and says whether some episode has several.
func (w *writer) readTasks(eps []int) (perRow bool, err error) {
	w.tasks = make([]string, len(eps))
	for i, e := range eps {
		ep, err := w.src.Episode(w.ctx, e)
		if err != nil {
			if w.opt.SkipBad && w.ctx.Err() == nil {
				continue // reading its rows says why
			}
			return false, robocache.At(err, robocache.Where{"episode": e})
		}
		if len(ep.Tasks) > 0 {
			w.tasks[i] = ep.Tasks[0]
		}
		perRow = perRow || len(ep.Tasks) > 1
	}
	return perRow, nil
}

// plan decides what becomes an array.
func (w *writer) plan(eps []int, perRow bool) error {
	info := w.src.Info()
	if robocache.KeepsTime(w.ctx, w.src) {
		w.times = w.stream(&robocache.Feature{Key: "timestamp", Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{1}}, "timestamp")
	}
	keep := map[string]bool{}
	for _, k := range w.opt.Keys {
		if info.Feature(k) == nil {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "zarr write", Where: robocache.Where{"stream": k}, Msg: "no such stream"}
		}
		keep[k] = true
	}
	for i := range info.Features {
		f := &info.Features[i]
		if w.opt.Keys != nil && !keep[f.Key] || w.opt.Keys == nil && f.Default || f.Key == "timestamp" {
			continue
		}
		s, why, err := w.prepare(f, eps)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
		if why != "" {
			w.rep.Dropped = append(w.rep.Dropped, f.Key)
			w.find(robocache.Finding{Severity: robocache.SeverityWarning, Code: "stream-dropped", Where: robocache.Where{"stream": f.Key}, Message: why})
			continue
		}
		w.streams = append(w.streams, s)
		if f.Masked {
			if _, ok := robocache.As[robocache.Masker](w.src); ok {
				m := w.stream(&robocache.Feature{Key: f.Key, Kind: robocache.KindNumeric, DType: robocache.Bool, Shape: []int{1}}, s.name+"_valid")
				m.mask, m.attrs = true, map[string]any{"robocache_mask_of": f.Key}
				w.streams = append(w.streams, m)
			}
		}
	}
	if len(w.streams) == 0 && len(w.rep.Dropped) > 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr write", Where: robocache.Where{"dataset": info.URI}, Msg: fmt.Sprintf("no stream of the dataset can be written: %v is left out", w.rep.Dropped), Hint: "formats that keep point clouds and clocks: convert --to mcap"}
	}
	if perRow && info.Feature("task") == nil {
		s := w.stream(&robocache.Feature{Key: "task", Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}}, "task")
		w.streams = append(w.streams, s)
	}
	return nil
}

// name makes an array's name of a stream's key.
func (w *writer) name(key string) string {
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

// prepare makes the array of a feature, or says why there is none.
func (w *writer) prepare(f *robocache.Feature, eps []int) (s *outStream, why string, err error) {
	switch {
	case f.Clock != "":
		return nil, "it is on a clock of its own; a replay buffer has one", nil
	case f.Ragged():
		return nil, "its rows vary in length", nil
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		return w.stream(f, w.name(f.Key)), "", nil
	case f.Kind == robocache.KindNumeric:
		if descr(f.DType) == "" {
			return nil, "NumPy has no " + f.DType.String(), nil
		}
		return w.stream(f, w.name(f.Key)), "", nil
	case f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo:
		return w.prepareImages(f, eps)
	}
	return nil, "streams of kind " + string(f.Kind) + " are not written", nil
}

// episode copies one episode's rows, all streams at the same time.
func (w *writer) episode(e, n int) error {
	g, ctx := errgroup.WithContext(w.ctx)
	for _, s := range w.all() {
		g.Go(func() (err error) {
			defer guard.Malformed("zarr write", &err)
			step := max(1, blockBytes/max(s.row, 64))
			for from := 0; from < n; from += step {
				rows := make([]robocache.Row, min(step, n-from))
				for i := range rows {
					rows[i] = robocache.Row{Episode: e, Index: from + i}
				}
				if err := w.copyRows(ctx, s, rows); err != nil {
					return robocache.At(err, robocache.Where{"stream": s.f.Key})
				}
			}
			return nil
		})
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
			return malformed("%d timestamps for %d rows", len(t), last+1)
		}
		s.timestamps = append(s.timestamps, t[rows[0].Index:rows[0].Index+len(rows)]...)
		return nil
	case s.mask:
		m, _ := robocache.As[robocache.Masker](w.src)
		b := make([]byte, len(rows))
		if err := m.Valid(ctx, s.f.Key, rows, b); err != nil {
			return err
		}
		return w.append(s, b)
	case s.f.Kind == robocache.KindText || s.f.Kind == robocache.KindEvent:
		t, err := w.src.Text(ctx, s.f.Key, rows)
		if err != nil {
			return err
		}
		return w.appendTexts(s, t)
	case s.f.Kind == robocache.KindNumeric:
		b := make([]byte, len(rows)*s.row)
		if err := w.src.Gather(ctx, s.f.Key, rows, b); err != nil {
			return err
		}
		return w.append(s, b)
	}
	return w.copyImages(ctx, s, rows)
}

// stampArray settles how timestamps are kept: as seconds, as replay buffers do, where that keeps every nanosecond; else as integers.
func (w *writer) timestampArray() error {
	s := w.times
	if s == nil {
		return nil
	}
	exact := true
	for _, t := range s.timestamps {
		whole, rest := math.Modf(float64(t) / 1e9)
		if int64(whole)*1e9+int64(math.RoundToEven(rest*1e9)) != t {
			exact = false
			break
		}
	}
	s.attrs = map[string]any{"unit": "s"}
	if !exact {
		s.f.DType, s.attrs["unit"] = robocache.Int64, "ns"
	}
	for len(s.timestamps) > 0 {
		n := min(len(s.timestamps), 1<<16)
		b := make([]byte, 0, 8*n)
		for _, t := range s.timestamps[:n] {
			v := uint64(t)
			if exact {
				v = math.Float64bits(float64(t) / 1e9)
			}
			b = le.AppendUint64(b, v)
		}
		s.timestamps = s.timestamps[n:]
		if err := w.append(s, b); err != nil {
			return err
		}
	}
	w.flush(s)
	return nil
}

// finish writes what describes the arrays; the root comes last.
func (w *writer) finish(ctx context.Context) error {
	if err := w.timestampArray(); err != nil {
		return err
	}
	ends := w.stream(&robocache.Feature{Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}}, "")
	ends.dir, ends.per = "meta/episode_ends", max(len(w.ends), 1)
	for _, e := range w.ends {
		ends.buf = le.AppendUint64(ends.buf, uint64(e))
		ends.count++
	}
	w.flush(ends)
	arrays := append(w.all(), ends)
	var tasks []string
	some := false
	for _, t := range w.tasks {
		if t != skipped {
			tasks = append(tasks, t)
			some = some || t != ""
		}
	}
	if some {
		s := w.stream(&robocache.Feature{Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}}, "")
		s.dir = "meta/episode_task"
		if err := w.appendTexts(s, tasks); err != nil {
			return err
		}
		w.flush(s)
		arrays = append(arrays, s)
	}
	if err := w.work.Wait(); err != nil {
		return err
	}
	group := json.RawMessage(`{"zarr_format": 2}`)
	root := map[string]any{"writer": "robocache"}
	info := w.src.Info()
	if !info.FPS.Zero() {
		root["fps"] = info.FPS
	}
	if info.Robot != "" {
		root["robot_type"] = info.Robot
	}
	meta := map[string]any{".zgroup": group, "data/.zgroup": group, "meta/.zgroup": group, ".zattrs": root}
	for _, s := range arrays {
		if err := w.prune(s); err != nil {
			return err
		}
		meta[path.Join(s.dir, metaV2Name)] = s.meta()
		if a := s.attributes(); a != nil {
			meta[path.Join(s.dir, attrsV2Name)] = a
		}
		w.rep.Bytes += s.bytes.Load()
		if s.missing > 0 {
			w.find(robocache.Finding{Severity: robocache.SeverityWarning, Code: "images-missing", Where: robocache.Where{"stream": s.f.Key}, Message: fmt.Sprintf("%d rows have no image; they are black", s.missing), Count: s.missing})
		}
	}
	for name, v := range meta {
		if name == ".zgroup" {
			continue
		}
		if err := w.putJSON(name, v); err != nil {
			return err
		}
	}
	if err := w.putJSON(consolidated, map[string]any{"zarr_consolidated_format": 1, "metadata": meta}); err != nil {
		return err
	}
	return w.putJSON(".zgroup", group)
}

func (w *writer) putJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	return w.put(name, b)
}

func (w *writer) put(name string, b []byte) error {
	f, err := w.dst.Create(w.ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Commit()
}
