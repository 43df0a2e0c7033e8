package robomimic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

var options = map[string]string{
	"split":    "open only the demos of this mask (mask/<name>)",
	"next_obs": "true: next_obs/<key> too, as next.observation.<key>",
	"channel_order": "rgb (default) or bgr: what the images' channels are; agentview_image=bgr " +
		"for some cameras",
}

func init() {
	robocache.Register(
		robocache.Format{
			Name:          "robomimic",
			Write:         Write,
			Sharding:      &sharding,
			WriteOptions:  writeOptions,
			Keeps:         func(f *robocache.Feature) bool { return whyDropped(f) == "" },
			NeedsEpisodes: true,
			KeepsLacking:  true,
			Detect:        Detect,
			Options:       options,
			Open:          reader.Opener(Open),
		},
	)
}

// Detect reports whether uri is an HDF5 file with demos in the group data. For a folder it checks
// the first HDF5 file.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(f *h5.File) (bool, error) {
		lookup, err := f.Lookup(ctx, "data")
		if err != nil {
			return false, err
		}
		demos, err := listDemos(ctx, lookup)
		if err != nil {
			return false, err
		}
		return len(demos) > 0, nil
	})
}

// Dataset is an open file, or folder of files, in robomimic's layout.
type Dataset struct {
	*h5set.Set
	envArgs []json.RawMessage // env_args, by file

	poseDeltas []int // number of relative channels of the actions, by file; 0 if unknown
}

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	d := &Dataset{}
	_, err := h5set.Open(ctx, "robomimic", uri, opt, func(s *h5set.Set, names []string) error {
		d.Set = s
		s.Constant = func(path string) bool { return strings.HasPrefix(path, initialState) }
		return d.readFiles(ctx, names, opt)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// initialState is the group of a demo of Isaac Lab with the state before the first action.
const initialState = "initial_state/"

// EnvArgs returns the JSON of env_args of a file of the dataset, or nil if the file has none.
func (d *Dataset) EnvArgs(file int) json.RawMessage {
	if file < 0 || file >= len(d.envArgs) {
		return nil
	}
	return d.envArgs[file]
}

// demo is a group below data.
type demo struct {
	name string
	addr uint64
}

// listDemos returns the demos in the group data, sorted by the numbers in their names.
func listDemos(ctx context.Context, data *h5.Object) (out []demo, err error) {
	links, err := data.Links(ctx)
	if err != nil {
		return out, err
	}
	for i := range links {
		l := &links[i]
		if !strings.HasPrefix(l.Name, "demo") {
			continue
		}
		if o, err := data.Follow(ctx, l); err != nil {
			return out, err
		} else if o.IsGroup() {
			out = append(out, demo{l.Name, o.Address()})
		}
	}
	slices.SortFunc(out, func(a, b demo) int { return natural.Compare(a.name, b.name) })
	return out, nil
}

func (d *Dataset) readFiles(ctx context.Context, names []string, opt robocache.OpenOptions) error {
	splits := map[string][]string{} // mask → paths of demos
	for _, name := range names {
		if err := d.readFile(ctx, name, len(names) > 1, splits, opt); err != nil {
			return err
		}
	}
	if len(names) > 1 {
		d.NumberByFile()
	}
	if want, ok := opt.Options["split"]; ok {
		paths, ok := splits[want]
		if !ok {
			return robocache.Misuse("robomimic", nil, "no mask %q", want).
				WithHint(
					"masks of this dataset: %s",
					strings.Join(slices.Sorted(maps.Keys(splits)), ", "),
				)
		}
		in := map[string]bool{}
		for _, p := range paths {
			in[p] = true
		}
		d.Episodes = slices.DeleteFunc(
			d.Episodes,
			func(e h5set.Episode) bool { return !in[globalPath(&e)] },
		)
	}
	d.About.Splits = splitPositions(d.Episodes, splits)
	next := false
	if err := reader.Op("robomimic").Settle(opt.Options, options,
		map[string]reader.Set{"next_obs": reader.Yes(&next)}); err != nil {
		return err
	}
	if err := d.Schema(ctx, func(path string) string { return keyOf(path, next) }); err != nil {
		return err
	}
	d.markRelative()
	// Observations and action come first: they are the inputs and outputs of a policy.
	rank := func(s h5set.Stream) int {
		if strings.HasPrefix(s.Key, "observation.") || s.Key == "action" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(d.Streams, func(a, b h5set.Stream) int { return rank(a) - rank(b) })
	return nil
}

// keyOf returns the key of the stream in a data set of a demo, or "" if it is not a stream.
func keyOf(path string, next bool) string {
	dots := strings.ReplaceAll(path, "/", ".")
	switch {
	case path == "actions":
		return "action"
	case strings.HasPrefix(path, "obs/"):
		return "observation" + dots[len("obs"):]
	case strings.HasPrefix(path, "next_obs/"):
		if !next {
			return ""
		}
		return "next.observation" + dots[len("next_obs"):]
	}
	return dots
}

// globalPath identifies an episode across files.
func globalPath(e *h5set.Episode) string { return e.File.Name() + "\x00" + e.Path }

// splitPositions converts masks to lists of positions: "0:3,5:6" is 0, 1, 2 and 5.
func splitPositions(episodes []h5set.Episode, masks map[string][]string) map[string]string {
	at := map[string]int{}
	for i := range episodes {
		at[globalPath(&episodes[i])] = i
	}
	var out map[string]string
	for name, paths := range masks {
		if out == nil {
			out = map[string]string{}
		}
		var positions []int
		for _, p := range paths {
			if i, ok := at[p]; ok {
				positions = append(positions, i)
			}
		}
		slices.Sort(positions)
		out[name] = robocache.Spans(slices.Compact(positions))
	}
	return out
}

func (d *Dataset) readFile(
	ctx context.Context,
	name string,
	many bool,
	splits map[string][]string,
	opt robocache.OpenOptions,
) (err error) {
	defer robocache.LocateIn(&err, "file", name)
	f, err := d.OpenFile(ctx, name)
	if err != nil {
		return err
	}
	data, err := f.Lookup(ctx, "data")
	if err := robocache.At(err, robocache.Where{"pointer": "data"}); err != nil {
		return err
	}
	demos, err := listDemos(ctx, data)
	if err != nil {
		return err
	}
	task, aliases, err := d.readAttributes(ctx, f, data, opt)
	if err != nil {
		return err
	}
	first := len(d.Episodes)
	d.Episodes = append(d.Episodes, make([]h5set.Episode, len(demos))...)
	found := make([][]robocache.Finding, len(demos))
	outcomes := make([]outcome, len(demos))
	if err := h5set.Each(ctx, "robomimic open", len(demos), func(ctx context.Context, i int) error {
		e := &d.Episodes[first+i]
		*e = h5set.Episode{
			File:    f,
			Group:   demos[i].addr,
			Path:    "data/" + demos[i].name,
			Index:   int64(first + i),
			Aliases: aliases,
		}
		number := demos[i].name[strings.LastIndexByte(demos[i].name, '_')+1:]
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 && !many {
			e.Index = n
		}
		var err error
		if found[i], err = readDemo(ctx, e, task, &outcomes[i]); err != nil {
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	d.About.Findings = append(d.About.Findings, slices.Concat(found...)...)
	for i := first + 1; i < len(d.Episodes); i++ {
		if a, b := &d.Episodes[i-1], &d.Episodes[i]; a.Index == b.Index {
			d.Find(
				robocache.SeverityWarning,
				"duplicate-demo",
				robocache.Where{"file": name, "pointer": b.Path},
				fmt.Sprintf("%s and %s have the same number", a.Path, b.Path),
				"",
			)
		}
	}
	if f.Open {
		d.FindUnclosed(name)
	}
	if err := readMasks(ctx, f, splits); err != nil {
		return err
	}
	addOutcomes(splits, d.Episodes[first:], outcomes)
	return nil
}

// outcome is the attribute success of a demo: the name of a split, or "" without the attribute.
type outcome string

// addOutcomes adds demos to the splits success and failure, unless a mask has such a name.
func addOutcomes(splits map[string][]string, demos []h5set.Episode, outcomes []outcome) {
	if len(demos) == 0 {
		return
	}
	for _, name := range []outcome{"success", "failure"} {
		if own := splits[string(name)]; len(own) > 0 &&
			strings.HasPrefix(own[0], demos[0].File.Name()+"\x00") {
			continue
		}
		for i, o := range outcomes {
			if o == name {
				splits[string(name)] = append(splits[string(name)], globalPath(&demos[i]))
			}
		}
	}
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
	walker, err := h5set.NewWalker(ctx, f, mask, "mask")
	if err != nil {
		return err
	}
	return walker.Walk(func(path string, o *h5.Object) error {
		ds, err := o.Dataset(ctx, "mask/"+path)
		if err != nil {
			return err
		}
		if err := ds.Claim(); err != nil {
			return err
		}
		if splits[path] == nil {
			splits[path] = []string{}
		}
		bytes, err := ds.Bytes(ctx, 0, ds.Rows())
		if err != nil {
			return err
		}
		for _, n := range bytes {
			splits[path] = append(splits[path], f.Name()+"\x00data/"+string(n))
		}
		return nil
	}, nil)
}

// readDemo determines the length and the task of a demo. An unreadable demo is empty and has a
// finding, so that the other demos can be used.
func readDemo(
	ctx context.Context,
	e *h5set.Episode,
	task string,
	result *outcome,
) (found []robocache.Finding, err error) {
	where := robocache.Where{"episode": e.Index, "file": e.File.Name(), "pointer": e.Path}
	bad := func(sev robocache.Severity, code, msg, hint string) *robocache.Finding {
		found = append(
			found,
			robocache.Finding{Severity: sev, Code: code, Where: where, Message: msg, Hint: hint},
		)
		return &found[len(found)-1]
	}
	err, failed := h5set.Tolerate(func() error {
		o, err := e.File.At(ctx, e.Group)
		if err != nil {
			return err
		}
		said := int64(-1)
		attributes, err := o.Attributes(ctx)
		if err != nil {
			return err
		}
		for _, a := range attributes {
			switch a.Name {
			case "num_samples":
				if n, ok := a.Int(); ok && n >= 0 && n <= 1<<40 {
					said = n
				}
			case "success":
				if n, ok := a.Int(); ok {
					if *result = "success"; n == 0 {
						*result = "failure"
					}
				}
			case "ep_meta":
				text, err := textInJSON(ctx, &a, "lang")
				if err != nil {
					return err
				}
				task = cmp.Or(text, task)
			case sourceAttribute:
				{
					text, ok, err := a.Text(ctx)
					if robocache.IsFatal(err) {
						return err
					}
					if err == nil && ok {
						e.Source = origin.Parse(text)
					}
				}
			}
		}
		e.SetTask(task)
		var actions *h5.Dataset
		w, err := h5set.NewWalker(ctx, e.File, o, e.Path)
		if err != nil {
			return err
		}
		if err := func() error {
			dataset, err := w.Dataset("actions")
			if err != nil {
				return err
			}
			actions = dataset
			return nil
		}(); errors.Is(err, robocache.ErrNotFound) && said >= 0 {
			e.Length = int(said)
			bad(
				robocache.SeverityWarning,
				"no-actions",
				"the demo has no actions; its length is num_samples",
				"",
			)
			return nil
		} else {
			if err != nil {
				return err
			}
		}
		if err := actions.Claim(); err != nil {
			return err
		}
		e.Length, e.Acts = int(actions.Rows()), true
		if said >= 0 && said != actions.Rows() {
			bad(
				robocache.SeverityWarning,
				"num-samples-differs",
				fmt.Sprintf("num_samples says %d, actions have %d rows", said, actions.Rows()),
				"the rows of actions are served; write the right number",
			)
		}
		return nil
	})
	if failed != nil {
		return found, failed
	}
	if robocache.IsFatal(err) {
		return found, err
	}
	if err != nil {
		bad(robocache.SeverityError, "unreadable-episode", err.Error(),
			"fetch the file again, or write the demo again").Lost = true
	}
	return found, nil
}

// textInJSON returns a text from an attribute that contains JSON.
func textInJSON(ctx context.Context, a *h5.Attribute, key string) (string, error) {
	text, ok, err := a.Text(ctx)
	if robocache.IsFatal(err) {
		return "", err
	}
	if err != nil || !ok {
		return "", nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil {
		return "", nil
	}
	return joinTexts(m[key], " "), nil // LIBERO wrote lists of one text
}

// readAttributes reads the attributes of the group data: env_args, and the task of all its demos.
func (d *Dataset) readAttributes(
	ctx context.Context,
	f *h5.File,
	data *h5.Object,
	opt robocache.OpenOptions,
) (task string, aliases []string, err error) {
	var name, kind string
	var meta json.RawMessage
	var poseDeltas int
	attributes, err := data.Attributes(ctx)
	if err != nil {
		return task, aliases, err
	}
	for _, a := range attributes {
		switch a.Name {
		case "env_args":
			text, ok, err := a.Text(ctx)
			if err != nil {
				return task, aliases, err
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

					Controller json.RawMessage `json:"controller_configs"`
				} `json:"env_kwargs"`
			}
			if err := json.Unmarshal([]byte(text), &env); err != nil {
				d.Find(
					robocache.SeverityWarning,
					"env-args-malformed",
					robocache.Where{"file": f.Name(), "pointer": "data"},
					"the attribute env_args is not JSON: "+err.Error(),
					"",
				)
				continue
			}
			meta, name = json.RawMessage(text), env.Name
			poseDeltas = poseDeltasOf(env.Kw.Controller)
			if t, ok := env.Kw.Task.(string); ok {
				task, kind = t, t
			}
			task = cmp.Or(env.Lang, task)
			d.About.Robot = cmp.Or(d.About.Robot, joinTexts(env.Kw.Robots, ","))
			if !opt.HZ.Zero() || env.Kw.Freq == "" {
				continue
			}
			if r, err := robocache.RateOf(string(env.Kw.Freq)); err == nil {
				if err := d.Rate(f.Name(), r); err != nil {
					return task, aliases, err
				}
			} else {
				d.Find(
					robocache.SeverityWarning,
					"control-freq-malformed",
					robocache.Where{"file": f.Name(), "pointer": "data"},
					"control_freq of env_args is "+string(env.Kw.Freq),
					"name the rate of the rows: "+robocache.Option("rows_hz", 20),
				)
			}
		case "problem_info": // LIBERO
			if t, err := textInJSON(ctx, &a, "language_instruction"); err != nil {
				return task, aliases, err
			} else if t != "" {
				task = strings.Trim(t, `"`)
			}
		case h5set.TimestampsAttribute:
			if t, ok, _ := a.Text(ctx); ok {
				d.Suffix = t
			}
		case "env_name", "env":
			if t, ok, _ := a.Text(ctx); ok && name == "" {
				name = t
			}
		}
	}
	d.envArgs, d.poseDeltas = append(d.envArgs, meta), append(d.poseDeltas, poseDeltas)
	for _, n := range []string{name, kind} {
		if n != "" && !slices.Contains(aliases, n) {
			aliases = append(aliases, n)
		}
	}
	return cmp.Or(task, name), aliases, nil
}

// joinTexts returns a JSON text, or the texts of a JSON list joined by sep.
func joinTexts(raw json.RawMessage, sep string) string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one
	}
	var many []string
	if json.Unmarshal(raw, &many) != nil {
		return ""
	}
	return strings.Join(many, sep)
}
