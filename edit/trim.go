package edit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/video"
)

// trimBound is the position of a cut: rows or seconds, from the start or before the end.
type trimBound struct {
	rows    int
	seconds float64
	inRows  bool
	fromEnd bool // counted from the end
}

// parseBound parses a bound such as "0.5", "12r" or "-1.0". It returns nil if text is empty.
func parseBound(text string) (*trimBound, error) {
	if text == "" {
		return nil, nil
	}
	b := &trimBound{fromEnd: strings.HasPrefix(text, "-")}
	number, rows := strings.CutSuffix(strings.TrimPrefix(text, "-"), "r")
	var err error
	b.inRows = rows
	if rows {
		b.rows, err = strconv.Atoi(number)
	} else {
		b.seconds, err = strconv.ParseFloat(strings.TrimSuffix(number, "s"), 64)
	}
	if err != nil || b.rows < 0 || b.seconds < 0 || math.IsNaN(b.seconds) || b.seconds > 1e9 {
		return nil, misuse(
			nil,
			"trim: expected seconds such as 0.5, or rows such as 12r, found "+strconv.Quote(text),
			"from the end: -1.0, -12r",
		)
	}
	return b, nil
}

// rowAt returns the row before which the bound cuts an episode of n rows. It calls timestamps and
// step, which returns the duration of a row, only if the bound is in seconds.
func (b *trimBound) rowAt(
	n int,
	timestamps func() ([]int64, error),
	step func(times []int64) int64,
) (int, error) {
	switch {
	case b.inRows && b.fromEnd:
		return max(0, n-b.rows), nil
	case b.inRows:
		return min(n, b.rows), nil
	}
	const slack = 1000 // ns; allows seconds that are no exact multiple of a row's duration
	times, err := timestamps()
	if err != nil {
		return 0, err
	}
	ns := int64(math.Round(b.seconds * 1e9))
	if b.fromEnd {
		ns = times[n-1] - times[0] + step(times) - ns
	}
	k, _ := slices.BinarySearch(times, times[0]+ns-slack)
	return k, nil
}

