package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

var options = map[string]string{
	"episodes":       `"file": a file is an episode; a path ("data"): each group below it is. Default: found by the groups' names`,
	"length":         "path of the data set, below the episode, whose rows are the episode's. Default: action or actions, else what most have",
	"timestamps":     "path of the data set, below the episode, that holds the rows' timestamps",
	"timestamp_unit": "unit of the timestamps: s, ms, us or ns (default: by their magnitude)",
	"channel_order":  "rgb (default) or bgr: what the images' channels are; key=bgr for some streams",
}

func init() {
	robocache.Register(robocache.Format{Name: "hdf5", WriteAs: "robomimic", Extensions: h5set.Extensions, Detect: Detect, Options: options, Open: reader.Opener(Open)})
}

// Detect says whether uri is an HDF5 file, or a folder whose first HDF5 file is one, of none of the layouts that have a format of their own.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(f *h5.File) bool {
		has := func(path string) bool {
			_, err := f.Lookup(ctx, path)
			if err != nil && !errors.Is(err, robocache.ErrNotFound) {
				guard.Fail(err)
			}
			return err == nil
		}
		if has("action") && has("observations") || has("data/demo_0") {
			return false
		}
		data, err := f.Lookup(ctx, "data")
		if err != nil || !data.IsGroup() {
			return true
		}
		return !slices.ContainsFunc(guard.Must(data.Links(ctx)), func(l h5.Link) bool { return strings.HasPrefix(l.Name, "demo") })
	})
}

// Dataset is an open file, or folder of files.
type Dataset = h5set.Set

// layout is what the options say of the files.
type layout struct {
	opt        map[string]string
	timestamps string
	rate       bool // the caller says the rate of the rows
}

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return h5set.Open(ctx, "hdf5", uri, opt, func(s *h5set.Set, names []string) {
		d := &layout{opt: opt.Options, rate: !opt.HZ.Zero()}
		d.clock(s, opt)
		s.ReadFiles(ctx, names, false, d.file)
		s.Schema(ctx, func(path string) string { return strings.ReplaceAll(path, "/", ".") })
		if len(s.Streams) == 0 {
			findNothing(ctx, s)
		}
	})
}

// findNothing adds the finding of files without a stream.
func findNothing(ctx context.Context, s *Dataset) {
	msg := "no file holds a data set with rows"
	for i := range s.Episodes {
		f := s.Episodes[i].File
		if o, err := f.Lookup(ctx, "data"); err == nil && o.IsGroup() {
			msg = fmt.Sprintf("no file holds demos: the group data of %s has none (demo_0, demo_1, …)", f.Name())
			break
		}
	}
	s.Find(robocache.SeverityError, "no-demos", nil, msg, "Write the demos again, or open the folder that holds them")
}

// units of timestamps, in seconds.
var units = map[string]float64{"": 0, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

// clock finds what the options say of timestamps.
func (d *layout) clock(s *h5set.Set, opt robocache.OpenOptions) {
	unit := d.opt["timestamp_unit"]
	d.timestamps = d.opt["timestamps"]
	if opt.Map != nil && d.timestamps == "" {
		for _, m := range opt.Map.Streams {
			if path, ok := strings.CutPrefix(m.Clock, "timestamps:"); ok {
				if d.timestamps != "" && d.timestamps != path {
					guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "hdf5", Msg: "a mapping with several clocks for one file", Want: "timestamps:" + d.timestamps, Got: m.Clock})
				}
				d.timestamps = path
				unit = cmp.Or(unit, m.TimestampUnit)
			}
		}
	}
	var ok bool
	if s.TimestampUnit, ok = units[unit]; !ok {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "hdf5", Msg: "unit of timestamps", Want: "s, ms, us or ns", Got: unit})
	}
}

