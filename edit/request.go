package edit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/mapping"
)

// Request is an edit as the command line and Python ask for it: sources, verbs one after the other,
// and where the result goes.
type Request struct {
	Sources []string              `json:"sources"`
	Open    robocache.OpenOptions `json:"open,omitzero"` // how the sources are opened
	Verbs   []Verb                `json:"verbs"`
	// in place of sources and verbs: plans that were made before, one on top of the other
	Plans []*Plan `json:"plans,omitempty"`
	// of a split: the folder of the parts
	DST     string `json:"dst,omitempty"`
	InPlace bool   `json:"in_place,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	// the format to write; "" = the sources' where it is written, else LeRobot
	To string `json:"to,omitempty"`
	// CutHidden (default), CutExact, CutSnap
	Cut string `json:"cut,omitempty"`
	// rows are counted always; frames where episodes changed (default), or of none ("rows")
	Stats    string                   `json:"stats,omitempty"`
	Threads  int                      `json:"threads,omitempty"`
	Progress func(robocache.Progress) `json:"-"`
}

// Verb is one change. A verb looks at its own fields.
type Verb struct {
	// delete, keep, trim, split, merge, rename, remove, add, set-task, relabel, reencode, resize,
	// recompute-stats
	Verb string `json:"verb"`
	Choice
	// trim: where to begin: seconds ("0.5"), or rows ("12r"); negative: from the end. add: a file,
	// or a constant
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"` // trim: where to end
	// trim: a stream → the greatest change from row to row at which it rests
	Idle map[string]float64 `json:"idle,omitempty"`
	// trim: episodes of which nothing is left are deleted
	SkipShort bool `json:"skip_short,omitempty"`
	// split: name=fraction, name=count or name=ranges of episodes
	Into []string `json:"into,omitempty"`
	By   string   `json:"by,omitempty"` // split: "task", one part each
	// split: episodes are dealt out in this order; none = as they stand
	Seed *uint64 `json:"seed,omitempty"`
	// split: "task": each task by the same fractions
	Stratify string `json:"stratify,omitempty"`
	// split: episodes with one value of this column stay together
	Group string `json:"group,omitempty"`
	// merge: strict (default), intersection, union
	Keys string `json:"keys,omitempty"`
	// merge: a camera that a source does not have is black there
	Black bool `json:"black,omitempty"`
	// merge: the rate that all sources are brought to
	HZ string `json:"hz,omitempty"`
	// rename: old → new. relabel: old text → new
	Names    map[string]string `json:"names,omitempty"`
	Features []string          `json:"features,omitempty"` // remove: features. add: the key
	Text     string            `json:"text,omitempty"`     // set-task, relabel of rows
	// relabel: "3:40-80", rows 40 to 80 (80 not) of episode 3
	Rows  string `json:"rows,omitempty"`
	Video *Video `json:"video,omitempty"` // reencode, resize
}

// verbs are those that there are, and what each does to a plan. A split gives several plans.
var verbs = map[string]func(*editor, context.Context, *Verb) error{
	"delete":   (*editor).delete,
	"keep":     (*editor).delete,
	"trim":     (*editor).trim,
	"split":    (*editor).split,
	"merge":    (*editor).merge,
	"rename":   (*editor).rename,
	"remove":   (*editor).remove,
	"add":      (*editor).add,
	"set-task": (*editor).setTask,
	"relabel":  (*editor).relabel,
	"reencode": (*editor).reencode,
	"resize":   (*editor).reencode,
	"recompute-stats": func(*editor, context.Context, *Verb) error {
		return nil
	},
}

// editor is a request on its way.
type editor struct {
	req     *Request
	srcs    []robocache.Dataset
	plan    *Plan
	parts   []*Plan // of a split
	site    *site   // in place
	link    string  // the dataset whose files the result shares where they stay as they are
	deleted []int64 // indices of the episodes that delete and keep left out
}

