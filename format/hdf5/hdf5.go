package hdf5

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/internal/guard"
)

var options = map[string]string{
	"episodes":       `"file": a file is an episode; a path ("data"): each group below it is. Default: found by the groups' names`,
	"length":         "path of the data set, below the episode, whose rows are the episode's. Default: action or actions, else what most have",
	"timestamps":     "path of the data set, below the episode, that holds the rows' timestamps",
	"timestamp_unit": "unit of the timestamps: s (default), ms, us, ns",
	"channel_order":  "rgb (default) or bgr: what the images' channels are; key=bgr for some streams",
}

func init() {
	robocache.Register(robocache.Format{Name: "hdf5", WriteAs: "robomimic", Extensions: h5set.Extensions, Detect: Detect, Options: options, Open: func(ctx context.Context, uri string, opt robocache.OpenOptions) (robocache.Dataset, error) {
		d, err := Open(ctx, uri, opt)
		if err != nil {
			return nil, err
		}
		return d, nil
	}})
}

// Detect says whether uri is an HDF5 file, or a folder whose first HDF5 file is one, of none of the layouts that have a format of their own.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(ctx context.Context, f *h5.File) (bool, error) {
		for _, other := range [][]string{{"action", "observations"}, {"data/demo_0"}} {
			all := true
			for _, path := range other {
				if _, err := f.Lookup(ctx, path); errors.Is(err, robocache.ErrNotFound) {
					all = false
				} else if err != nil {
					return false, err
				}
			}
			if all {
				return false, nil
			}
		}
		data, err := f.Lookup(ctx, "data")
		if err != nil || !data.IsGroup() {
			return true, nil
		}
		links, err := data.Links(ctx)
		for i := range links {
			if strings.HasPrefix(links[i].Name, "demo") {
				return false, err
			}
		}
		return true, err
	})
}

