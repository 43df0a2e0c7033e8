package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// segment is a range of rows of a source episode. It becomes an episode of the result.
type segment struct{ episode, from, to int }

// segmented is a dataset whose episodes are segments of the episodes of another dataset.
type segmented struct {
	robocache.Dataset
	info         robocache.Info
	capabilities robocache.Capabilities
	segments     []segment
}

// setCapabilities copies the capabilities of the source. Capabilities that address rows are
// replaced: by methods of segmented, or by nil if no writer calls them.
func (d *segmented) setCapabilities() {
	d.capabilities = *d.Dataset.Capabilities()
	c := &d.capabilities
	c.Origin = d.Origin
	c.Recording = nil
	c.LeaseFrames, c.Rows, c.VideoStart, c.Diagnose = nil, nil, nil, nil
	c.Clocks, c.TimesBy = nil, nil
	if c.GatherRagged != nil {
		c.GatherRagged = d.GatherRagged
	}
	if c.Valid != nil {
		c.Valid = d.Valid
	}
	if c.Lacks != nil {
		c.Lacks = d.Lacks
	}
}

// Lacks reports whether the source's episode lacks a stream.
func (d *segmented) Lacks(e int, key string) bool {
	s, err := d.segmentAt(e)
	return err == nil && robocache.Lacks(d.Dataset, s.episode, key)
}

// Capabilities returns the capabilities that hold for the segments.
func (d *segmented) Capabilities() *robocache.Capabilities { return &d.capabilities }

// cutEpisodes returns src without the rows at which some stream has no value. An episode with such
// rows in its middle becomes several episodes, so that no window crosses the gap. With
// opt.KeepGaps, only rows before the first complete row and after the last one are removed.
//
// The result contains only the chosen episodes, so w.Episodes is reset. In a shard, positions are
// those of the whole result: opt.segments holds the number of segments of each source episode, and
// w.Episodes is set to the episodes of the shard.
func cutEpisodes(
	ctx context.Context,
	src robocache.Dataset,
	opt *Options,
	w *robocache.WriteOptions,
) (_ robocache.Dataset, err error) {
	defer crash.Recover("convert", &err)
	chosen := w.Episodes
	if chosen == nil {
		chosen = firstPositions(src.Info().Episodes)
	}
	d := &segmented{Dataset: src, info: *src.Info()}
	d.setCapabilities()
	examined := chosen
	if opt.segments != nil {
		examined = firstPositions(min(len(opt.segments), src.Info().Episodes))
	}
	cuts := cutSummary{episodes: len(chosen), where: robocache.Where{}}
	var shardEpisodes []int // positions of the result that the shard writes
	for _, e := range examined {
		// The episodes of a shard are in ascending order.
		_, isChosen := slices.BinarySearch(chosen, e)
		if opt.segments != nil && !isChosen {
			empty := segment{episode: e}
			d.segments = append(d.segments, slices.Repeat([]segment{empty}, opt.segments[e])...)
			continue
		}
		complete, err := keptRanges(ctx, src, e, opt.KeepGaps, w)
		if err != nil {
			return nil, err
		}
		made := max(1, len(complete))
		if opt.segments != nil && made != opt.segments[e] {
			return nil, robocache.Malformed(
				"convert",
				robocache.Where{"episode": src.Info().EpisodeIndex(e)},
				"the episode has other gaps than when it was planned",
			).Expected(strconv.Itoa(opt.segments[e])+" segments", strconv.Itoa(made)).
				WithHint("Plan again.")
		}
		for i := range made {
			shardEpisodes = append(shardEpisodes, len(d.segments)+i)
		}
		for _, r := range complete {
			d.segments = append(d.segments, segment{e, r.From, r.To})
		}
		if len(complete) == 0 {
			d.segments = append(d.segments, segment{episode: e})
		}
		cuts.countEpisode(src, e, complete)
	}
	d.setInfo(opt)
	if finding, ok := cuts.describeCuts(); ok {
		d.info.Findings = append(slices.Clip(d.info.Findings), finding)
	}
	w.View += fmt.Sprintf(" episodes %v keep_gaps %t", chosen, opt.KeepGaps)
	w.Episodes = nil
	w.Renumber = !opt.KeepGaps
	if opt.segments != nil {
		w.Episodes = shardEpisodes
	}
	return d, nil
}

// firstPositions returns the positions 0 to n-1.
func firstPositions(n int) []int {
	out := make([]int, n)
	for e := range out {
		out[e] = e
	}
	return out
}

// keptRanges returns the ranges of rows of an episode that are kept. If keepGaps is set, these are
// the rows from the first complete one to the last.
func keptRanges(
	ctx context.Context,
	src robocache.Dataset,
	e int,
	keepGaps bool,
	w *robocache.WriteOptions,
) (complete []align.RowRange, err error) {
	if view, ok := src.(*align.Viewed); ok {
		complete = view.Complete(e)
	} else if complete, err = completeRows(ctx, src, e, w); err != nil {
		return nil, err
	}
	if n := len(complete); n > 1 && keepGaps {
		complete = []align.RowRange{{From: complete[0].From, To: complete[n-1].To}}
	}
	return complete, nil
}

