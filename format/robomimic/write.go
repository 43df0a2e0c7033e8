package robomimic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// writeOptions are the keys of WriteOptions.Options that Write knows.
var writeOptions = map[string]string{
	"compression":   "of images: none (default), gzip, or gzip:1 to gzip:9; an image is a chunk",
	"next_obs":      "true: next_obs/<key> too, each row that of the step after it (robomimic's load_next_obs)",
	"timestamps":    "true: streams keep their own clocks and timestamps, as <name>_timestamps beside each",
	"scale_actions": "true: each dimension of the actions is scaled onto [-1, 1]; the attributes actions_scale and actions_offset of data take it back",
}

// Write writes a dataset in robomimic's layout, one HDF5 file: dst, or demos.hdf5 in it where dst
// has no ending of HDF5.
//
// Streams of the rows' own clock are written: observation.<key> as obs/<key>, action as actions,
// next.reward and next.done as rewards and dones, others by their key. Images become pixels: uint8,
// depth as uint16 or float32 (metres, of video). Timestamps are not kept but as control_freq, and
// by option timestamps as <name>_timestamps: then streams on clocks of their own are written too.
// Tasks are in ep_meta ("lang"); splits become masks. A demo has no data set for a stream that its
// episode lacks (robocache.Capabilities.Lacks).
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (report *robocache.WriteReport, err error) {
	defer crash.Recover("robomimic write", &err)
	w := &writer{ctx: ctx, src: src, opt: opt, info: src.Info(), report: &robocache.WriteReport{}}
	if err := w.settle(); err != nil {
		return report, err
	}
	dir, name := filepath.Split(dst)
	if !h5set.IsFile(name) {
		dir, name = dst, "demos.hdf5"
	}
	if opt.Shard != nil {
		name = fmt.Sprintf("demos_%05d.hdf5", opt.Shard.Index)
	}
	s, err := store.OpenWritable(cmp.Or(dir, "."))
	if err != nil {
		return report, err
	}
	defer store.Close(s)
	taken := robocache.Misuse("write robomimic", robocache.Where{"dataset": robocache.Redact(dst)}, "there is a file here already").
		WithHint("choose another name")
	if _, err := s.Stat(ctx, name); err == nil {
		return nil, taken
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	out, err := store.CreateNew(ctx, s, name)
	if err != nil {
		return report, err
	}
	defer out.Abort()
	w.file = h5.NewWriter(out)
	if err := w.write(); err != nil {
		return report, err
	}
	if err := w.file.Close(); err != nil {
		return report, err
	}
	w.report.Bytes = w.file.Size()
	if err := out.Commit(); errors.Is(err, store.ErrExists) {
		return nil, taken
	} else if err != nil {
		return nil, err
	}
	return w.report, nil
}

// sharding: a shard is a file; those of all are a dataset of files, in their order.
var sharding = robocache.Sharding{
	Kept:       h5set.IsFile,
	Unfinished: reader.Unfinished,
	Plan: func(ctx context.Context, src robocache.Dataset, opt robocache.WriteOptions) (_ json.RawMessage, err error) {
		defer crash.Recover("plan", &err)
		w := &writer{
			ctx:    ctx,
			src:    src,
			opt:    opt,
			info:   src.Info(),
			report: &robocache.WriteReport{},
		}
		if err := w.settle(); err != nil {
			return nil, err
		}
		if w.scales {
			return nil, robocache.Unsupported("plan", nil, "scale_actions in shards: the range of the actions is that of all of them").
				WithHint("convert in one run, or leave scaling to training")
		}
		return json.RawMessage("{}"), nil
	},
}

// writer is one call of Write.
type writer struct {
	ctx      context.Context
	src      robocache.Dataset
	opt      robocache.WriteOptions
	info     *robocache.Info
	report   *robocache.WriteReport
	file     *h5.Writer
	streams  []outStream
	rows     *robocache.RowCounter
	origins  *origin.Tracer
	deflate  int
	next     bool
	clocks   bool // streams keep theirs
	scales   bool // the actions
	acts     actions
	demos    map[int]string // source position → name
	worst    int64          // ns that a timestamp is off the grid
	offGrid  int64          // timestamps that are
	manyTask int64
}

// outStream is a feature and its place in a demo.
type outStream struct {
	*robocache.Feature
	group, name string // "obs" or ""
}

func (w *writer) find(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	count int64,
	msg, hint string,
) {
	w.report.Findings = append(
		w.report.Findings,
		robocache.Finding{
			Severity: sev,
			Code:     code,
			Where:    where,
			Count:    count,
			Message:  msg,
			Hint:     hint,
		},
	)
}

// settle reads the options and chooses the streams.
func (w *writer) settle() error {
	if err := reader.Op("write robomimic").
		Settle(w.opt.Options, writeOptions, map[string]reader.Set{
			"next_obs":      reader.Yes(&w.next),
			"scale_actions": reader.Yes(&w.scales),
			"timestamps":    reader.Yes(&w.clocks),
			"compression": func(v string) bool {
				level, gzip := strings.CutPrefix(v, "gzip")
				if !gzip || level == "" {
					w.deflate = map[bool]int{true: 4}[gzip]
					return gzip || v == "" || v == "none"
				}
				return reader.Whole(&w.deflate, 1, 9)(strings.TrimPrefix(level, ":")) &&
					level[0] == ':'
			},
		}); err != nil {
		return err
	}
	if err := w.opt.Check(w.info); err != nil {
		return err
	}
	taken := map[string]string{} // where in a demo → the stream
	for i := range w.info.Features {
		f := &w.info.Features[i]
		if !w.opt.Wants(f) {
			continue
		}
		s := outStream{Feature: f}
		s.group, s.name = place(f.Key)
		why := ""
		switch {
		case f.Clock != "" && !w.clocks:
			why = "it has a clock of its own: give all streams one (" + robocache.Option(
				"hz",
			) + "), or keep them (" +
				robocache.Option(
					"write_option",
					"timestamps",
					true,
				) + ")"
		case whyDropped(f) != "":
			why = whyDropped(f)
		case taken[s.group+"/"+s.name] != "":
			why = "its place is that of " + taken[s.group+"/"+s.name]
		case s.group == "" && (s.name == "obs" || s.name == "next_obs"):
			why = "that is the name of a group of robomimic's"
		case s.group == "next_obs" && w.next:
			why = "next_obs is made of obs"
		}
		if why != "" {
			w.report.Dropped = append(w.report.Dropped, f.Key)
			w.find(
				robocache.SeverityWarning,
				"stream-dropped",
				robocache.Where{"stream": f.Key},
				0,
				"the stream is left out: "+why,
				"",
			)
			continue
		}
		if f.Masked {
			w.find(
				robocache.SeverityWarning,
				"mask-lost",
				robocache.Where{"stream": f.Key},
				0,
				"rows without a value are written as zeros",
				"",
			)
		}
		taken[s.group+"/"+s.name] = f.Key
		if s.group == "" && s.name == "actions" && f.Kind == robocache.KindNumeric &&
			f.DType != robocache.Bool {
			w.acts.f = f
		}
		w.streams = append(w.streams, s)
	}
	if len(w.streams) == 0 && len(w.report.Dropped) > 0 {
		return robocache.Unsupported("write robomimic", robocache.Where{"dataset": w.src.Info().URI}, "no stream of the dataset can be written: %v is left out", w.report.Dropped).
			WithHint("formats that keep point clouds and clocks: %s", robocache.Option("to", "mcap"))
	}
	for i := range w.streams {
		s := &w.streams[i]
		if twin := taken[s.group+"/"+s.name+h5set.TimestampsSuffix]; w.clocks && twin != "" {
			return robocache.Misuse("write robomimic", robocache.Where{"stream": twin}, "its place is that of the timestamps of %s", s.Key).
				WithHint("leave it out (%s), or rename it by a mapping (%s)", robocache.Option("keys"), robocache.Option("map"))
		}
	}
	if taken["/actions"] == "" {
		w.find(
			robocache.SeverityWarning,
			"no-actions",
			nil,
			0,
			"no stream is named action: robomimic wants actions",
			"name it by a mapping ("+robocache.Option("map")+")",
		)
	}
	return nil
}

// place is where a stream lies in a demo: the twin of keyOf.
func place(key string) (group, name string) {
	if name, ok := map[string]string{"action": "actions", "next.reward": "rewards", "next.done": "dones"}[key]; ok {
		return "", name
	}
	for prefix, g := range map[string]string{"observation.": "obs", "next.observation.": "next_obs"} {
		if rest, ok := strings.CutPrefix(key, prefix); ok && rest != "" {
			return g, strings.ReplaceAll(rest, "/", ".")
		}
	}
	return "", strings.ReplaceAll(key, "/", ".")
}

func (w *writer) write() error {
	episodes := reader.Episodes(w.opt.Episodes, w.info.Episodes)
	if w.scales && w.acts.f == nil {
		return robocache.Misuse("write robomimic", nil, "there are no actions to scale").
			Expected("a numeric stream named action", "").
			WithHint("leave %s out, or name the stream by a mapping (%s)", robocache.Option("scale_actions"), robocache.Option("map"))
	}
	if w.scales {
		if err := w.measure(w.acts.f, episodes); err != nil {
			return err
		}
	}
	data, err := w.file.Root().Group("data")
	if err != nil {
		return err
	}
	w.demos = map[int]string{}
	w.rows = robocache.NewRowCounter(w.src, episodes, w.opt.Progress)
	w.origins = origin.NewTracer(w.src, w.opt)
	for _, e := range episodes {
		if err, failed := w.bearable(
			robocache.Where{"episode": w.info.EpisodeIndex(e)},
			func() error { return w.demo(data, e) },
		); failed != nil {
			return failed
		} else if err != nil {
			w.find(
				robocache.SeverityError,
				"episode-skipped",
				robocache.Where{"episode": w.info.EpisodeIndex(e)},
				0,
				err.Error(),
				"",
			)
		}
		w.rows.Finish(e)
	}
	if err := w.closeActions(data); err != nil {
		return err
	}
	if w.clocks {
		if err := data.Attribute(h5set.TimestampsAttribute, h5set.TimestampsSuffix); err != nil {
			return err
		}
	}
	env, err := w.env()
	if err != nil {
		return err
	}
	if err := errors.Join(
		data.Attribute("total", w.report.Frames),
		data.Attribute("env_args", env),
		data.Close(),
	); err != nil {
		return err
	}
	if err := w.masks(); err != nil {
		return err
	}
	if w.offGrid > 0 {
		w.find(
			robocache.SeverityWarning,
			"timestamps-not-kept",
			nil,
			w.offGrid,
			fmt.Sprintf(
				"recorded timestamps are up to %.3g ms off the grid of %s Hz that the file stands for",
				float64(w.worst)/1e6,
				w.info.FPS,
			),
			"keep them ("+robocache.Option(
				"write_option",
				"timestamps",
				true,
			)+"), or bring the streams onto a grid first ("+robocache.Option(
				"hz",
			)+")",
		)
	}
	if w.manyTask > 0 {
		w.find(
			robocache.SeverityWarning,
			"tasks-lost",
			nil,
			w.manyTask,
			"episodes have several tasks: robomimic knows one a demo, the first is its lang",
			"",
		)
	}
	return nil
}

// badEpisode is an error of an episode that is left out.
type badEpisode error

// bearable runs fn. With SkipBad it returns an error of the data. Any other error ends the writing.
func (w *writer) bearable(where robocache.Where, fn func() error) (badEpisode, error) {
	err := fn()
	if err != nil && (w.ctx.Err() != nil || !w.opt.SkipBad || !robocache.Bad(err)) {
		return nil, robocache.At(err, where)
	}
	return err, nil
}

// environment is a source that knows env_args.
type environment interface {
	EnvArgs(file int) json.RawMessage
}

// env is env_args: the source's own, or what is known.
func (w *writer) env() (string, error) {
	if from, ok := robocache.As[environment](w.src); ok {
		if raw := from.EnvArgs(0); raw != nil && w.sameRate(raw) {
			return string(raw), nil
		}
	}
	kwargs := map[string]any{}
	if w.info.FPS.Zero() && !w.clocks {
		w.find(
			robocache.SeverityWarning,
			"no-rate",
			nil,
			0,
			"nothing says the rate of the rows: control_freq is left out",
			"name it when reading: "+robocache.Option("rows_hz"),
		)
	} else if !w.info.FPS.Zero() {
		kwargs["control_freq"] = w.info.FPS.Float()
	}
	if w.info.Robot != "" {
		kwargs["robots"] = []string{w.info.Robot}
	}
	encoded, err := json.Marshal(
		map[string]any{"env_name": "", "env_type": 2, "type": 2, "env_kwargs": kwargs},
	)
	if err != nil {
		return "", err
	}
	return string(encoded), nil // 2: a gym, which needs no simulator to be read
}

func (w *writer) sameRate(raw json.RawMessage) bool {
	var env struct {
		Kw struct {
			Freq json.Number `json:"control_freq"`
		} `json:"env_kwargs"`
	}
	if json.Unmarshal(raw, &env) != nil {
		return false
	}
	r, err := robocache.RateOf(string(env.Kw.Freq))
	return err == nil && r == w.info.FPS
}

// masks writes the splits: "0:3,5:6" is demos of the positions 0, 1, 2 and 5.
func (w *writer) masks() error {
	if len(w.info.Splits) == 0 {
		return nil
	}
	mask, err := w.file.Root().Group("mask")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.info.Splits)) {
		var demos []string
		width := 1
		episodes, err := w.info.SplitEpisodes(name)
		if err != nil {
			w.find(robocache.SeverityWarning, "split-not-kept", nil, 0, err.Error(), "")
			continue
		}
		for _, e := range episodes {
			if demo := w.demos[e]; demo != "" {
				demos = append(demos, demo)
				width = max(width, len(demo))
			}
		}
		if err := texts(
			mask,
			strings.ReplaceAll(name, "/", "."),
			h5.Spec{Fixed: width},
			demos,
		); err != nil {
			return err
		}
	}
	return mask.Close()
}

