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
)

var options = map[string]string{
	"episodes": `"file": a file is an episode; a path ("data"): each group below it is. Default: found by the groups' names`,
	"length": "path of the data set, below the episode, whose rows are the episode's. " +
		"Default: action or actions, else what most have",
	"timestamps":     "path of the data set, below the episode, that holds the rows' timestamps",
	"timestamp_unit": "unit of the timestamps: s, ms, us or ns (default: by their magnitude)",
	"channel_order": "rgb (default) or bgr: what the images' channels are; key=bgr for some " +
		"streams",
}

func init() {
	robocache.Register(
		robocache.Format{
			Name:       "hdf5",
			WriteAs:    "robomimic",
			Extensions: h5set.Extensions,
			Detect:     Detect,
			Options:    options,
			Open:       reader.Opener(Open),
		},
	)
}

// Detect reports whether uri is an HDF5 file that does not have the layout of another format. For a
// folder it checks the first HDF5 file.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(f *h5.File) (bool, error) {
		has := func(path string) (bool, error) {
			_, err := f.Lookup(ctx, path)
			if err != nil && !errors.Is(err, robocache.ErrNotFound) {
				return false, err
			}
			return err == nil, nil
		}
		isOtherLayout, err := has("action")
		if err == nil && isOtherLayout {
			isOtherLayout, err = has("observations")
		}
		if err == nil && !isOtherLayout {
			isOtherLayout, err = has("data/demo_0")
		}
		if err != nil || isOtherLayout {
			return false, err
		}
		data, err := f.Lookup(ctx, "data")
		if err != nil || !data.IsGroup() {
			return true, nil
		}
		links, err := data.Links(ctx)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(
			links,
			func(l h5.Link) bool { return strings.HasPrefix(l.Name, "demo") },
		), nil
	})
}

// Dataset is an open file, or folder of files.
type Dataset = h5set.Set

// layout contains the options that describe the files.
type layout struct {
	opt        map[string]string
	timestamps string
	rate       bool // the caller sets the rate of the rows
}

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return h5set.Open(ctx, "hdf5", uri, opt, func(s *h5set.Set, names []string) error {
		d := &layout{opt: opt.Options, rate: !opt.HZ.Zero()}
		if err := d.readClockOptions(s, opt); err != nil {
			return err
		}
		if err := s.ReadFiles(ctx, names, false, d.readFile); err != nil {
			return err
		}
		if err := s.Schema(
			ctx,
			func(path string) string { return strings.ReplaceAll(path, "/", ".") },
		); err != nil {
			return err
		}
		if len(s.Streams) == 0 {
			findNothing(ctx, s)
		}
		return nil
	})
}

// findNothing adds the finding for files without a stream.
func findNothing(ctx context.Context, s *Dataset) {
	msg := "no file holds a data set with rows"
	for i := range s.Episodes {
		f := s.Episodes[i].File
		if o, err := f.Lookup(ctx, "data"); err == nil && o.IsGroup() {
			msg = fmt.Sprintf(
				"no file holds demos: the group data of %s has none (demo_0, demo_1, …)",
				f.Name(),
			)
			break
		}
	}
	s.Find(
		robocache.SeverityError,
		"no-demos",
		nil,
		msg,
		"Write the demos again, or open the folder that holds them",
	)
}