// Run does what a request asks for. The report says what was done, or would be.
func Run(ctx context.Context, req *Request) (_ *Report, err error) {
	defer crash.Recover("edit", &err)
	e := &editor{req: req}
	defer e.close()
	if !slices.Contains([]string{"", CutHidden, CutExact, CutSnap}, req.Cut) ||
		len(req.Plans) > 0 && req.Cut == CutSnap {
		return nil, misuse(
			nil,
			"cut is "+req.Cut+": expected hidden, exact or snap; snap where the plan is made",
			"",
		)
	}
	if req.Stats != "" && req.Stats != "rows" {
		return nil, misuse(
			nil,
			"stats is "+req.Stats+": expected rows",
			"recompute-stats counts the frames of all episodes anew",
		)
	}
	if err := e.open(ctx); err != nil {
		return nil, err
	}
	if len(req.Plans) > 0 {
		e.plan = req.Plans[0].clone()
		for _, q := range req.Plans[1:] {
			if err := e.plan.compose(q); err != nil {
				return nil, err
			}
		}
		e.plan.Cut = cmp.Or(req.Cut, e.plan.Cut)
	} else {
		if err := e.do(ctx); err != nil {
			return nil, err
		}
	}
	parts := e.parts
	if parts == nil {
		parts = []*Plan{e.plan}
	}
	for _, p := range parts {
		if err := p.check(); err != nil {
			return nil, err
		}
	}
	return e.write(ctx, parts)
}

// open opens the sources.
func (e *editor) open(ctx context.Context) error {
	uris := e.req.Sources
	if len(e.req.Plans) > 0 {
		if len(e.req.Sources)+len(e.req.Verbs) > 0 {
			return misuse(nil, "plans, or sources and verbs, not both", "")
		}
		for _, s := range e.req.Plans[0].Sources {
			uris = append(uris, s.URI)
		}
	}
	if len(uris) == 0 {
		return misuse(nil, "no source", "")
	}
	if e.req.InPlace && !e.req.DryRun {
		if err := e.lock(uris[0]); err != nil {
			return err
		}
	}
	for i, uri := range uris {
		opened, err := mapping.Open(ctx, uri, e.req.Open)
		if err != nil {
			return err
		}
		e.srcs = append(e.srcs, opened)
		if len(e.req.Plans) == 0 {
			continue
		}
		want := e.req.Plans[0].Sources[i]
		if got, err := fingerprint(ctx, e.srcs[i]); err != nil {
			return err
		} else if got != want.Fingerprint || want.State != "" && state(ctx, e.srcs[i]) != want.State {
			return robocache.Misuse("edit", robocache.Where{"dataset": uri}, "the dataset is not the one that was planned, or its files were changed since: fingerprint").
				Expected(want.Fingerprint+" "+want.State, got+" "+state(ctx, e.srcs[i])).
				WithHint("plan again")
		}
		if !want.HZ.Zero() {
			grid, err := onGrid(ctx, e.srcs[i], want.HZ)
			if err != nil {
				return err
			}
			e.srcs[i] = grid
		}
	}
	for _, p := range e.req.Plans {
		for i, ep := range p.Episodes {
			if ep.Source < len(e.srcs) && ep.To > e.srcs[ep.Source].Len(ep.Episode) {
				return misuse(
					robocache.Where{"episode": p.numbers(e.srcs)[i]},
					"the plan has more rows than its source",
					"plan again",
				)
			}
		}
	}
	return nil
}

func (e *editor) close() {
	for _, ds := range e.srcs {
		_ = ds.Close()
	}
	if e.site != nil {
		e.site.unlock()
	}
}

// do makes the plan of the verbs.
func (e *editor) do(ctx context.Context) error {
	if len(e.req.Verbs) == 0 {
		return misuse(nil, "no verb", "")
	}
	if n := len(e.srcs); (n > 1) != (e.req.Verbs[0].Verb == "merge") {
		return misuse(
			nil,
			"several sources are for merge, which comes first and wants two or more",
			"",
		)
	}
	var err error
	if e.plan, err = newPlan(ctx, e.srcs); err != nil {
		return err
	}
	if e.req.Cut != "" {
		e.plan.Cut = e.req.Cut
	}
	for i := range e.req.Verbs {
		v := &e.req.Verbs[i]
		do, ok := verbs[v.Verb]
		if !ok {
			return misuse(
				nil,
				"no verb "+v.Verb,
				robocache.Nearest(v.Verb, slices.Sorted(maps.Keys(verbs))),
			)
		}
		if e.parts != nil {
			return misuse(nil, "split is the last verb: edit its parts one by one", "")
		}
		e.plan.Verbs = append(e.plan.Verbs, v.told())
		if err := do(e, ctx, v); err != nil {
			return err
		}
		if e.parts == nil {
			if err := e.plan.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// told is a verb as a plan keeps it: without the folders of files.
func (v *Verb) told() Verb {
	t := *v
	for _, name := range []*string{&t.Flags, &t.From} {
		if i := strings.LastIndexByte(*name, '/'); i >= 0 {
			*name = (*name)[i+1:]
		}
	}
	return t
}

// view is the plan as it stands, as a dataset.
func (e *editor) view(ctx context.Context) (*view, error) { return newView(ctx, e.plan, e.srcs) }
