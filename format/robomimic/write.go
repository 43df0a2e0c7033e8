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

// writeOptions lists the keys of WriteOptions.Options that Write accepts.
var writeOptions = map[string]string{
	"compression": "of images: none (default), gzip, or gzip:1 to gzip:9; an image is a chunk",
	"next_obs": "true: next_obs/<key> too, each row that of the step after it (robomimic's " +
		"load_next_obs)",
	"timestamps": "true: streams keep their own clocks and timestamps, as <name>_timestamps " +
		"beside each",
	"scale_actions": "true: each dimension of the actions is scaled onto [-1, 1]; the " +
		"attributes actions_scale and actions_offset of data take it back",
}

// Write writes a dataset in robomimic's layout to one HDF5 file. The file is dst, or demos.hdf5 in
// dst if dst does not have the extension of an HDF5 file.
//
// Streams with the clock of the rows are written: observation.<key> as obs/<key>, action as
// actions, next.reward and next.done as rewards and dones, others by their key. Images become
// pixels: uint8, or for depth uint16 or float32 (meters, for video). Timestamps are stored only as
// control_freq. With the option timestamps they are stored as <name>_timestamps, and streams with
// their own clocks are written too. Tasks are stored in ep_meta ("lang"). Splits become masks. A
// demo has no data set for a stream that its episode lacks (robocache.Capabilities.Lacks).
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (report *robocache.WriteReport, err error) {
	defer crash.Recover("robomimic write", &err)
	w := &writer{ctx: ctx, src: src, opt: opt, info: src.Info(), report: &robocache.WriteReport{}}
	if err := w.chooseStreams(); err != nil {
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
	taken := robocache.Misuse(
		"write robomimic",
		robocache.Where{"dataset": robocache.Redact(dst)},
		"the file exists already",
	).
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
	if err := w.writeDemos(); err != nil {
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

// sharding describes how shards are written. Each shard is a file, and the files of all shards form
// a dataset in their order.
var sharding = robocache.Sharding{
	Kept:       h5set.IsFile,
	Unfinished: reader.Unfinished,
	Plan: func(
		ctx context.Context,
		src robocache.Dataset,
		opt robocache.WriteOptions,
	) (_ json.RawMessage, err error) {
		defer crash.Recover("plan", &err)
		w := &writer{
			ctx:    ctx,
			src:    src,
			opt:    opt,
			info:   src.Info(),
			report: &robocache.WriteReport{},
		}
		if err := w.chooseStreams(); err != nil {
			return nil, err
		}
		if w.scaleActions {
			return nil, robocache.Unsupported(
				"plan",
				nil,
				"scale_actions in shards: the range of the actions is that of all of them",
			).
				WithHint("convert in one run, or leave scaling to training")
		}
		return json.RawMessage("{}"), nil
	},
}

// writer is the state of one call of Write.
type writer struct {
	ctx          context.Context
	src          robocache.Dataset
	opt          robocache.WriteOptions
	info         *robocache.Info
	report       *robocache.WriteReport
	file         *h5.Writer
	streams      []outStream
	rows         *robocache.RowCounter
	origins      *origin.Tracer
	deflate      int
	next         bool
	keepClocks   bool // streams keep their clocks
	scaleActions bool // scale the actions
	actions      actions
	demos        map[int]string // source position → name of the demo
	worst        int64          // largest distance of a timestamp from the grid in ns
	offGrid      int64          // number of timestamps off the grid
	manyTask     int64
}

// outStream is a feature and its location in a demo.
type outStream struct {
	*robocache.Feature
	group, name string // group is "obs" or ""
}

func (w *writer) addFinding(
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

// chooseStreams reads the options and chooses the streams.
func (w *writer) chooseStreams() error {
	if err := reader.Op("write robomimic").
		Settle(w.opt.Options, writeOptions, map[string]reader.Set{
			"next_obs":      reader.Yes(&w.next),
			"scale_actions": reader.Yes(&w.scaleActions),
			"timestamps":    reader.Yes(&w.keepClocks),
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
	taken := map[string]string{} // location in a demo → the stream
	for i := range w.info.Features {
		f := &w.info.Features[i]
		if !w.opt.Wants(f) {
			continue
		}
		s := outStream{Feature: f}
		s.group, s.name = locationOf(f.Key)
		why := ""
		switch {
		case f.Clock != "" && !w.keepClocks:
			why = "it has a clock of its own: give all streams one (" + robocache.Option("hz") +
				"), or keep them (" + robocache.Option("write_option", "timestamps", true) + ")"
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
			w.addFinding(
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
			w.addFinding(
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
			w.actions.feature = f
		}
		w.streams = append(w.streams, s)
	}
	if len(w.streams) == 0 && len(w.report.Dropped) > 0 {
		return robocache.Unsupported(
			"write robomimic",
			robocache.Where{"dataset": w.src.Info().URI},
			"no stream of the dataset can be written: %v is left out",
			w.report.Dropped,
		).
			WithHint(
				"formats that keep point clouds and clocks: %s",
				robocache.Option("to", "mcap"),
			)
	}
	for i := range w.streams {
		s := &w.streams[i]
		if twin := taken[s.group+"/"+s.name+h5set.TimestampsSuffix]; w.keepClocks && twin != "" {
			return robocache.Misuse(
				"write robomimic",
				robocache.Where{"stream": twin},
				"its place is that of the timestamps of %s",
				s.Key,
			).
				WithHint(
					"leave it out (%s), or rename it by a mapping (%s)",
					robocache.Option("keys"),
					robocache.Option("map"),
				)
		}
	}
	if taken["/actions"] == "" {
		w.addFinding(
			robocache.SeverityWarning,
			"no-actions",
			nil,
			0,
			"no stream is named action, but robomimic needs actions",
			"name it by a mapping ("+robocache.Option("map")+")",
		)
	}
	return nil
}

// locationOf returns the location of a stream in a demo. It is the inverse of keyOf.
func locationOf(key string) (group, name string) {
	switch key {
	case "action":
		return "", "actions"
	case "next.reward":
		return "", "rewards"
	case "next.done":
		return "", "dones"
	}
	groups := map[string]string{"observation.": "obs", "next.observation.": "next_obs"}
	for prefix, g := range groups {
		if rest, ok := strings.CutPrefix(key, prefix); ok && rest != "" {
			return g, strings.ReplaceAll(rest, "/", ".")
		}
	}
	return "", strings.ReplaceAll(key, "/", ".")
}

func (w *writer) writeDemos() error {
	episodes := reader.Episodes(w.opt.Episodes, w.info.Episodes)
	if w.scaleActions && w.actions.feature == nil {
		return robocache.Misuse("write robomimic", nil, "there are no actions to scale").
			Expected("a numeric stream named action", "").
			WithHint(
				"leave %s out, or name the stream by a mapping (%s)",
				robocache.Option("scale_actions"),
				robocache.Option("map"),
			)
	}
	if w.scaleActions {
		if err := w.measureRange(w.actions.feature, episodes); err != nil {
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
		if err, failed := w.tolerate(
			robocache.Where{"episode": w.info.EpisodeIndex(e)},
			func() error { return w.writeDemo(data, e) },
		); failed != nil {
			return failed
		} else if err != nil {
			w.addFinding(
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
	if w.keepClocks {
		if err := data.Attribute(h5set.TimestampsAttribute, h5set.TimestampsSuffix); err != nil {
			return err
		}
	}
	env, err := w.envArgs()
	if err != nil {
		return err
	}
	if err := errors.Join(data.Attribute("total", w.report.Frames), data.Attribute("env_args", env),
		data.Close()); err != nil {
		return err
	}
	if err := w.writeMasks(); err != nil {
		return err
	}
	if w.offGrid > 0 {
		w.addFinding(
			robocache.SeverityWarning,
			"timestamps-not-kept",
			nil,
			w.offGrid,
			fmt.Sprintf(
				"recorded timestamps are up to %.3g ms off the grid of %s Hz that the file "+
					"stands for",
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
		w.addFinding(
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

// badEpisode is an error of an episode that is skipped.
type badEpisode error

// tolerate runs fn. With SkipBad it returns an error of the data as badEpisode. Any other error
// ends the writing.
func (w *writer) tolerate(where robocache.Where, fn func() error) (badEpisode, error) {
	err := fn()
	if err != nil && (w.ctx.Err() != nil || !w.opt.SkipBad || !robocache.Bad(err)) {
		return nil, robocache.At(err, where)
	}
	return err, nil
}

// environment is implemented by sources that have env_args.
type environment interface {
	EnvArgs(file int) json.RawMessage
}

// envArgs returns env_args: those of the source, or a minimal version.
func (w *writer) envArgs() (string, error) {
	if from, ok := robocache.As[environment](w.src); ok {
		if raw := from.EnvArgs(0); raw != nil && w.sameRate(raw) {
			return string(raw), nil
		}
	}
	kwargs := map[string]any{}
	if w.info.FPS.Zero() && !w.keepClocks {
		w.addFinding(
			robocache.SeverityWarning,
			"no-rate",
			nil,
			0,
			"the rate of the rows is unknown: control_freq is left out",
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
	return string(encoded), nil // type 2 is gym, which can be read without a simulator
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

// writeMasks writes the splits: "0:3,5:6" becomes the demos of the positions 0, 1, 2 and 5.
func (w *writer) writeMasks() error {
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
			w.addFinding(robocache.SeverityWarning, "split-not-kept", nil, 0, err.Error(), "")
			continue
		}
		for _, e := range episodes {
			if demo := w.demos[e]; demo != "" {
				demos = append(demos, demo)
				width = max(width, len(demo))
			}
		}
		if err := writeTexts(mask, strings.ReplaceAll(name, "/", "."), h5.Spec{Fixed: width},
			demos); err != nil {
			return err
		}
	}
	return mask.Close()
}

// writeTexts writes a data set of texts.
func writeTexts(g *h5.GroupWriter, name string, spec h5.Spec, list []string) error {
	spec.Shape = []int64{int64(len(list))}
	d, err := g.Dataset(name, spec)
	if err != nil {
		return err
	}
	return errors.Join(d.WriteTexts(list), d.Close())
}

// countOffGrid counts the timestamps of an episode that are not on the grid of the rate.
func (w *writer) countOffGrid(e, rows int) error {
	if w.info.FPS.Zero() || rows == 0 {
		return nil
	}
	at, err := w.src.Times(w.ctx, e, "")
	if err != nil {
		return err
	}
	for k, t := range at {
		off := t - at[0] - w.info.FPS.Nanos(int64(k))
		// tolerance of a thousandth of a step
		if off = max(off, -off); off > int64(math.Round(1e6/w.info.FPS.Float())) {
			w.offGrid++
			w.worst = max(w.worst, off)
		}
	}
	return nil
}

// whyDropped returns the reason why a demo cannot store a stream, or "". It does not consider the
// name and clock of the stream.
func whyDropped(f *robocache.Feature) string {
	switch {
	case f.Ragged() || f.Kind == robocache.KindPointCloud:
		return "its rows vary in length"
	case f.Kind == robocache.KindNumeric && (f.RowBytes() == 0 || slices.Contains(f.Shape, 0)):
		return "its rows are empty"
	}
	return ""
}