// file finds the episodes of a file.
func (d *layout) file(ctx context.Context, f *h5.File, root *h5.Object) []h5set.Episode {
	paths := d.groups(ctx, f, root)
	out := make([]h5set.Episode, len(paths))
	h5set.Each(ctx, "hdf5 open", len(paths), func(ctx context.Context, i int) {
		defer guard.In("pointer", paths[i])
		out[i] = h5set.Episode{File: f, Group: guard.Must(f.Lookup(ctx, paths[i])).Address(), Path: paths[i]}
		d.measure(ctx, &out[i])
	})
	return out
}

// prefixes are the names of groups that are episodes, before their number.
var prefixes = map[string]bool{"": true, "demo": true, "episode": true, "ep": true, "traj": true, "trajectory": true, "rollout": true, "sample": true, "run": true}

// groups gives the paths of a file's episodes: "" is the file itself.
func (d *layout) groups(ctx context.Context, f *h5.File, root *h5.Object) []string {
	how := d.opt["episodes"]
	if how == "file" {
		return []string{""}
	}
	at, path := root, ""
	if how != "" {
		path = strings.Trim(how, "/")
		at = guard.Must(f.Lookup(ctx, path))
	}
	for depth := 0; ; depth++ {
		w := h5set.NewWalker(ctx, f, at, path)
		var names []string
		numbered, sets := true, false
		for _, l := range w.Links("") {
			_ = h5set.Tolerate(func() {
				o := w.Object(l.Name)
				switch {
				case o.IsGroup():
					stem := strings.TrimRight(l.Name, "0123456789")
					numbered = numbered && stem != l.Name && prefixes[strings.ToLower(strings.TrimRight(stem, "_-"))]
					names = append(names, l.Name)
				case o.IsDataset():
					sets = true
				}
			})
		}
		join := func(name string) string { return strings.TrimPrefix(path+"/"+name, "/") }
		switch {
		case len(names) > 0 && (how != "" || numbered && !sets):
			slices.SortFunc(names, natural.Compare)
			for i := range names {
				names[i] = join(names[i])
			}
			return names
		case how != "":
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "hdf5", Where: robocache.Where{"pointer": path}, Msg: "option episodes names a group without groups"})
		case len(names) == 1 && !sets && depth < 4:
			path, at = join(names[0]), w.Object(names[0])
		default:
			return []string{""}
		}
	}
}

// measure finds an episode's length, timestamps and task.
func (d *layout) measure(ctx context.Context, e *h5set.Episode) {
	w := e.Walker(ctx)
	e.Times = d.timestamps
	lengths := map[int64]int{}
	first := map[int64]int{}
	action := int64(-1)
	n := 0
	w.Walk(func(path string, o *h5.Object) {
		var ds *h5.Dataset
		if h5set.Tolerate(func() { ds = guard.Must(o.Dataset(ctx, path)) }) != nil || len(ds.Shape) == 0 || ds.Null || ds.Claim() != nil {
			return
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
		if d.timestamps == "" && !d.rate && (path == "timestamp" || path == "timestamps") {
			if t, dims, ok := ds.Type.Numeric(); ok && len(dims) == 0 && (t == robocache.Float64 || t.Integer()) && len(ds.Shape) == 1 {
				e.Times = path
			}
		}
	}, nil)
	if want := d.opt["length"]; want != "" && action < 0 {
		guard.Fail(&robocache.Error{Class: robocache.ErrNotFound, Op: "hdf5", Where: robocache.Where{"file": e.File.Name(), "pointer": want}, Msg: "no such data set with rows"})
	}
	e.Acts = action >= 0
	if !e.Acts {
		action = 0
		for rows, count := range lengths {
			if best := lengths[action]; count > best || count == best && first[rows] < first[action] {
				action = rows
			}
		}
	}
	e.Length = int(action)
	e.Others = e.Path == "" && !e.Acts && e.Times == "" // a file of arrays: none of them is the one that counts
	_ = h5set.Tolerate(func() { e.SetTask(w.Task()) })
}
