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

func parseBound(text string) (*trimBound, error) {
	if text == "" {
		return nil, nil
	}
	b := &trimBound{fromEnd: strings.HasPrefix(text, "-")}
	number, rows := strings.CutSuffix(strings.TrimPrefix(text, "-"), "r")
	var err error
	if b.inRows = rows; rows {
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

// rowAt returns the row of the bound among n rows. It calls timestamps and step (the duration of a
// row) only if the bound is in seconds.
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
		if f := view.info.Feature(key); f == nil || f.Kind != robocache.KindNumeric || f.Ragged() ||
			f.Clock != "" {
			return misuse(
				robocache.Where{"stream": key},
				"trim: no column of numbers to rest",
				robocache.Nearest(key, view.info.Keys()),
			)
		}
	}
	choice := v.Choice
	cut := map[int][][]int{}
	if choice.Flags, choice.Label = "", ""; v.Flags != "" {
		flags, err := e.flagsWithLabel(ctx, v.Flags, v.Label, view)
		if err != nil {
			return err
		}
		for _, f := range flags {
			if len(f.rows) != 2 {
				where := robocache.Where{
					"file":    v.Flags,
					"episode": view.info.EpisodeIndex(f.position),
				}
				return misuse(where, "trim: the flag is of a whole episode, not of rows",
					"Delete the episode, choose other flags with "+robocache.Option("label")+
						", or name episodes with "+robocache.Option("episodes"))
			}
			cut[f.position] = append(cut[f.position], f.rows)
		}
	}
	gone := map[int]bool{}
	moved := 0
	choose, err := e.chooseEpisodes(ctx, &choice)
	if err != nil {
		return err
	}
	for _, i := range choose {
		p := &e.plan.Episodes[i]
		n := p.To - p.From
		a, b := 0, n
		times := func() ([]int64, error) { return view.Times(ctx, i, "") }
		if from != nil && n > 0 {
			if a, err = from.rowAt(n, times, e.rowDuration); err != nil {
				return err
			}
		}
		if to != nil && n > 0 {
			if b, err = to.rowAt(n, times, e.rowDuration); err != nil {
				return err
			}
		}
		for _, rows := range cut[i] {
			x, y := rows[0]-p.From, rows[1]-p.From
			switch {
			case x <= a:
				a = max(a, y)
			case y >= b:
				b = min(b, x)
			default:
				return misuse(
					robocache.Where{"file": v.Flags, "episode": view.info.EpisodeIndex(i)},
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
		if len(v.Idle) > 0 && a < b {
			if a, b, err = e.trimIdle(ctx, view, i, v.Idle, a, b); err != nil {
				return err
			}
		}
		if a < b && e.plan.Cut == CutSnap && (a > 0 || b < n) {
			x, y, err := e.snapToCopyable(ctx, view, i, a, b)
			if err != nil {
				return err
			}
			if x != a || y != b {
				moved++
			}
			a, b = x, y
		}
		if a >= b {
			if !v.SkipShort {
				return misuse(
					robocache.Where{"episode": view.info.EpisodeIndex(i)},
					fmt.Sprintf("trim: none of the %d rows is left", n),
					robocache.Option("skip_short", true)+" deletes such episodes",
				)
			}
			gone[i] = true
			continue
		}
		p.From, p.To = p.From+a, p.From+b
	}
	if moved > 0 {
		e.plan.Notes = append(
			e.plan.Notes,
			fmt.Sprintf("%d cuts moved to where video can be copied", moved),
		)
	}
	if len(gone) > 0 {
		e.plan.Notes = append(
			e.plan.Notes,
			fmt.Sprintf("%d episodes without remaining rows are deleted", len(gone)),
		)
		var kept []int
		for i := range e.plan.Episodes {
			if !gone[i] {
				kept = append(kept, i)
			}
		}
		e.keepPositions(kept)
	}
	return nil
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

// trimIdle returns the range from the last row before the first movement to the row at which all
// streams are at rest again.
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
		values, width := robocache.Float64s(nil, f.DType, raw), f.Elements()
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

// snapToCopyable moves a cut to the nearest rows between which all cameras can be copied without
// encoding.
func (e *editor) snapToCopyable(
	ctx context.Context,
	v *planDataset,
	episode, from, to int,
) (int, int, error) {
	lib, n := v.Video(), v.Len(episode)
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
	fits := func(a, b int) bool {
		return a < b &&
			!slices.ContainsFunc(cameras, func(refs []robocache.FrameRef) bool {
				return !canCopyRows(ctx, lib, refs, a, b, e.plan.FPS)
			})
	}
	// Try the start first; for each start, try the requested end, then ends around it.
	for d := range n {
		for _, a := range []int{from - d, from + d} {
			if a < 0 || a >= to || d == 0 && a != from {
				continue
			}
			for back := 0; back <= min(maxHidden, n); back++ {
				for _, b := range []int{to + back, to - back} {
					if b <= n && fits(a, b) {
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

// canCopyRows reports whether the frames of rows [a, b) can be copied without other frames.
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
