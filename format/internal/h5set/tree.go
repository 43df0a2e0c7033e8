package h5set

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
)

// describeEpisode describes the streams of an episode. A stream is a data set whose first dimension
// is the episode's length. If the length is that of the actions, one more row is allowed
// (ManiSkill). If Others is set, data sets of other lengths of more than one row are streams too.
// key names a stream, and "" omits it. Only paths for which wanted returns true are returned. found
// lists the data sets that are not streams, with the reason.
func (s *Set) describeEpisode(
	ctx context.Context,
	e *Episode,
	key func(path string) string,
	wanted func(path string) bool,
) (out []Stream, found []robocache.Finding, err error) {
	w, err := e.Walker(ctx)
	if err != nil {
		return out, found, err
	}
	clocks := map[uint64]string{} // address of timestamps → name of the clock
	if s.rowTimes != "" {
		if o, err := w.findDataset(s.rowTimes); err != nil {
			return out, found, err
		} else if o != nil {
			clocks[o.Address()] = ""
		}
	}
	var longer []string
	report := func(f robocache.Finding) {
		if len(found) < 1000 {
			found = append(found, f)
		}
	}
	note := func(path, why string) {
		if !wanted(path) {
			return
		}
		report(
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "no-stream",
				Where:    robocache.Where{"file": e.File.Name(), "pointer": w.pathInFile(path)},
				Message:  "the data set is not a stream: " + why,
			},
		)
	}
	refuse := func(path, key, why string) { // the data set should have been a stream
		if !wanted(path) {
			return
		}
		f := robocache.Finding{
			Severity:     robocache.SeverityWarning,
			Code:         "unsupported-stream",
			Where:        robocache.Where{"file": e.File.Name(), "pointer": w.pathInFile(path)},
			Message:      "the data set is not a stream: " + why,
			NotDelivered: key,
			Hint: "Store it as an array with a row for each step. The other streams are " +
				"read.",
		}
		if robocache.Vital("", key) {
			f.Severity = robocache.SeverityError
		}
		report(f)
	}
	if err := w.Walk(func(path string, o *h5.Object) error {
		k := key(path)
		if k == "" {
			return nil
		}
		times := ""
		if s.Suffix != "" {
			if of, hasSuffix := strings.CutSuffix(path, s.Suffix); hasSuffix {
				timed, err := w.findDataset(of)
				if err != nil {
					return err
				}
				if timed != nil {
					return nil // the timestamps of another stream
				}
			}
			found, err := w.findDataset(path + s.Suffix)
			if err != nil {
				return err
			}
			if found != nil {
				times = path + s.Suffix
			}
		}
		var streams []Stream
		err, failed := Tolerate(func() error {
			d, err := o.Dataset(ctx, w.pathInFile(path))
			if err != nil {
				return err
			}
			after := e.Acts && len(d.Shape) > 0 && d.Rows() == int64(e.Length)+1
			other := e.Others && len(d.Shape) > 0 && d.Rows() > 1 && d.Rows() != int64(e.Length)
			constant := times == "" && len(d.Shape) > 0 && s.isConstant(path, d.Rows())
			if times != "" || constant {
				after, other = false, false
			}
			if len(d.Shape) == 0 ||
				d.Rows() != int64(e.Length) && !after && !other && !constant && times == "" {
				note(
					path,
					fmt.Sprintf("its shape is %v, the episode has %d rows", d.Shape, e.Length),
				)
				return nil
			}
			var why string
			if streams, why, err = describeDataset(ctx, d, k, path); err != nil {
				return err
			}
			if len(streams) == 0 {
				refuse(path, k, why)
			}
			if constant && len(streams) > 0 &&
				(streams[0].How != Numbers || streams[0].field != "") {
				streams = nil
				note(path, "one row of images, texts or fields for the whole episode")
			}
			clock := ""
			if times != "" {
				timestamps, err := w.findDataset(times)
				if err != nil {
					return err
				}
				at := timestamps.Address()
				if _, ok := clocks[at]; !ok {
					clocks[at] = k
				}
				clock = clocks[at]
			}
			for i := range streams {
				if clock != "" {
					streams[i].share = float64(d.Rows()) / float64(e.Length)
				}
				streams[i].after, streams[i].times, streams[i].Clock = after, times, clock
				streams[i].constant = constant
				if other { // the times of its rows are unknown, so it does not limit the timeline
					streams[i].Clock, streams[i].Latched = fmt.Sprintf("rows%d", d.Rows()), true
				}
			}
			if after && len(streams) > 0 && wanted(path) {
				longer = append(longer, k)
			}
			return nil
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			refuse(path, k, err.Error())
		}
		if wanted(path) {
			out = append(out, streams...)
		}
		return nil
	}, note); err != nil {
		return out, found, err
	}
	if len(longer) > 0 {
		found = append(found, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "last-observation",
			Where:    robocache.Where{"file": e.File.Name(), "pointer": e.Path},
			Message: fmt.Sprintf(
				"%d streams have one row more than the actions, what the last action led to: it "+
					"is no row of the episode (%s)",
				len(longer),
				strings.Join(longer[:min(len(longer), 8)], ", "),
			),
			Count: int64(len(longer)),
		})
	}
	return out, found, nil
}