// units maps the names of time units to seconds.
var units = map[string]float64{"": 0, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

// readClockOptions reads the options for timestamps.
func (d *layout) readClockOptions(s *h5set.Set, opt robocache.OpenOptions) error {
	unit := d.opt["timestamp_unit"]
	d.timestamps = d.opt["timestamps"]
	if opt.Map != nil && d.timestamps == "" {
		for _, m := range opt.Map.Streams {
			if path, ok := strings.CutPrefix(m.Clock, "timestamps:"); ok {
				if d.timestamps != "" && d.timestamps != path {
					return robocache.Unsupported(
						"hdf5",
						nil,
						"a mapping with several clocks for one file",
					).
						Expected("timestamps:"+d.timestamps, m.Clock)
				}
				d.timestamps = path
				unit = cmp.Or(unit, m.TimestampUnit)
			}
		}
	}
	s.TimesNamed = d.timestamps != ""
	var ok bool
	if s.TimestampUnit, ok = units[unit]; !ok {
		return robocache.Misuse("hdf5", nil, "unit of timestamps").Expected("s, ms, us or ns", unit)
	}
	return nil
}

// readFile finds the episodes of a file.
func (d *layout) readFile(
	ctx context.Context,
	f *h5.File,
	root *h5.Object,
) ([]h5set.Episode, error) {
	paths, err := d.episodePaths(ctx, f, root)
	if err != nil {
		return nil, err
	}
	out := make([]h5set.Episode, len(paths))
	if err := h5set.Each(
		ctx,
		"hdf5 open",
		len(paths),
		func(ctx context.Context, i int) (err error) {
			defer robocache.LocateIn(&err, "pointer", paths[i])
			lookup, err := f.Lookup(ctx, paths[i])
			if err != nil {
				return err
			}
			out[i] = h5set.Episode{File: f, Group: lookup.Address(), Path: paths[i]}
			return d.describeEpisode(ctx, &out[i])
		},
	); err != nil {
		return nil, err
	}
	return out, nil
}

// prefixes lists the names of groups that are episodes, without their number.
var prefixes = map[string]bool{
	"":           true,
	"demo":       true,
	"episode":    true,
	"ep":         true,
	"traj":       true,
	"trajectory": true,
	"rollout":    true,
	"sample":     true,
	"run":        true,
}

// episodePaths returns the paths of the episodes of a file. The path "" is the file itself.
func (d *layout) episodePaths(ctx context.Context, f *h5.File, root *h5.Object) ([]string, error) {
	how := d.opt["episodes"]
	if how == "file" {
		return []string{""}, nil
	}
	at, path := root, ""
	if how != "" {
		path = strings.Trim(how, "/")
		var err error
		if at, err = f.Lookup(ctx, path); err != nil {
			return nil, err
		}
	}
	for depth := 0; ; depth++ {
		w, err := h5set.NewWalker(ctx, f, at, path)
		if err != nil {
			return nil, err
		}
		var names []string
		numbered, sets := true, false
		links, err := w.Links("")
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			if _, err := h5set.Tolerate(func() error {
				o, err := w.Object(l.Name)
				if err != nil {
					return err
				}
				switch {
				case o.IsGroup():
					stem := strings.TrimRight(l.Name, "0123456789")
					numbered = numbered && stem != l.Name &&
						prefixes[strings.ToLower(strings.TrimRight(stem, "_-"))]
					names = append(names, l.Name)
				case o.IsDataset():
					sets = true
				}
				return nil
			}); err != nil {
				return nil, err
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
			return nil, robocache.Misuse(
				"hdf5",
				robocache.Where{"pointer": path},
				"option episodes names a group without groups",
			)
		case len(names) == 1 && !sets && depth < 4:
			object, err := w.Object(names[0])
			if err != nil {
				return nil, err
			}
			path, at = join(names[0]), object
		default:
			return []string{""}, nil
		}
	}
}

// describeEpisode determines the length, timestamps and task of an episode.
func (d *layout) describeEpisode(ctx context.Context, e *h5set.Episode) error {
	w, err := e.Walker(ctx)
	if err != nil {
		return err
	}
	e.Times = d.timestamps
	lengths := map[int64]int{}
	first := map[int64]int{}
	action := int64(-1)
	n := 0
	if err := w.Walk(func(path string, o *h5.Object) error {
		var ds *h5.Dataset
		tolerate, err := h5set.Tolerate(func() error {
			var err error
			if ds, err = o.Dataset(ctx, path); err != nil {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if tolerate != nil || len(ds.Shape) == 0 || ds.Null || ds.Claim() != nil {
			return nil
		}
		rows := ds.Rows()
		if _, ok := first[rows]; !ok {
			first[rows] = n
		}
		n++
		lengths[rows]++
		if path == d.opt["length"] ||
			d.opt["length"] == "" && (path == "action" || path == "actions") {
			action = rows
		}
		if d.timestamps == "" && !d.rate && (path == "timestamp" || path == "timestamps") {
			if t, dims, ok := ds.Type.Numeric(); ok && len(dims) == 0 &&
				(t == robocache.Float64 || t.Integer()) &&
				len(ds.Shape) == 1 {
				e.Times = path
			}
		}
		return nil
	}, nil); err != nil {
		return err
	}
	if want := d.opt["length"]; want != "" && action < 0 {
		return robocache.NotFound(
			"hdf5",
			robocache.Where{"file": e.File.Name(), "pointer": want},
			"no such data set with rows",
		)
	}
	e.Acts = action >= 0
	if !e.Acts {
		action = 0
		for rows, count := range lengths {
			if best := lengths[action]; count > best ||
				count == best && first[rows] < first[action] {
				action = rows
			}
		}
	}
	e.Length = int(action)
	// a file of arrays, none of which determines the length
	e.Others = e.Path == "" && !e.Acts && e.Times == ""
	if _, err := h5set.Tolerate(func() error {
		task, err := w.Task()
		if err != nil {
			return err
		}
		e.SetTask(task)
		return nil
	}); err != nil {
		return err
	}
	return nil
}