// cutSummary counts the rows and episodes that cuts affect.
type cutSummary struct {
	episodes int             // chosen episodes
	split    int             // episodes that are split at gaps
	added    int             // episodes that the splits add
	rows     int             // rows of the chosen episodes
	dropped  int             // rows that are left out
	where    robocache.Where // the first gap at which an episode is split
}

// countEpisode counts an episode of which the complete ranges are kept.
func (c *cutSummary) countEpisode(src robocache.Dataset, e int, complete []align.RowRange) {
	n := src.Len(e)
	c.rows += n
	c.dropped += n
	for _, r := range complete {
		c.dropped -= r.To - r.From
	}
	if len(complete) < 2 {
		return
	}
	if c.split == 0 {
		c.where["episode"] = src.Info().EpisodeIndex(e)
		c.where["row"] = complete[0].To
	}
	c.split++
	c.added += len(complete) - 1
}

// describeCuts returns a finding about the rows that are left out, if there are any.
func (c *cutSummary) describeCuts() (_ robocache.Finding, ok bool) {
	if c.split > 0 {
		return robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "split-at-gaps",
			Where:    c.where,
			Count:    int64(c.split),
			Message: fmt.Sprintf(
				"%d of %d episodes are split at gaps and become %d: %d of %d rows are left out",
				c.split,
				c.episodes,
				c.split+c.added,
				c.dropped,
				c.rows,
			),
		}, true
	}
	return robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "rows-dropped",
		Count:    int64(c.dropped),
		Message: fmt.Sprintf(
			"%d of %d rows, at the ends of episodes, are left out: some stream has no value "+
				"there",
			c.dropped,
			c.rows,
		),
	}, c.dropped > 0
}

// setInfo sets the schema: lengths, splits, and no masks unless gaps are kept.
func (d *segmented) setInfo(opt *Options) {
	whole := d.Dataset.Info()
	d.info.Episodes = len(d.segments)
	d.info.Frames = 0
	indices := make([]int64, len(d.segments))
	for i, s := range d.segments {
		indices[i] = whole.EpisodeIndex(s.episode)
		d.info.Frames += int64(s.to - s.from)
	}
	d.info.NumberEpisodes(indices)
	d.info.Splits = map[string]string{}
	for name := range whole.Splits {
		episodes, err := whole.SplitEpisodes(name)
		if err != nil {
			continue
		}
		var segments []int
		for i, s := range d.segments {
			if _, ok := slices.BinarySearch(episodes, s.episode); ok {
				segments = append(segments, i)
			}
		}
		d.info.Splits[name] = robocache.Spans(segments)
	}
	if opt.KeepGaps {
		return
	}
	d.info.Features = nil
	for _, f := range whole.Features {
		if isMask(whole, &f) {
			continue
		}
		f.Masked = false
		d.info.Features = append(d.info.Features, f)
	}
}

// isMask reports whether a feature is the mask "<key>.valid" of another feature.
func isMask(info *robocache.Info, f *robocache.Feature) bool {
	key, ok := strings.CutSuffix(f.Key, robocache.ValidSuffix)
	isFlag := f.Kind == robocache.KindNumeric && f.DType == robocache.Bool && f.Scalar()
	return ok && isFlag && info.Feature(key) != nil
}

// isWantedMask reports whether a feature is the mask of a feature that w selects.
func isWantedMask(info *robocache.Info, f *robocache.Feature, w *robocache.WriteOptions) bool {
	masked := strings.TrimSuffix(f.Key, robocache.ValidSuffix)
	return isMask(info, f) && w.Wants(info.Feature(masked))
}

// completeRows returns the ranges of rows of an episode at which every chosen stream has a value. A
// time step that is a gap (robocache.LongestStep) ends a range. If the episode cannot be read, it
// is one range: its error is reported when it is written.
func completeRows(
	ctx context.Context,
	src robocache.Dataset,
	e int,
	w *robocache.WriteOptions,
) (out []align.RowRange, err error) {
	n := src.Len(e)
	if n == 0 {
		return nil, nil
	}
	var valid []uint8
	var breaks []bool // whether a gap in time lies before the row
	err = crash.Func("convert", func() (err error) {
		if valid, err = validRows(ctx, src, e, w); err != nil {
			return err
		}
		breaks, err = timeBreaks(ctx, src, e)
		return err
	})()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if errors.Is(err, robocache.ErrInternal) {
		return nil, err
	}
	if err != nil {
		return []align.RowRange{{From: 0, To: n}}, nil
	}
	for i := range valid {
		switch {
		case valid[i] == 0:
		case i > 0 && valid[i-1] != 0 && !breaks[i]:
			out[len(out)-1].To = i + 1
		default:
			out = append(out, align.RowRange{From: i, To: i + 1})
		}
	}
	return out, nil
}