// Lose adds a finding for an episode or a file that cannot be read.
func (s *Set) Lose(code string, where robocache.Where, err error, hint string) {
	s.About.Findings = append(
		s.About.Findings,
		robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     code,
			Where:    where,
			Message:  err.Error(),
			Hint:     hint,
			Lost:     true,
		},
	)
}

// Find adds a finding of opening.
func (s *Set) Find(sev robocache.Severity, code string, where robocache.Where, msg, hint string) {
	s.About.Findings = append(
		s.About.Findings,
		robocache.Finding{Severity: sev, Code: code, Where: where, Message: msg, Hint: hint},
	)
}

// taskNames lists the attributes and scalar data sets in which common files store the task of an
// episode.
var taskNames = []string{
	"task",
	"language_instruction",
	"instruction",
	"language_raw",
	"language",
	"task_description",
	"prompt",
}

// Task returns the task of an episode: a text in an attribute or a scalar data set of its group.
func (w *Walker) Task() (string, error) {
	g := w.groups[""]
	attrs, err := g.o.Attributes(w.ctx)
	if err != nil {
		return "", err
	}
	for _, name := range taskNames {
		for i := range attrs {
			if attrs[i].Name == name {
				t, _, err := attrs[i].Text(w.ctx)
				if err != nil {
					return "", err
				}
				if t != "" {
					return t, nil
				}
			}
		}
		if !slices.ContainsFunc(
			g.links,
			func(l h5.Link) bool { return l.Name == name && l.Hard() },
		) {
			continue
		}
		o, err := w.Object(name)
		if err != nil {
			return "", err
		}
		if !o.IsDataset() {
			continue
		}
		d, err := o.Dataset(w.ctx, name)
		if err != nil || d.Null || len(d.Shape) > 1 || d.Rows() != 1 ||
			d.Type.Class != h5.Text && !d.Type.IsText {
			continue
		}
		if b, err := d.Bytes(w.ctx, 0, 1); err != nil {
			return "", err
		} else if len(b) == 1 && len(b[0]) > 0 {
			return string(b[0]), nil
		}
	}
	return "", nil
}

