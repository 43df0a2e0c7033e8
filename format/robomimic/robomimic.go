package robomimic

import (
	"context"
	"encoding/json"
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
	"split":         "open only the demos of this mask (mask/<name>)",
	"next_obs":      "true: next_obs/<key> too, as next.observation.<key>",
	"channel_order": "rgb (default) or bgr: what the images' channels are; agentview_image=bgr for some cameras",
}

func init() {
	robocache.Register(robocache.Format{Name: "robomimic", Write: Write, WriteOptions: writeOptions, Detect: Detect, Options: options, Open: func(ctx context.Context, uri string, opt robocache.OpenOptions) (robocache.Dataset, error) {
		d, err := Open(ctx, uri, opt)
		if err != nil {
			return nil, err
		}
		return d, nil
	}})
}

// Detect says whether uri is an HDF5 file with a group data of demos, or a folder whose first HDF5 file is.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(ctx context.Context, f *h5.File) (bool, error) {
		data, err := f.Lookup(ctx, "data")
		if err != nil {
			return false, err
		}
		demos, err := list(ctx, data)
		return len(demos) > 0, err
	})
}

// Dataset is an open file, or folder of files, in robomimic's layout.
type Dataset struct {
	*h5set.Set
	meta []json.RawMessage // env_args, by file
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("robomimic open", &err)
	s, names, found, err := h5set.Find(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	d = &Dataset{Set: h5set.New(s, "robomimic", robocache.Redact(uri), opt)}
	d.Info_.Findings = found
	if err := d.read(ctx, names, opt); err != nil {
		d.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return d, nil
}

// EnvArgs gives env_args of a file of the dataset, as its JSON; nil where it has none.
func (d *Dataset) EnvArgs(file int) json.RawMessage {
	if file < 0 || file >= len(d.meta) {
		return nil
	}
	return d.meta[file]
}

// demo is a group of data.
type demo struct {
	name string
	addr uint64
}

// list gives the demos of the group data, by the numbers in their names.
func list(ctx context.Context, data *h5.Object) ([]demo, error) {
	links, err := data.Links(ctx)
	if err != nil {
		return nil, err
	}
	var out []demo
	for i := range links {
		l := &links[i]
		if !strings.HasPrefix(l.Name, "demo") {
			continue
		}
		o, err := data.Follow(ctx, l)
		if err != nil {
			return nil, err
		}
		if o.IsGroup() {
			out = append(out, demo{l.Name, o.Address()})
		}
	}
	slices.SortFunc(out, func(a, b demo) int { return natural.Compare(a.name, b.name) })
	return out, nil
}

// number is that in a demo's name.
func number(name string) (int64, bool) {
	i := strings.LastIndexByte(name, '_')
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	return n, err == nil && n >= 0
}

func (d *Dataset) read(ctx context.Context, names []string, opt robocache.OpenOptions) error {
	splits := map[string][]string{} // mask → path of demo
	for _, name := range names {
		if err := d.readFile(ctx, name, len(names) > 1, splits, opt); err != nil {
			return robocache.At(err, robocache.Where{"file": name})
		}
	}
	if want, ok := opt.Options["split"]; ok {
		paths, ok := splits[want]
		if !ok {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "robomimic", Msg: fmt.Sprintf("no mask %q", want), Hint: "masks of this dataset: " + strings.Join(keys(splits), ", ")}
		}
		in := map[string]bool{}
		for _, p := range paths {
			in[p] = true
		}
		d.Episodes = slices.DeleteFunc(d.Episodes, func(e h5set.Episode) bool { return !in[id(&e)] })
	}
	d.Info_.Splits = spans(d.Episodes, splits)
	if err := d.schema(ctx, opt.Options["next_obs"]); err != nil {
		return err
	}
	if err := d.Swap(opt.Options["channel_order"], opt.Map); err != nil {
		return err
	}
	return d.Ready()
}

func keys(m map[string][]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// id names an episode over files.
func id(e *h5set.Episode) string { return e.File.Name() + "\x00" + e.Path }

// spans turns masks into lists of positions: "0:3,5:6" is 0, 1, 2 and 5.
func spans(episodes []h5set.Episode, masks map[string][]string) map[string]string {
	at := map[string]int{}
	for i := range episodes {
		at[id(&episodes[i])] = i
	}
	out := map[string]string{}
	for name, paths := range masks {
		var places []int
		for _, p := range paths {
			if i, ok := at[p]; ok {
				places = append(places, i)
			}
		}
		slices.Sort(places)
		places = slices.Compact(places)
		var b strings.Builder
		for i := 0; i < len(places); {
			k := i + 1
			for k < len(places) && places[k] == places[k-1]+1 {
				k++
			}
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%d:%d", places[i], places[k-1]+1)
			i = k
		}
		out[name] = b.String()
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (d *Dataset) readFile(ctx context.Context, name string, many bool, splits map[string][]string, opt robocache.OpenOptions) error {
	f, err := d.OpenFile(ctx, name)
	if err != nil {
		return err
	}
	data, err := f.Lookup(ctx, "data")
	if err != nil {
		return robocache.At(err, robocache.Where{"pointer": "data"})
	}
	demos, err := list(ctx, data)
	if err != nil {
		return err
	}
	task, aliases, err := d.attributes(ctx, f, data, opt)
	if err != nil {
		return err
	}
	first := len(d.Episodes)
	d.Episodes = append(d.Episodes, make([]h5set.Episode, len(demos))...)
	found := make([][]robocache.Finding, len(demos))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0) * 4)
	for i := range demos {
		g.Go(func() (err error) {
			defer guard.Malformed("robomimic open", &err)
			e := &d.Episodes[first+i]
			*e = h5set.Episode{File: f, Group: demos[i].addr, Path: "data/" + demos[i].name, Index: int64(first + i)}
			if n, ok := number(demos[i].name); ok && !many {
				e.Index = n
			}
			e.Aliases = aliases
			found[i], err = readDemo(gctx, e, task)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, more := range found {
		d.Info_.Findings = append(d.Info_.Findings, more...)
	}
	for i := first + 1; i < len(d.Episodes); i++ {
		if a, b := &d.Episodes[i-1], &d.Episodes[i]; a.Index == b.Index {
			d.Find(robocache.SeverityWarning, "duplicate-demo", robocache.Where{"file": name, "pointer": b.Path}, fmt.Sprintf("%s and %s have the same number", a.Path, b.Path), "")
		}
	}
	if f.Open {
		d.Find(robocache.SeverityWarning, "not-closed", robocache.Where{"file": name}, "the file says that its writer has not closed it", "h5clear -s FILE, once no program writes it")
	}
	return readMasks(ctx, f, splits)
}

// readMasks collects the demos of each mask.
func readMasks(ctx context.Context, f *h5.File, splits map[string][]string) error {
	mask, err := f.Lookup(ctx, "mask")
	if errors.Is(err, robocache.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	w, err := h5set.NewWalker(ctx, f, mask, "mask")
	if err != nil {
		return err
	}
	return w.Walk(ctx, "", func(path string, o *h5.Object) error {
		ds, err := o.Dataset(ctx, "mask/"+path)
		if err != nil {
			return err
		}
		if err := ds.Claim(); err != nil {
			return err
		}
		names, err := ds.Bytes(ctx, 0, ds.Rows())
		if err != nil {
			return err
		}
		if splits[path] == nil {
			splits[path] = []string{}
		}
		for _, n := range names {
			splits[path] = append(splits[path], f.Name()+"\x00data/"+string(n))
		}
		return nil
	}, func(string, string) {})
}

// readDemo finds the length and the task of a demo.
func readDemo(ctx context.Context, e *h5set.Episode, task string) (found []robocache.Finding, err error) {
	where := robocache.Where{"episode": e.Index, "file": e.File.Name(), "pointer": e.Path}
	bad := func(sev robocache.Severity, code, msg, hint string) {
		found = append(found, robocache.Finding{Severity: sev, Code: code, Where: where, Message: msg, Hint: hint})
	}
	o, err := e.File.At(ctx, e.Group)
	if err != nil {
		return unreadable(found, where, err)
	}
	attrs, err := o.Attributes(ctx)
	if err != nil {
		return unreadable(found, where, err)
	}
	said := int64(-1)
	for i := range attrs {
		switch a := &attrs[i]; a.Name {
		case "num_samples":
			if n, ok := a.Int(); ok && n >= 0 && n <= 1<<40 {
				said = n
			}
		case "ep_meta":
			if t := language(ctx, a, "lang"); t != "" {
				task = t
			}
		}
	}
	if task != "" {
		e.Tasks = []string{task}
	}
	w, err := h5set.NewWalker(ctx, e.File, o, e.Path)
	if err != nil {
		return unreadable(found, where, err)
	}
	actions, err := w.Dataset(ctx, "actions")
	switch {
	case errors.Is(err, robocache.ErrNotFound) && said >= 0:
		e.Length = int(said)
		bad(robocache.SeverityWarning, "no-actions", "the demo has no actions; its length is num_samples", "")
		return found, nil
	case err != nil:
		return unreadable(found, where, err)
	}
	if err := actions.Claim(); err != nil {
		return unreadable(found, where, err)
	}
	e.Length, e.Acts = int(actions.Rows()), true
	if said >= 0 && said != actions.Rows() {
		bad(robocache.SeverityWarning, "num-samples-differs", fmt.Sprintf("num_samples says %d, actions have %d rows", said, actions.Rows()), "the rows of actions are served; write the right number")
	}
	return found, nil
}

// unreadable makes a demo empty and says why: the others serve.
func unreadable(found []robocache.Finding, where robocache.Where, err error) ([]robocache.Finding, error) {
	if !h5set.Data(err) {
		return nil, err
	}
	return append(found, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-episode", Where: where, Message: err.Error(), Hint: "fetch the file again, or write the demo again", Lost: true}), nil
}

// language finds a text in an attribute of JSON.
func language(ctx context.Context, a *h5.Attribute, key string) string {
	text, ok, err := a.Text(ctx)
	if err != nil || !ok {
		return ""
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil {
		return ""
	}
	var one string
	if json.Unmarshal(m[key], &one) == nil {
		return one
	}
	var many []string // LIBERO wrote lists of one
	if json.Unmarshal(m[key], &many) == nil {
		return strings.Join(many, " ")
	}
	return ""
}

// attributes reads what the group data says: env_args, and the task of all its demos.
func (d *Dataset) attributes(ctx context.Context, f *h5.File, data *h5.Object, opt robocache.OpenOptions) (task string, aliases []string, err error) {
	attrs, err := data.Attributes(ctx)
	if err != nil {
		return "", nil, err
	}
	var name, kind string
	var meta json.RawMessage
	for i := range attrs {
		switch a := &attrs[i]; a.Name {
		case "env_args":
			text, ok, err := a.Text(ctx)
			if err != nil {
				return "", nil, err
			}
			if !ok {
				continue
			}
			var env struct {
				Name string `json:"env_name"`
				Lang string `json:"env_lang"`
				Kw   struct {
					Freq   json.Number     `json:"control_freq"`
					Robots json.RawMessage `json:"robots"`
					Task   any             `json:"task"`
				} `json:"env_kwargs"`
			}
			if err := json.Unmarshal([]byte(text), &env); err != nil {
				d.Find(robocache.SeverityWarning, "env-args-malformed", robocache.Where{"file": f.Name(), "pointer": "data"}, "the attribute env_args is no JSON: "+err.Error(), "")
				continue
			}
			meta = json.RawMessage(text)
			name = env.Name
			if t, ok := env.Kw.Task.(string); ok {
				task, kind = t, t
			}
			if env.Lang != "" {
				task = env.Lang
			}
			d.robots(env.Kw.Robots)
			if opt.HZ.Zero() && env.Kw.Freq != "" {
				if err := d.rate(f, string(env.Kw.Freq)); err != nil {
					return "", nil, err
				}
			}
		case "problem_info": // LIBERO
			if t := language(ctx, a, "language_instruction"); t != "" {
				task = strings.Trim(t, `"`)
			}
		case "env_name", "env":
			if t, ok, _ := a.Text(ctx); ok && name == "" {
				name = t
			}
		}
	}
	d.meta = append(d.meta, meta)
	if task == "" {
		task = name
	}
	for _, n := range []string{name, kind} {
		if n != "" && !slices.Contains(aliases, n) {
			aliases = append(aliases, n)
		}
	}
	return task, aliases, nil
}

// rate takes control_freq; files that differ in it are no one dataset.
func (d *Dataset) rate(f *h5.File, text string) error {
	r, err := robocache.RateOf(text)
	if err != nil {
		d.Find(robocache.SeverityWarning, "control-freq-malformed", robocache.Where{"file": f.Name(), "pointer": "data"}, "control_freq of env_args is "+text, "name the rate of the rows: --rows-hz 20, in Python rows_hz=20")
		return nil
	}
	if have := d.Info_.FPS; !have.Zero() && have != r {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "robomimic", Msg: "files of one folder have different rates", Want: "control_freq " + have.String(), Got: r.String(), Hint: "open them one by one, or name the rate of the rows: --rows-hz, in Python rows_hz="}
	}
	d.Info_.FPS = r
	return nil
}

func (d *Dataset) robots(raw json.RawMessage) {
	var one string
	var many []string
	if json.Unmarshal(raw, &one) == nil {
		many = []string{one}
	} else if json.Unmarshal(raw, &many) != nil {
		return
	}
	if d.Info_.Robot == "" {
		d.Info_.Robot = strings.Join(many, ",")
	}
}