// validRows returns 1 for each row of an episode at which every chosen stream has a value, else 0.
func validRows(
	ctx context.Context,
	src robocache.Dataset,
	e int,
	w *robocache.WriteOptions,
) ([]uint8, error) {
	info := src.Info()
	n := src.Len(e)
	rows := robocache.RowsOf(e, 0, n)
	valid := slices.Repeat([]uint8{1}, n)
	intersect := func(ok []uint8) {
		for i := range ok {
			valid[i] &= min(ok[i], 1)
		}
	}
	for i := range info.Features {
		f := &info.Features[i]
		isChosen := w.Wants(f) || isWantedMask(info, f, w)
		switch {
		case f.Default || !isChosen:
		case isMask(info, f):
			mask := make([]byte, n)
			if err := src.Gather(ctx, f.Key, rows, mask); err != nil {
				return nil, err
			}
			intersect(mask)
		case f.Masked:
			validity, err := robocache.Validity(ctx, src, f, rows)
			if err != nil {
				return nil, err
			}
			intersect(validity)
		}
	}
	return valid, nil
}

// timeBreaks reports for each row of an episode whether a gap in time lies before it.
func timeBreaks(ctx context.Context, src robocache.Dataset, e int) ([]bool, error) {
	times, err := src.Times(ctx, e, "")
	if err != nil {
		return nil, err
	}
	breaks := make([]bool, src.Len(e))
	limit := robocache.LongestStep(times)
	if limit <= 0 {
		return breaks, nil
	}
	for i := 1; i < min(len(breaks), len(times)); i++ {
		breaks[i] = times[i]-times[i-1] > limit
	}
	return breaks, nil
}

func (d *segmented) Info() *robocache.Info     { return &d.info }
func (d *segmented) Unwrap() robocache.Dataset { return d.Dataset }

func (d *segmented) segmentAt(e int) (segment, error) {
	if e < 0 || e >= len(d.segments) {
		return segment{}, robocache.NotFound(
			"convert",
			robocache.Where{"position": e},
			"there is no such episode",
		).Expected("0 to "+strconv.Itoa(len(d.segments)-1), "")
	}
	return d.segments[e], nil
}

func (d *segmented) Len(e int) int {
	s, err := d.segmentAt(e)
	if err != nil {
		return 0
	}
	return s.to - s.from
}

// Episode returns the source episode with the length of the segment. All segments of an episode
// keep its index.
func (d *segmented) Episode(ctx context.Context, e int) (robocache.Episode, error) {
	s, err := d.segmentAt(e)
	if err != nil {
		return robocache.Episode{}, err
	}
	ep, err := d.Dataset.Episode(ctx, s.episode)
	ep.Position = e
	ep.Length = s.to - s.from
	return ep, err
}

// Origin returns the origin of the source episode.
func (d *segmented) Origin(ctx context.Context, e int) (*robocache.Origin, error) {
	s, err := d.segmentAt(e)
	if err != nil {
		return nil, err
	}
	return robocache.OriginOf(ctx, d.Dataset, s.episode)
}

func (d *segmented) Times(ctx context.Context, e int, key string) ([]int64, error) {
	s, err := d.segmentAt(e)
	if err != nil {
		return nil, err
	}
	times, err := d.Dataset.Times(ctx, s.episode, key)
	if err != nil {
		return nil, err
	}
	return times[min(s.from, len(times)):min(s.to, len(times))], nil
}

// sourceRows returns the positions of rows in the source.
func (d *segmented) sourceRows(rows []robocache.Row) ([]robocache.Row, error) {
	out := make([]robocache.Row, len(rows))
	for i, r := range rows {
		s, err := d.segmentAt(r.Episode)
		if err != nil {
			return nil, err
		}
		if r.Index < 0 || r.Index >= s.to-s.from {
			return nil, robocache.Misuse(
				"convert",
				robocache.Where{"episode": d.info.EpisodeIndex(r.Episode), "row": r.Index},
				"",
			).Expected("a row below "+strconv.Itoa(s.to-s.from), strconv.Itoa(r.Index))
		}
		out[i] = robocache.Row{Episode: s.episode, Index: s.from + r.Index}
	}
	return out, nil
}

func (d *segmented) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) error {
	rows, err := d.sourceRows(rows)
	if err != nil {
		return err
	}
	return d.Dataset.Gather(ctx, key, rows, dst)
}

func (d *segmented) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	rows, err := d.sourceRows(rows)
	if err != nil {
		return nil, err
	}
	return d.Dataset.Text(ctx, key, rows)
}

func (d *segmented) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	rows, err := d.sourceRows(rows)
	if err != nil {
		return err
	}
	return d.Dataset.Frames(ctx, key, rows, out)
}

// GatherRagged reads from the source.
func (d *segmented) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) ([]byte, []int, error) {
	rows, err := d.sourceRows(rows)
	if err != nil {
		return nil, nil, err
	}
	return robocache.GatherRagged(ctx, d.Dataset, key, rows)
}

// Valid reads from the source. It is called only with KeepGaps, because otherwise no feature is
// masked.
func (d *segmented) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) error {
	rows, err := d.sourceRows(rows)
	if err != nil {
		return err
	}
	return robocache.Valid(ctx, d.Dataset, key, rows, valid)
}
