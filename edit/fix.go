package edit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/mapping"
)

// Fixed reports which findings of a dataset an edit removes.
type Fixed struct {
	// Fixable are findings that rewriting the dataset removes: order, totals, indices, statistics,
	// drift, features without data.
	Fixable []robocache.Finding `json:"fixable"`
	// Beyond are findings that no edit can repair: lost frames, NaN, missing files.
	Beyond []robocache.Finding `json:"beyond"`
	Stayed []robocache.Finding `json:"stayed"` // findings in the result
	// Dropped are the indices of the episodes that are left out because of Beyond.
	Dropped []int   `json:"dropped"`
	Report  *Report `json:"edit,omitempty"`  // nil if nothing is wrong
	Error   string  `json:"error,omitempty"` // why no edit could be planned

	// Info describes the result, or the dataset if no result was written.
	Info robocache.Info `json:"-"`
}

// unfixableCodes are the codes of findings that no edit removes.
var unfixableCodes = map[string]bool{
	"missing-file":           true,
	"unreadable-file":        true,
	"missing-column":         true,
	"frame-count":            true,
	"boundary-jump":          true,
	"fps-lies":               true,
	"undecodable":            true,
	"unreadable-image":       true,
	"orphan-rows":            true,
	"task-index":             true,
	"not-finite":             true,
	"non-finite-values":      true,
	"timestamp-not-finite":   true,
	"no-episodes":            true,
	"missing-image":          true,
	"rows-missing":           true,
	"stored-value":           true,
	"codec-unsupported":      true,
	"image-size":             true,
	"unreadable-rows":        true,
	"not-examined":           true,
	"episodes-without-split": true, // the right split is unknown
	robocache.LackingStream:  true,
}

// isUnfixable reports whether the finding remains after the dataset is rewritten. Findings in the
// tables of tasks and statistics never remain, because these tables are always rewritten.
func isUnfixable(f *robocache.Finding) bool {
	name := fmt.Sprint(f.Where["file"])
	for _, rewritten := range []string{"meta/tasks", "meta/stats", "meta/episodes_stats"} {
		if strings.HasPrefix(name, rewritten) {
			return false
		}
	}
	return unfixableCodes[f.Code]
}

