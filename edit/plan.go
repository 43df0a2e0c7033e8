package edit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/store"
)

// planVersion is the version of plans that this package reads and writes.
const planVersion = 1

// Plan describes the contents of a result. A dry run prints it as JSON, and Apply takes it.
type Plan struct {
	Version  int            `json:"robocache_plan"`
	Sources  []Source       `json:"sources"`
	Verbs    []Verb         `json:"verbs"` // as requested
	FPS      robocache.Rate `json:"fps,omitzero"`
	Format   string         `json:"format"` // of the result
	Cut      string         `json:"cut,omitempty"`
	Episodes []Episode      `json:"episodes"`
	Keys     []Key          `json:"keys"`
	Video    *Video         `json:"video,omitempty"` // nil: video is copied
	Part     string         `json:"split,omitempty"` // name of the part of a split
	// Notes report decisions of the planner, such as reordered channels and moved cuts.
	Notes []string      `json:"notes,omitempty"`
	files []store.Entry // source files to copy; nil: a writer writes the result
}

// Source is a dataset that a plan reads from.
type Source struct {
	URI         string `json:"uri"`
	Format      string `json:"format"`
	Version     string `json:"version,omitempty"`
	Fingerprint string `json:"fingerprint"`
	State       string `json:"files,omitempty"` // hash of the file list when it was planned
	Episodes    int    `json:"num_episodes"`
	Frames      int64  `json:"num_frames"`
	// rate that it is resampled to; zero: it is not resampled
	HZ robocache.Rate `json:"hz,omitzero"`
}

// Episode is an episode of the result: rows [From, To) of a source episode.
type Episode struct {
	Source  int               `json:"source,omitempty"`
	Episode int               `json:"episode"` // position in the source
	From    int               `json:"from"`
	To      int               `json:"to"`
	Texts   map[string]string `json:"relabel,omitempty"` // old task text → new
	Rows    []Relabel         `json:"relabel_rows,omitempty"`
	// Language holds the texts that annotate adds.
	Language []Language `json:"language,omitempty"`
	// Replaced holds the styles whose texts annotate replaces. The source's texts of these styles
	// are left out.
	Replaced []string `json:"replaced_styles,omitempty"`
}

// Relabel sets the task of rows [From, To) of the source episode.
type Relabel struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	Text string `json:"task"`
}

// Key is a feature of the result.
type Key struct {
	Key string `json:"key"`
	// From is the key in each source. An empty key means that the source lacks the feature: its
	// rows are zeros, and "<key>.valid" is false.
	From []string `json:"from"`
	// Order holds, for each source, the source channel of each channel of the result. nil keeps the
	// order of the source.
	Order [][]int `json:"order,omitempty"`
	// Ones fills the mask column "<key>.valid" for a source that lacks it: with 1 if the source has
	// the stream, else with 0. It is set for the mask column and for its stream.
	Ones  bool   `json:"ones,omitempty"`
	Added *Added `json:"added,omitempty"`
}

// Video sets the encoding of video that is not copied.
type Video struct {
	Codec  string `json:"codec,omitempty"`
	GOP    int    `json:"gop,omitempty"`
	CRF    int    `json:"crf,omitempty"`
	Preset string `json:"preset,omitempty"`
	// All encodes all frames, not only those that cannot be copied.
	All    bool `json:"all,omitempty"`
	Width  int  `json:"width,omitempty"`
	Height int  `json:"height,omitempty"`
}

// The choices of Request.Cut.
const (
	// CutHidden also copies up to maxHidden frames outside the cut, which no row refers to. If more
	// frames were needed, it encodes as CutExact does.
	CutHidden = "hidden"
	CutExact  = "exact" // encodes the frames that cannot be copied
	CutSnap   = "snap"  // moves the cut to where frames can be copied
)

// maxHidden is the maximum number of hidden frames at a cut.
const maxHidden = 16

// newPlan returns a plan of all episodes of the sources, with the features of the first source.
func newPlan(ctx context.Context, srcs []robocache.Dataset) (*Plan, error) {
	p := &Plan{Version: planVersion, Verbs: []Verb{}, Cut: CutHidden}
	for i, ds := range srcs {
		info := ds.Info()
		fingerprint, err := datasetFingerprint(ctx, ds)
		if err != nil {
			return nil, err
		}
		state, err := flags.FilesState(ctx, ds)
		if err != nil {
			return nil, err
		}
		p.Sources = append(p.Sources, Source{
			URI:         robocache.Redact(info.URI),
			Format:      info.Format,
			Version:     info.Version,
			Fingerprint: fingerprint,
			State:       state,
			Episodes:    info.Episodes,
			Frames:      info.Frames,
		})
		for e := range info.Episodes {
			p.Episodes = append(p.Episodes, Episode{Source: i, Episode: e, To: ds.Len(e)})
		}
	}
	info := srcs[0].Info()
	p.FPS = info.FPS
	for _, f := range info.Features {
		if !f.Default {
			p.Keys = append(p.Keys, Key{Key: f.Key, From: []string{f.Key}})
		}
	}
	return p, nil
}