// applyChannelOrder marks the images whose channels are blue, green, red. order is "rgb", "bgr", or
// "key=bgr,key2=rgb" for single streams. A mapping sets the order by stream.
func (s *Set) applyChannelOrder(order string, m *robocache.Mapping) error {
	set := func(key, value string) error {
		if value != "rgb" && value != "bgr" {
			return robocache.Misuse(s.About.Format, nil, "channel order").
				Expected("rgb or bgr", value)
		}
		known := key == ""
		for i := range s.Streams {
			if st := &s.Streams[i]; st.Kind == robocache.KindImage &&
				(key == "" || st.Key == key || strings.HasSuffix(st.Key, "."+key)) {
				st.BGR, known = value == "bgr", true
			}
		}
		if !known {
			return robocache.Misuse(
				s.About.Format,
				robocache.Where{"stream": key},
				"channel order of an unknown camera",
			)
		}
		return nil
	}
	for part := range strings.SplitSeq(order, ",") {
		if key, value, named := strings.Cut(part, "="); named {
			if err := set(key, value); err != nil {
				return err
			}
		} else if order != "" {
			if err := set("", part); err != nil {
				return err
			}
		}
	}
	if m == nil {
		return nil
	}
	for _, sm := range m.Streams {
		for _, from := range sm.From {
			if sm.ChannelOrder != "" {
				if err := set(from, sm.ChannelOrder); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Walker finds objects below a group. It reads each group on a path only once.
type Walker struct {
	ctx    context.Context
	file   *h5.File
	path   string
	groups map[string]*group
	// known holds paths of data sets that Walk reports without opening them.
	known map[string]bool
}

type group struct {
	o     *h5.Object
	links []h5.Link
}

// Walker returns a walker that starts at the episode's group.
func (e *Episode) Walker(ctx context.Context) (*Walker, error) {
	at, err := e.File.At(ctx, e.Group)
	if err != nil {
		return nil, err
	}
	return NewWalker(ctx, e.File, at, e.Path)
}

// NewWalker returns a walker that starts at the group o.
func NewWalker(ctx context.Context, f *h5.File, o *h5.Object, path string) (*Walker, error) {
	links, err := o.Links(ctx)
	if err != nil {
		return nil, err
	}
	root := map[string]*group{"": {o, links}}
	return &Walker{ctx: ctx, file: f, path: path, groups: root}, nil
}

func (w *Walker) openGroup(path string) (*group, error) {
	g := w.groups[path]
	if g == nil {
		o, err := w.Object(path)
		if err != nil {
			return nil, err
		}
		links, err := o.Links(w.ctx)
		if err != nil {
			return nil, err
		}
		g = &group{o, links}
		w.groups[path] = g
	}
	return g, nil
}

// Object returns the object at a path below the group, or ErrNotFound.
func (w *Walker) Object(path string) (*h5.Object, error) {
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	g, err := w.openGroup(dir)
	if err != nil {
		return nil, err
	}
	i, ok := slices.BinarySearchFunc(
		g.links,
		name,
		func(l h5.Link, n string) int { return strings.Compare(l.Name, n) },
	)
	if !ok {
		return nil, robocache.NotFound(
			"hdf5",
			robocache.Where{"file": w.file.Name(), "pointer": w.pathInFile(path)},
			"no object %q",
			name,
		)
	}
	return g.o.Follow(w.ctx, &g.links[i])
}

// Links returns the links of a group at a path below the group.
func (w *Walker) Links(path string) ([]h5.Link, error) {
	g, err := w.openGroup(path)
	if err != nil {
		return nil, err
	}
	return g.links, nil
}

func (w *Walker) pathInFile(path string) string { return strings.TrimPrefix(w.path+"/"+path, "/") }

// Dataset opens the data set at a path below the group.
func (w *Walker) Dataset(path string) (*h5.Dataset, error) {
	o, err := w.Object(path)
	if err != nil {
		return nil, err
	}
	if !o.IsDataset() {
		return nil, robocache.Malformed(
			"hdf5",
			robocache.Where{"file": w.file.Name(), "pointer": w.pathInFile(path)},
			"",
		).
			Expected("a data set", "a group")
	}
	return o.Dataset(w.ctx, w.pathInFile(path))
}

// maxObjects limits the objects of one walk through a file.
const maxObjects = 1 << 20

// Walk calls each for every data set below the group, by path. The object is nil if the walker
// knows the path. Links to other files, dangling links and groups that were visited before are
// reported to skip, unless skip is nil.
func (w *Walker) Walk(
	each func(path string, o *h5.Object) error,
	skip func(path, why string),
) error {
	if skip == nil {
		skip = func(string, string) {}
	}
	seen, count := map[uint64]bool{}, 0
	var walk func(path string, depth int) error
	walk = func(path string, depth int) error {
		g, err := w.openGroup(path)
		if err != nil {
			return err
		}
		if seen[g.o.Address()] || depth > 64 {
			skip(path, "the group was already visited under another name, or it contains itself")
			return nil
		}
		// visit each group once: groups that link to each other would make the walk exponential
		seen[g.o.Address()] = true
		for i := range g.links {
			name := strings.TrimPrefix(path+"/"+g.links[i].Name, "/")
			if w.known[name] && g.links[i].Hard() {
				if err := each(name, nil); err != nil {
					return err
				}
				continue
			}
			var o *h5.Object
			if err, failed := Tolerate(func() error {
				var err error
				if o, err = w.Object(name); err != nil {
					return err
				}
				return nil
			}); failed != nil {
				return failed
			} else if err != nil {
				skip(name, err.Error())
				continue
			}
			if count++; count > maxObjects {
				return robocache.ResourceLimit(
					"hdf5",
					robocache.Where{"file": w.file.Name()},
					"too many objects",
				).
					Expected(fmt.Sprintf("at most %d", maxObjects), "")
			}
			switch {
			case o.IsDataset():
				if err := each(name, o); err != nil {
					return err
				}
			case o.IsGroup():
				if err := walk(name, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk("", 0)
}