// Fix rewrites a dataset without the findings that an edit can remove, or only plans this if the
// request is a dry run. diagnosis holds the options with which the source and the result are
// diagnosed. If dropBad is set, Fix also deletes episodes with findings that an edit cannot remove.
func Fix(
	ctx context.Context, req *Request, diagnosis robocache.DiagnoseOptions, dropBad bool,
) (_ *Fixed, err error) {
	defer crash.Recover("doctor", &err)
	// Without Repair, Open rejects a dataset whose tables contradict each other.
	withRepair := *req
	withRepair.Open.Repair = true
	req = &withRepair
	out := &Fixed{
		Fixable: []robocache.Finding{},
		Beyond:  []robocache.Finding{},
		Stayed:  []robocache.Finding{},
		Dropped: []int{},
	}
	if len(req.Sources) != 1 {
		return nil, misuse(nil, "one dataset is fixed at a time", "")
	}
	if err := out.examineSource(ctx, req, diagnosis, dropBad); err != nil {
		return nil, err
	}
	if len(out.Fixable)+len(out.Dropped) == 0 {
		return out, nil
	}
	report, err := Run(ctx, out.repairRequest(req))
	// A dry run reports in its result why the edit is not possible.
	isResult := req.DryRun && !robocache.IsFatal(err)
	if err != nil && isResult {
		out.Error = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	out.Report = report
	if req.DryRun {
		return out, nil
	}
	if err := out.examineResult(ctx, diagnosis); err != nil {
		return nil, err
	}
	return out, nil
}

// examineSource sets the findings of the source and the episodes to drop.
func (out *Fixed) examineSource(
	ctx context.Context,
	req *Request,
	diagnosis robocache.DiagnoseOptions,
	dropBad bool,
) error {
	ds, err := mapping.Open(ctx, req.Sources[0], req.Open)
	if err != nil {
		return err
	}
	out.Info = *ds.Info()
	findings, err := diagnose.Run(ctx, ds, diagnosis)
	if err != nil {
		return err
	}
	for _, f := range findings {
		switch {
		// Other infos are ignored, but training needs statistics.
		case f.Severity == robocache.SeverityInfo && f.Code != "no-stats":
		case isUnfixable(&f):
			out.Beyond = append(out.Beyond, f)
		default:
			out.Fixable = append(out.Fixable, f)
		}
	}
	if dropBad {
		out.Dropped = badEpisodes(ctx, ds, out.Beyond)
	}
	return ds.Close()
}

// repairRequest returns the request that rewrites the source without the dropped episodes.
func (out *Fixed) repairRequest(req *Request) *Request {
	r := *req
	r.Verbs = []Verb{{Verb: "recompute-stats"}}
	if len(out.Dropped) > 0 {
		var list []string
		for _, e := range out.Dropped {
			list = append(list, fmt.Sprint(e))
		}
		r.Verbs = append(
			r.Verbs,
			Verb{Verb: "delete", Choice: Choice{Episodes: strings.Join(list, ",")}},
		)
	}
	return &r
}

// examineResult sets the findings that remain in the written dataset.
func (out *Fixed) examineResult(ctx context.Context, diagnosis robocache.DiagnoseOptions) error {
	result, err := robocache.Open(
		ctx,
		out.Report.DST,
		robocache.OpenOptions{Format: out.Report.Format},
	)
	if err != nil {
		return err
	}
	defer result.Close()
	out.Info = *result.Info()
	remaining, err := diagnose.Run(ctx, result, diagnosis)
	if err != nil {
		return err
	}
	for _, f := range remaining {
		if f.Severity != robocache.SeverityInfo {
			out.Stayed = append(out.Stayed, f)
		}
	}
	return nil
}

// badEpisodes returns the indices of the episodes that the findings name. If a finding reports NaN
// or infinite values, the episodes with such values are included.
func badEpisodes(ctx context.Context, ds robocache.Dataset, found []robocache.Finding) (out []int) {
	add := func(e int) {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	for _, f := range found {
		if f.Code == "not-finite" || f.Code == "non-finite-values" {
			for e := range ds.Info().Episodes {
				if !isFinite(ctx, ds, e) {
					add(e)
				}
			}
		} else if position, _ := ds.Info().PositionIn(f.Where); position >= 0 {
			add(position)
		}
	}
	// A finding may count several episodes of a file and name only the first, so read all episodes.
	isDamaged := slices.ContainsFunc(found, func(f robocache.Finding) bool {
		return f.Severity == robocache.SeverityError
	})
	for e := range ds.Info().Episodes {
		if isDamaged && !slices.Contains(out, e) && !isReadable(ctx, ds, e) {
			add(e)
		}
	}
	slices.Sort(out)
	return ds.Info().EpisodeIndices(out)
}

// isReadable reports whether the rows of an episode and the locations of its frames can be read. It
// does not decode frames.
func isReadable(ctx context.Context, ds robocache.Dataset, e int) bool {
	isBad := func(err error) bool { return err != nil && robocache.Bad(err) }
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if robocache.Lacks(ds, e, f.Key) {
			continue
		}
		n, err := robocache.RowsIn(ctx, ds, e, f)
		if isBad(err) {
			return false
		}
		if err != nil || n == 0 {
			continue
		}
		rows := robocache.RowsOf(e, 0, n)
		switch {
		case f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage:
			err = ds.Frames(ctx, f.Key, rows, make([]robocache.FrameRef, n))
		case f.Kind == robocache.KindNumeric && !f.Ragged():
			err = ds.Gather(ctx, f.Key, rows, make([]byte, n*f.RowBytes()))
		}
		if isBad(err) {
			return false
		}
	}
	return true
}

// isFinite reports whether all floats of an episode are finite. Values that cannot be read are
// ignored here: another finding reports them.
func isFinite(ctx context.Context, ds robocache.Dataset, e int) bool {
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if f.Kind != robocache.KindNumeric || f.Ragged() || !f.DType.Float() {
			continue
		}
		n, err := robocache.RowsIn(ctx, ds, e, f)
		if err != nil {
			continue
		}
		raw := make([]byte, n*f.RowBytes())
		if ds.Gather(ctx, f.Key, robocache.RowsOf(e, 0, n), raw) != nil {
			continue
		}
		for _, v := range robocache.Float64s(nil, f.DType, raw) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return false
			}
		}
	}
	return true
}
