package edit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/mapping"
)

// Request describes an edit for the command line and Python: the sources, the verbs in order, and
// the destination.
type Request struct {
	Sources []string              `json:"sources"`
	Open    robocache.OpenOptions `json:"open,omitzero"` // how the sources are opened
	Verbs   []Verb                `json:"verbs"`
	// Plans replace sources and verbs. They are composed in order.
	Plans []*Plan `json:"plans,omitempty"`
	// DST is the destination. For a split it is the folder of the parts.
	DST     string `json:"dst,omitempty"`
	InPlace bool   `json:"in_place,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	// To is the format to write. The default is the format of the sources if it has a writer, else
	// LeRobot.
	To string `json:"to,omitempty"`
	// Cut is CutHidden (default), CutExact or CutSnap.
	Cut string `json:"cut,omitempty"`
	// Stats selects the image statistics: "" computes those of changed episodes, "rows" computes
	// none. Statistics of rows are always computed.
	Stats    string                   `json:"stats,omitempty"`
	Threads  int                      `json:"threads,omitempty"`
	Progress func(robocache.Progress) `json:"-"`
}

// Verb is one change. Each verb reads only its own fields.
type Verb struct {
	// Verb is delete, keep, trim, split, merge, rename, remove, add, set-task, relabel, annotate,
	// reencode, resize or recompute-stats.
	Verb string `json:"verb"`
	Choice
	// From is the start of trim in seconds ("0.5") or rows ("12r"). Negative values count from the
	// end. For add it is a file or a constant.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"` // end of trim
	// Idle (trim) maps a stream to a threshold. The stream is at rest in a row if no value differs
	// from the previous row by more than the threshold.
	Idle map[string]float64 `json:"idle,omitempty"`
	// SkipShort (trim) deletes episodes of which no rows remain. Otherwise they are an error.
	SkipShort bool `json:"skip_short,omitempty"`
	// Into (split) lists name=fraction, name=count or name=ranges of episodes.
	Into []string `json:"into,omitempty"`
	By   string   `json:"by,omitempty"` // split: "task" makes one part per task
	// Seed (split) shuffles the episodes before they are divided. nil keeps their order.
	Seed *uint64 `json:"seed,omitempty"`
	// Stratify (split) is "task" to divide each task by the same fractions.
	Stratify string `json:"stratify,omitempty"`
	// Group (split) keeps episodes with the same value of this column together.
	Group string `json:"group,omitempty"`
	// Keys (merge) is strict (default), intersection or union.
	Keys string `json:"keys,omitempty"`
	// Black (merge) fills in black frames if a source lacks a camera.
	Black bool `json:"black,omitempty"`
	// HZ (merge) is the rate to which all sources are resampled.
	HZ string `json:"hz,omitempty"`
	// Names maps old to new names (rename), or old to new task texts (relabel).
	Names    map[string]string `json:"names,omitempty"`
	Features []string          `json:"features,omitempty"` // features to remove, or the key to add
	// task of set-task, or of relabel with Rows
	Text string `json:"text,omitempty"`
	// Rows (relabel) names rows of one episode. "3:40-80" means rows 40 to 79 of episode 3.
	Rows  string `json:"rows,omitempty"`
	Video *Video `json:"video,omitempty"` // reencode, resize
	// Key (annotate) is the style of the texts: subtask (default), plan, memory, motion or
	// interjection.
	Key string `json:"key,omitempty"`
	// Append (annotate) keeps the texts of the same style outside the ranges.
	Append bool         `json:"append,omitempty"`
	Ranges []Annotation `json:"ranges,omitempty"` // annotate: replaces From
}

// verbFuncs holds the implementation of each verb, which changes editor.plan. The implementation of
// split also sets editor.parts.
var verbFuncs = map[string]func(*editor, context.Context, *Verb) error{
	"delete":   (*editor).deleteEpisodes,
	"keep":     (*editor).deleteEpisodes,
	"trim":     (*editor).trimEpisodes,
	"split":    (*editor).splitEpisodes,
	"merge":    (*editor).mergeSources,
	"rename":   (*editor).renameFeatures,
	"remove":   (*editor).removeFeatures,
	"add":      (*editor).addFeature,
	"set-task": (*editor).setTask,
	"relabel":  (*editor).relabelTasks,
	"annotate": (*editor).annotateRows,
	"reencode": (*editor).reencodeVideo,
	"resize":   (*editor).reencodeVideo,
	"recompute-stats": func(*editor, context.Context, *Verb) error {
		return nil
	},
}

// editor holds the state of one request.
type editor struct {
	req     *Request
	srcs    []robocache.Dataset
	plan    *Plan
	parts   []*Plan   // plans of the parts of a split
	site    *editSite // set if the edit is in place
	link    string    // dataset whose unchanged files are hard-linked into the result
	deleted []int64   // indices of the episodes that delete and keep removed
}