// episodeNumbers returns the numbers by which verbs and messages name the plan's episodes. With one
// source they are episode indices of the source. With several sources they are positions in the
// merged dataset. An episode keeps its number if earlier verbs delete or reorder episodes.
func (p *Plan) episodeNumbers(srcs []robocache.Dataset) []int64 {
	out := make([]int64, len(p.Episodes))
	if len(srcs) == 1 {
		for i, e := range p.Episodes {
			out[i] = srcs[0].Info().EpisodeIndex(e.Episode)
		}
		return out
	}
	first := make([]int64, len(srcs))
	for i := 1; i < len(srcs); i++ {
		first[i] = first[i-1] + int64(srcs[i-1].Info().Episodes)
	}
	for i, e := range p.Episodes {
		out[i] = first[e.Source] + int64(e.Episode)
	}
	return out
}

// clone returns a copy of the plan that verbs can change independently.
func (p *Plan) clone() *Plan {
	q := *p
	q.Verbs = slices.Clone(p.Verbs)
	q.Episodes = slices.Clone(p.Episodes)
	q.Keys = slices.Clone(p.Keys)
	q.Notes = slices.Clone(p.Notes)
	for i := range q.Keys {
		q.Keys[i].From = slices.Clone(p.Keys[i].From)
	}
	return &q
}