// Dataset is an open file, or folder of files.
type Dataset struct {
	*h5set.Set
	opt        map[string]string
	timestamps string
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("hdf5 open", &err)
	s, names, found, err := h5set.Find(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	d = &Dataset{Set: h5set.New(s, "hdf5", robocache.Redact(uri), opt), opt: opt.Options}
	d.Info_.Findings = found
	if err := d.read(ctx, names, opt); err != nil {
		d.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return d, nil
}

// units of timestamps, in seconds.
var units = map[string]float64{"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

// clock finds what the options say of timestamps.
func (d *Dataset) clock(opt robocache.OpenOptions) error {
	unit := d.opt["timestamp_unit"]
	d.timestamps = d.opt["timestamps"]
	if opt.Map != nil && d.timestamps == "" {
		for _, m := range opt.Map.Streams {
			if path, ok := strings.CutPrefix(m.Clock, "timestamps:"); ok {
				if d.timestamps != "" && d.timestamps != path {
					return &robocache.Error{Class: robocache.ErrUnsupported, Op: "hdf5", Msg: "a mapping with several clocks for one file", Want: "timestamps:" + d.timestamps, Got: m.Clock}
				}
				d.timestamps, unit = path, m.TimestampUnit
			}
		}
	}
	var ok bool
	if d.TimestampUnit, ok = units[unit]; !ok {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "hdf5", Msg: "unit of timestamps", Want: "s, ms, us or ns", Got: unit}
	}
	return nil
}

func (d *Dataset) read(ctx context.Context, names []string, opt robocache.OpenOptions) error {
	if err := d.clock(opt); err != nil {
		return err
	}
	per := make([][]h5set.Episode, len(names))
	bad := make([]error, len(names))
	rates := make([]robocache.Rate, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i, name := range names {
		g.Go(func() (err error) {
			defer guard.Malformed("hdf5 open", &err)
			if per[i], rates[i], err = d.file(gctx, name); err != nil && h5set.Data(err) && len(names) > 1 {
				bad[i], err = err, nil
			}
			return robocache.At(err, robocache.Where{"file": name})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range names {
		if bad[i] != nil {
			d.Lose("unreadable-file", robocache.Where{"file": names[i]}, bad[i], "fetch the file again, or leave it out")
			continue
		}
		if r := rates[i]; opt.HZ.Zero() && !r.Zero() {
			if have := d.Info_.FPS; !have.Zero() && have != r {
				return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": names[i]}, Msg: "files of one folder have different rates", Want: have.String(), Got: r.String(), Hint: "open them one by one, or name the rate of the rows: --rows-hz, in Python rows_hz="}
			}
			d.Info_.FPS = r
		}
		d.Episodes = append(d.Episodes, per[i]...)
	}
	for i := range d.Episodes {
		d.Episodes[i].Index = int64(i)
	}
	if err := d.Schema(ctx, func(path string) string { return strings.ReplaceAll(path, "/", ".") }); err != nil {
		return err
	}
	if err := d.Swap(d.opt["channel_order"], opt.Map); err != nil {
		return err
	}
	return d.Ready()
}

// file finds the episodes of a file.
func (d *Dataset) file(ctx context.Context, name string) ([]h5set.Episode, robocache.Rate, error) {
	var rate robocache.Rate
	f, err := d.OpenFile(ctx, name)
	if err != nil {
		return nil, rate, err
	}
	root, err := f.Root(ctx)
	if err != nil {
		return nil, rate, err
	}
	attrs, err := root.Attributes(ctx)
	if err != nil {
		return nil, rate, err
	}
	for k := range attrs {
		switch a := &attrs[k]; a.Name {
		case "fps", "hz", "frequency", "control_freq":
			if v, ok := a.Float(); ok {
				if r, err := robocache.RateOf(strconv.FormatFloat(v, 'f', -1, 64)); err == nil {
					rate = r
				}
			}
		}
	}
	paths, err := d.groups(ctx, f, root)
	if err != nil {
		return nil, rate, err
	}
	out := make([]h5set.Episode, len(paths))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i, path := range paths {
		g.Go(func() (err error) {
			defer guard.Malformed("hdf5 open", &err)
			o, err := f.Lookup(gctx, path)
			if err != nil {
				return err
			}
			out[i] = h5set.Episode{File: f, Group: o.Address(), Path: path}
			return robocache.At(d.measure(gctx, &out[i]), robocache.Where{"pointer": path})
		})
	}
	return out, rate, g.Wait()
}

// prefixes are the names of groups that are episodes, before their number.
var prefixes = map[string]bool{"": true, "demo": true, "episode": true, "ep": true, "traj": true, "trajectory": true, "rollout": true, "sample": true, "run": true}

// groups gives the paths of a file's episodes: "" is the file itself.
func (d *Dataset) groups(ctx context.Context, f *h5.File, root *h5.Object) ([]string, error) {
	how := d.opt["episodes"]
	if how == "file" {
		return []string{""}, nil
	}
	at, path := root, ""
	if how != "" {
		var err error
		path = strings.Trim(how, "/")
		if at, err = f.Lookup(ctx, path); err != nil {
			return nil, err
		}
	}
	for depth := 0; ; depth++ {
		w, err := h5set.NewWalker(ctx, f, at, path)
		if err != nil {
			return nil, err
		}
		links, err := w.Links(ctx, "")
		if err != nil {
			return nil, err
		}
		var names []string
		numbered, sets := true, false
		for i := range links {
			o, err := w.Object(ctx, links[i].Name)
			if err != nil {
				if !h5set.Data(err) {
					return nil, err
				}
				continue
			}
			switch {
			case o.IsGroup():
				prefix := strings.ToLower(strings.TrimRight(strings.TrimRight(links[i].Name, "0123456789"), "_-"))
				numbered = numbered && prefixes[prefix] && links[i].Name[len(links[i].Name)-1] >= '0' && links[i].Name[len(links[i].Name)-1] <= '9'
				names = append(names, links[i].Name)
			case o.IsDataset():
				sets = true
			}
		}
		join := func(name string) string { return strings.TrimPrefix(path+"/"+name, "/") }
		switch {
		case len(names) > 0 && (how != "" || numbered && !sets):
			slices.SortFunc(names, natural.Compare)
			for i := range names {
				names[i] = join(names[i])
			}
			return names, nil
		case how != "":
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "hdf5", Where: robocache.Where{"pointer": path}, Msg: "option episodes names a group without groups"}
		case len(names) == 1 && !sets && depth < 4:
			path = join(names[0])
			if at, err = w.Object(ctx, names[0]); err != nil {
				return nil, err
			}
		default:
			return []string{""}, nil
		}
	}
}

// measure finds an episode's length, timestamps and task.
func (d *Dataset) measure(ctx context.Context, e *h5set.Episode) error {
	w, err := e.Walker(ctx)
	if err != nil {
		return err
	}
	e.Times = d.timestamps
	lengths := map[int64]int{}
	first := map[int64]int{}
	action := int64(-1)
	n := 0
	err = w.Walk(ctx, "", func(path string, o *h5.Object) error {
		ds, err := o.Dataset(ctx, path)
		if err != nil {
			if !h5set.Data(err) {
				return err
			}
			return nil
		}
		if len(ds.Shape) == 0 || ds.Null || ds.Claim() != nil {
			return nil
		}
		rows := ds.Rows()
		if _, ok := first[rows]; !ok {
			first[rows] = n
		}
		n++
		lengths[rows]++
		if path == d.opt["length"] || d.opt["length"] == "" && (path == "action" || path == "actions") {
			action = rows
		}
		if base := path[strings.LastIndexByte(path, '/')+1:]; d.timestamps == "" && d.Info_.FPS.Zero() && path == base && (base == "timestamp" || base == "timestamps") {
			if t, dims, ok := ds.Type.Numeric(); ok && len(dims) == 0 && (t == robocache.Float64 || t.Integer()) && len(ds.Shape) == 1 {
				e.Times = path
			}
		}
		return nil
	}, func(string, string) {})
	if err != nil {
		return err
	}
	if want := d.opt["length"]; want != "" && action < 0 {
		return &robocache.Error{Class: robocache.ErrNotFound, Op: "hdf5", Where: robocache.Where{"file": e.File.Name(), "pointer": want}, Msg: "no such data set with rows"}
	}
	acts := action >= 0
	if !acts {
		action = 0
		for rows, count := range lengths {
			if best := lengths[action]; count > best || count == best && first[rows] < first[action] {
				action = rows
			}
		}
	}
	e.Length, e.Acts = int(action), acts
	e.Others = e.Path == "" && !acts && e.Times == "" // a file of arrays: none of them is the one that counts
	task, err := w.Task(ctx)
	if err != nil && !h5set.Data(err) {
		return fmt.Errorf("the task: %w", err)
	}
	if task != "" {
		e.Tasks = []string{task}
	}
	return nil
}