// Run executes a request. The report describes what was done, or what a dry run would do.
func Run(ctx context.Context, req *Request) (_ *Report, err error) {
	defer crash.Recover("edit", &err)
	e := &editor{req: req}
	defer e.close()
	isKnownCut := slices.Contains([]string{"", CutHidden, CutExact, CutSnap}, req.Cut)
	snapsTooLate := len(req.Plans) > 0 && req.Cut == CutSnap // the rows are already planned
	if !isKnownCut || snapsTooLate {
		return nil, misuse(
			nil,
			"cut is "+req.Cut+": expected hidden or exact, or snap without plans",
			"",
		)
	}
	if req.Stats != "" && req.Stats != "rows" {
		return nil, misuse(
			nil,
			"stats is "+req.Stats+": expected rows",
			"recompute-stats computes the statistics of all frames again",
		)
	}
	if err := e.openSources(ctx); err != nil {
		return nil, err
	}
	if len(req.Plans) > 0 {
		e.plan = req.Plans[0].clone()
		for _, q := range req.Plans[1:] {
			if err := e.plan.composeWith(q); err != nil {
				return nil, err
			}
		}
		e.plan.Cut = cmp.Or(req.Cut, e.plan.Cut)
	} else {
		if err := e.planVerbs(ctx); err != nil {
			return nil, err
		}
	}
	parts := e.parts
	if parts == nil {
		parts = []*Plan{e.plan}
	}
	for _, p := range parts {
		if err := p.checkResult(); err != nil {
			return nil, err
		}
	}
	return e.writeParts(ctx, parts)
}

// openSources opens the sources. If the request has plans, it checks that the sources of the plans
// are unchanged. For an edit in place, it locks the dataset first.
func (e *editor) openSources(ctx context.Context) error {
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
		if err := e.lockInPlace(uris[0]); err != nil {
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
		planned := e.req.Plans[0].Sources[i]
		if err := checkUnchanged(ctx, opened, planned, uri); err != nil {
			return err
		}
		if !planned.HZ.Zero() {
			grid, err := resampleSource(ctx, opened, planned.HZ)
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
					robocache.Where{"episode": p.episodeNumbers(e.srcs)[i]},
					"the plan has more rows than its source",
					"plan again",
				)
			}
		}
	}
	return nil
}

// checkUnchanged returns an error if a dataset is not the planned source, or was changed since.
func checkUnchanged(ctx context.Context, ds robocache.Dataset, planned Source, uri string) error {
	fingerprint, err := datasetFingerprint(ctx, ds)
	if err != nil {
		return err
	}
	state, err := flags.FilesState(ctx, ds)
	if err != nil {
		return err
	}
	if fingerprint == planned.Fingerprint && (planned.State == "" || state == planned.State) {
		return nil
	}
	return robocache.Misuse(
		"edit",
		robocache.Where{"dataset": uri},
		"the dataset is not the one that was planned, or its files were changed since: "+
			"fingerprint",
	).Expected(planned.Fingerprint+" "+planned.State, fingerprint+" "+state).
		WithHint("plan again")
}

func (e *editor) close() {
	for _, ds := range e.srcs {
		_ = ds.Close()
	}
	if e.site != nil {
		e.site.unlock()
	}
}

// planVerbs makes a plan and applies the verbs of the request to it.
func (e *editor) planVerbs(ctx context.Context) error {
	if len(e.req.Verbs) == 0 {
		return misuse(nil, "no verb", "")
	}
	if n := len(e.srcs); (n > 1) != (e.req.Verbs[0].Verb == "merge") {
		return misuse(
			nil,
			"merge needs two or more sources and must be the first verb; other verbs need one "+
				"source",
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
		do, ok := verbFuncs[v.Verb]
		if !ok {
			return misuse(
				nil,
				"no verb "+v.Verb,
				robocache.Nearest(v.Verb, slices.Sorted(maps.Keys(verbFuncs))),
			)
		}
		if e.parts != nil {
			return misuse(nil, "split is the last verb: edit its parts one by one", "")
		}
		e.plan.Verbs = append(e.plan.Verbs, v.withoutFolders())
		if err := do(e, ctx, v); err != nil {
			return err
		}
		if e.parts == nil {
			if err := e.plan.checkResult(); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutFolders returns a copy of the verb in which the paths of files are reduced to their names.
// The plan therefore does not depend on where the files are.
func (v *Verb) withoutFolders() Verb {
	t := *v
	for _, name := range []*string{&t.Flags, &t.From} {
		if i := strings.LastIndexByte(*name, '/'); i >= 0 {
			*name = (*name)[i+1:]
		}
	}
	return t
}

// openPlan returns the current plan as a dataset. The caller must close it.
func (e *editor) openPlan(ctx context.Context) (*planDataset, error) {
	return newPlanDataset(ctx, e.plan, e.srcs)
}