// datasetFingerprint returns a hash of the contents and the edits of a dataset. It does not depend
// on the location of the dataset.
func datasetFingerprint(ctx context.Context, ds robocache.Dataset) (string, error) {
	info := ds.Info()
	h := sha256.New()
	features := slices.Clone(info.Features)
	for i := range features {
		features[i].Codec, features[i].Names = "", nil // opening may correct these
	}
	fingerprint, err := flags.Fingerprint(ctx, ds)
	if err != nil {
		return "", err
	}
	identity := []any{
		fingerprint,
		info.Format,
		info.Version,
		info.FPS,
		features,
		info.Tasks,
		info.Splits,
	}
	if err := json.NewEncoder(h).Encode(identity); err != nil {
		return "", err
	}
	if s, ok := robocache.As[store.Source](ds); ok {
		if b, err := store.ReadFile(ctx, s.Store(), editsName, maxMetaBytes); err == nil {
			_, _ = h.Write(b)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// keyIndex returns the index of a feature of the result. If there is no such feature, the error
// mentions purpose, a verb such as rename.
func (p *Plan) keyIndex(name, purpose string) (int, error) {
	i := slices.IndexFunc(p.Keys, func(k Key) bool { return k.Key == name })
	if i < 0 {
		var keys []string
		for _, k := range p.Keys {
			keys = append(keys, k.Key)
		}
		return 0, misuse(
			robocache.Where{"stream": name},
			"there is no feature of this name to "+purpose,
			robocache.Nearest(name, keys),
		)
	}
	return i, nil
}

// ParsePlan parses the JSON of a plan.
func ParsePlan(b []byte) (_ *Plan, err error) {
	plan := &Plan{}
	bad := func(err error, msg string) error {
		return robocache.Malformed("plan", nil, "%s", msg).WithCause(err).
			WithHint("a plan is what 'robocache edit VERB --dry-run --json' prints, and .plan " +
				"of Edit.plan() in Python")
	}
	var report struct{ Plan *Plan } // the output of a dry run contains the plan
	if json.Unmarshal(b, &report) == nil && report.Plan != nil {
		plan = report.Plan
	} else if err := json.Unmarshal(b, plan); err != nil {
		return nil, bad(err, "not a plan")
	}
	switch {
	case plan.Version != planVersion:
		msg := fmt.Sprintf("robocache_plan is %d, expected %d", plan.Version, planVersion)
		return nil, bad(nil, msg)
	case len(plan.Sources) == 0 || len(plan.Episodes) == 0:
		return nil, bad(nil, "a plan without sources or episodes")
	}
	for i, e := range plan.Episodes {
		hasSource := e.Source >= 0 && e.Source < len(plan.Sources)
		inSource := hasSource && e.Episode >= 0 && e.Episode < plan.Sources[e.Source].Episodes
		hasRows := e.From >= 0 && e.To > e.From
		if !inSource || !hasRows {
			msg := fmt.Sprintf("episode %d of the plan is not in its source: %+v", i, e)
			return nil, bad(nil, msg)
		}
	}
	for _, k := range plan.Keys {
		if k.Key == "" || k.Added == nil && len(k.From) != len(plan.Sources) {
			msg := fmt.Sprintf(
				"feature %q of the plan does not say where it comes from in %d sources",
				k.Key,
				len(plan.Sources),
			)
			return nil, bad(nil, msg)
		}
	}
	if !slices.Contains([]string{"", CutHidden, CutExact, CutSnap}, plan.Cut) {
		return nil, bad(nil, "cut is "+plan.Cut)
	}
	return plan, nil
}

// composeWith adds the changes of q, a later plan of the same sources. The result has the episodes,
// rows and features that both plans keep. Changes of tasks by q are applied after those of p. The
// video encoding of q replaces that of p.
func (p *Plan) composeWith(q *Plan) error {
	same := func(a, b Source) bool { return a.Fingerprint == b.Fingerprint }
	if !slices.EqualFunc(p.Sources, q.Sources, same) {
		return misuse(
			nil,
			"the plans are of different sources",
			"plan them of the same datasets, or apply one after the other",
		)
	}
	keys, err := composeKeys(p.Keys, q.Keys)
	if err != nil {
		return err
	}
	p.Keys = keys
	p.Episodes = composeEpisodes(p.Episodes, q.Episodes)
	p.Verbs = slices.Concat(p.Verbs, q.Verbs)
	p.Notes = slices.Concat(p.Notes, q.Notes)
	if q.Video != nil {
		p.Video = q.Video
	}
	if q.Cut != CutHidden {
		p.Cut = q.Cut
	}
	return nil
}

// composeEpisodes returns the episodes that two plans of the same sources keep, with the changes of
// both.
func composeEpisodes(earlier, later []Episode) (out []Episode) {
	type sourceEpisode struct{ source, episode int }
	laterOf := map[sourceEpisode][]Episode{}
	for _, e := range later {
		id := sourceEpisode{e.Source, e.Episode}
		laterOf[id] = append(laterOf[id], e)
	}
	for _, e := range earlier {
		for _, next := range laterOf[sourceEpisode{e.Source, e.Episode}] {
			both := e.intersect(next)
			if both.From < both.To {
				out = append(out, both)
			}
		}
	}
	return out
}

// intersect returns an episode of the rows that both episodes have. The changes of e are applied
// before those of next. Both must be of the same source episode.
func (e Episode) intersect(next Episode) Episode {
	e.From = max(e.From, next.From)
	e.To = min(e.To, next.To)
	if next.Texts != nil {
		texts := maps.Clone(next.Texts)
		for old, text := range e.Texts {
			texts[old] = text
			if last, ok := next.Texts[text]; ok {
				texts[old] = last
			}
		}
		e.Texts = texts
	}
	e.Rows = slices.Concat(e.Rows, next.Rows)
	e.Language = slices.Concat(e.Language, next.Language)
	e.Replaced = slices.Concat(e.Replaced, next.Replaced)
	return e
}

// composeKeys returns the keys of a result to which two plans of the same sources apply. It keeps a
// key of the sources if both plans keep it, under the new name if one plan renames it. It keeps all
// keys that either plan adds. It returns an error if both plans rename a key, to different names.
func composeKeys(earlier, later []Key) (out []Key, err error) {
	source := func(k Key) string { return strings.Join(k.From, "\x00") }
	for _, k := range earlier {
		if k.Added != nil {
			out = append(out, k)
			continue
		}
		hasSource := func(o Key) bool { return o.Added == nil && source(o) == source(k) }
		i := slices.IndexFunc(later, hasSource)
		if i < 0 {
			continue
		}
		original := k.From[0]
		name := later[i].Key
		if name != original && name != k.Key {
			if k.Key != original {
				return nil, misuse(
					robocache.Where{"stream": original},
					fmt.Sprintf("two plans rename it, to %s and to %s", k.Key, name),
					"",
				)
			}
			k.Key = name
		}
		out = append(out, k)
	}
	for _, k := range later {
		if k.Added != nil {
			out = append(out, k)
		}
	}
	return out, nil
}

// checkResult returns an error if the result would have no episodes, or two features with one name.
func (p *Plan) checkResult() error {
	total := 0
	for _, s := range p.Sources {
		total += s.Episodes
	}
	if total == 0 {
		return misuse(
			robocache.Where{"dataset": p.Sources[0].URI},
			"the dataset has no episodes",
			"Record some first: robocache.Writer continues the dataset with its features.",
		)
	}
	if len(p.Episodes) == 0 {
		return misuse(nil, "no episode is left", "choose fewer episodes to delete, or more to keep")
	}
	seen := map[string]bool{}
	for _, k := range p.Keys {
		if seen[k.Key] {
			return misuse(
				robocache.Where{"stream": k.Key},
				"two features of the result have one name",
				"rename or remove one",
			)
		}
		seen[k.Key] = true
	}
	return nil
}

// misuse returns an error of class ErrMisuse for the operation "edit".
func misuse(where robocache.Where, msg, hint string) error {
	return robocache.Misuse("edit", where, "%s", msg).WithHint("%s", hint)
}