// trimEpisodes cuts rows off the ends of episodes.
func (e *editor) trimEpisodes(ctx context.Context, v *Verb) error {
	from, err := parseBound(v.From)
	if err != nil {
		return err
	}
	to, err := parseBound(v.To)
	if err != nil {
		return err
	}
	if from == nil && to == nil && len(v.Idle) == 0 && v.Flags == "" {
		return misuse(nil, "trim needs a start or an end", "from, to, idle or flags")
	}
	view, err := e.openPlan(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	for key := range v.Idle {
		if !isNumberColumn(view.info.Feature(key)) {
			return misuse(
				robocache.Where{"stream": key},
				"trim: idle needs a column of numbers",
				robocache.Nearest(key, view.info.Keys()),
			)
		}
	}
	t := trimmer{editor: e, view: view, verb: v, from: from, to: to}
	if t.flagged, err = e.flaggedRows(ctx, v, view); err != nil {
		return err
	}
	// In trim, flags name the rows to cut off, not the episodes to choose.
	choice := v.Choice
	choice.Flags = ""
	choice.Label = ""
	chosen, err := e.chooseEpisodes(ctx, &choice)
	if err != nil {
		return err
	}
	emptied := map[int]bool{} // positions of episodes without remaining rows
	for _, i := range chosen {
		planned := &e.plan.Episodes[i]
		start, end, err := t.keptRows(ctx, i)
		if err != nil {
			return err
		}
		if start < end {
			planned.To = planned.From + end
			planned.From += start
			continue
		}
		if !v.SkipShort {
			return misuse(
				robocache.Where{"episode": view.info.EpisodeIndex(i)},
				fmt.Sprintf("trim: none of the %d rows is left", planned.To-planned.From),
				robocache.Option("skip_short", true)+" deletes such episodes",
			)
		}
		emptied[i] = true
	}
	if t.movedCuts > 0 {
		e.plan.Notes = append(
			e.plan.Notes,
			fmt.Sprintf("%d cuts moved to where video can be copied", t.movedCuts),
		)
	}
	e.deleteEmptied(emptied)
	return nil
}

// isNumberColumn reports whether f is a column with the same count of numbers in each row.
func isNumberColumn(f *robocache.Feature) bool {
	return f != nil && f.Kind == robocache.KindNumeric && !f.Ragged() && f.Clock == ""
}

// flaggedRows returns the flagged rows of each episode as ranges [from, to) of the source episode.
// The keys are positions in the plan. It returns an error if a flag marks a whole episode.
func (e *editor) flaggedRows(
	ctx context.Context,
	v *Verb,
	view *planDataset,
) (map[int][][]int, error) {
	if v.Flags == "" {
		return nil, nil
	}
	flags, err := e.flagsWithLabel(ctx, v.Flags, v.Label, view)
	if err != nil {
		return nil, err
	}
	out := map[int][][]int{}
	for _, f := range flags {
		if len(f.rows) != 2 {
			where := robocache.Where{
				"file":    v.Flags,
				"episode": view.info.EpisodeIndex(f.position),
			}
			return nil, misuse(where, "trim: the flag is of a whole episode, not of rows",
				"Delete the episode, choose other flags with "+robocache.Option("label")+
					", or name episodes with "+robocache.Option("episodes"))
		}
		out[f.position] = append(out[f.position], f.rows)
	}
	return out, nil
}

// deleteEmptied deletes the episodes without remaining rows from the plan.
func (e *editor) deleteEmptied(emptied map[int]bool) {
	if len(emptied) == 0 {
		return
	}
	e.plan.Notes = append(
		e.plan.Notes,
		fmt.Sprintf("%d episodes without remaining rows are deleted", len(emptied)),
	)
	var kept []int
	for i := range e.plan.Episodes {
		if !emptied[i] {
			kept = append(kept, i)
		}
	}
	e.keepPositions(kept)
}

// trimmer computes the rows that the verb trim keeps.
type trimmer struct {
	editor   *editor
	view     *planDataset
	verb     *Verb
	from, to *trimBound
	flagged  map[int][][]int // result of flaggedRows

	movedCuts int // number of episodes whose cut CutSnap moved
}

// keptRows returns the rows [start, end) of the episode at position i that are kept. The rows are
// counted from the episode's start in the plan.
func (t *trimmer) keptRows(ctx context.Context, i int) (start, end int, err error) {
	e := t.editor
	planned := e.plan.Episodes[i]
	rowCount := planned.To - planned.From
	end = rowCount
	times := func() ([]int64, error) { return t.view.Times(ctx, i, "") }
	if t.from != nil && rowCount > 0 {
		if start, err = t.from.rowAt(rowCount, times, e.rowDuration); err != nil {
			return 0, 0, err
		}
	}
	if t.to != nil && rowCount > 0 {
		if end, err = t.to.rowAt(rowCount, times, e.rowDuration); err != nil {
			return 0, 0, err
		}
	}
	for _, rows := range t.flagged[i] {
		first, last := rows[0]-planned.From, rows[1]-planned.From
		switch {
		case first <= start:
			start = max(start, last)
		case last >= end:
			end = min(end, first)
		default:
			return 0, 0, misuse(
				robocache.Where{
					"file":    t.verb.Flags,
					"episode": t.view.info.EpisodeIndex(i),
				},
				fmt.Sprintf(
					"trim: rows %d to %d lie in the middle of the episode",
					rows[0],
					rows[1],
				),
				"Rows at its ends can be cut off. Split those in the middle off with "+
					robocache.Command("edit split --flags=FILE")+", or delete the episode.",
			)
		}
	}
	if len(t.verb.Idle) > 0 && start < end {
		start, end, err = e.trimIdle(ctx, t.view, i, t.verb.Idle, start, end)
		if err != nil {
			return 0, 0, err
		}
	}
	isCut := start > 0 || end < rowCount
	if e.plan.Cut != CutSnap || !isCut || start >= end {
		return start, end, nil
	}
	snappedStart, snappedEnd, err := e.snapToCopyable(ctx, t.view, i, start, end)
	if err != nil {
		return 0, 0, err
	}
	if snappedStart != start || snappedEnd != end {
		t.movedCuts++
	}
	return snappedStart, snappedEnd, nil
}

// rowDuration returns the duration of a row in nanoseconds.
func (e *editor) rowDuration(times []int64) int64 {
	if !e.plan.FPS.Zero() {
		return e.plan.FPS.Nanos(1)
	}
	if n := len(times); n > 1 {
		return (times[n-1] - times[0]) / int64(n-1)
	}
	return 0
}

// trimIdle returns the rows [first, end) without the idle rows at both ends of [from, to). The
// first row is the last one before a movement. The row before end is the one at which the last
// movement ends. idle is Verb.Idle. Without a movement, the range is empty.
func (e *editor) trimIdle(
	ctx context.Context,
	v *planDataset,
	episode int,
	idle map[string]float64,
	from, to int,
) (int, int, error) {
	first, last := -1, -1
	for key, eps := range idle {
		f := v.info.Feature(key)
		raw := make([]byte, (to-from)*f.RowBytes())
		if err := v.Gather(ctx, key, robocache.RowsOf(episode, from, to-from), raw); err != nil {
			return 0, 0, err
		}
		values := robocache.Float64s(nil, f.DType, raw)
		width := f.Elements()
		for i := width; i < len(values); i++ {
			if d := math.Abs(values[i] - values[i-width]); !(d <= eps) { // NaN counts as movement
				k := from + i/width
				if first < 0 || k < first {
					first = k
				}
				last = max(last, k)
			}
		}
	}
	if first < 0 {
		return from, from, nil
	}
	return first - 1, last + 1, nil
}

// snapToCopyable returns the rows nearest to [from, to) that can be copied from all cameras without
// encoding.
func (e *editor) snapToCopyable(
	ctx context.Context,
	v *planDataset,
	episode, from, to int,
) (int, int, error) {
	lib := v.Video()
	n := v.Len(episode)
	var cameras [][]robocache.FrameRef
	for _, f := range v.info.Features {
		if f.Kind == robocache.KindVideo {
			refs := make([]robocache.FrameRef, n)
			if err := v.Frames(ctx, f.Key, robocache.RowsOf(episode, 0, n), refs); err != nil {
				return 0, 0, err
			}
			isMissing := func(r robocache.FrameRef) bool { return r.Missing || r.Path == "" }
			if !slices.ContainsFunc(refs, isMissing) {
				cameras = append(cameras, refs)
			}
		}
	}
	canCopyAll := func(a, b int) bool {
		for _, refs := range cameras {
			if !canCopyRows(ctx, lib, refs, a, b, e.plan.FPS) {
				return false
			}
		}
		return true
	}
	// Try starts in the order of their distance from the requested one. For each start, try ends in
	// the order of their distance from the requested end.
	for d := range n {
		for _, a := range []int{from - d, from + d} {
			if a < 0 || a >= to || d == 0 && a != from {
				continue
			}
			for back := 0; back <= min(maxHidden, n); back++ {
				for _, b := range []int{to + back, to - back} {
					if a < b && b <= n && canCopyAll(a, b) {
						return a, b, nil
					}
				}
			}
		}
	}
	return 0, 0, misuse(
		robocache.Where{"episode": v.info.EpisodeIndex(episode)},
		"trim: there is no place where all cameras can be cut without encoding",
		robocache.Option("cut", "hidden")+" or "+robocache.Option("cut", "exact"),
	)
}

// canCopyRows reports whether the frames of rows [a, b) can be copied without encoding and without
// hidden frames.
func canCopyRows(
	ctx context.Context,
	lib *video.Library,
	refs []robocache.FrameRef,
	a, b int,
	rate robocache.Rate,
) bool {
	if refs[a].Path != refs[b-1].Path || refs[b-1].Ordinal-refs[a].Ordinal != b-1-a {
		return false
	}
	return write.CanCopy(ctx, lib, refs[a].Path, refs[a].Ordinal, refs[a].Ordinal+b-a, rate) == nil
}