// texts writes a data set of texts.
func texts(g *h5.GroupWriter, name string, spec h5.Spec, list []string) error {
	spec.Shape = []int64{int64(len(list))}
	d, err := g.Dataset(name, spec)
	if err != nil {
		return err
	}
	return errors.Join(d.WriteTexts(list), d.Close())
}

// timestamps counts those that are off the grid.
func (w *writer) timestamps(e, rows int) error {
	if w.info.FPS.Zero() || rows == 0 {
		return nil
	}
	at, err := w.src.Times(w.ctx, e, "")
	if err != nil {
		return err
	}
	for k, t := range at {
		off := t - at[0] - w.info.FPS.Nanos(int64(k))
		// a thousandth of a step
		if off = max(off, -off); off > int64(math.Round(1e6/w.info.FPS.Float())) {
			w.offGrid++
			w.worst = max(w.worst, off)
		}
	}
	return nil
}

// whyDropped returns the reason for which a demo has no place for a stream, whatever its name and
// clock; "" if it has.
func whyDropped(f *robocache.Feature) string {
	switch {
	case f.Ragged() || f.Kind == robocache.KindPointCloud:
		return "its rows vary in length"
	case f.Kind == robocache.KindNumeric && (f.RowBytes() == 0 || slices.Contains(f.Shape, 0)):
		return "its rows are empty"
	}
	return ""
}
