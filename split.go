package robocache

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// SplitAll selects all episodes where the default is a split.
const SplitAll = "all"

// SplitEpisodes returns the positions of the episodes of a split in ascending order. It omits
// positions beyond the dataset, which doctor reports.
func (i *Info) SplitEpisodes(name string) ([]int, error) {
	text, ok := i.Splits[name]
	if !ok {
		hint := "it has no splits"
		if names := i.SplitNames(); len(names) > 0 {
			hint = "it has " + strings.Join(names, ", ")
		}
		return nil, Misuse("split", Where{"dataset": i.URI}, "the dataset has no split %q", name).
			WithHint("%s", hint)
	}
	var ranges [][2]int
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		a, b, ok := strings.Cut(part, ":")
		from, err1 := strconv.Atoi(a)
		to, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || from < 0 || to < from {
			return nil, Malformed("split", Where{"dataset": i.URI}, "the split %s", name).
				Expected("ranges of episodes such as 0:40,45:50", strconv.Quote(text))
		}
		ranges = append(ranges, [2]int{from, to})
	}
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	var out []int
	next := 0 // ranges may overlap
	for _, r := range ranges {
		for next = max(next, r[0]); next < min(r[1], i.Episodes); next++ {
			out = append(out, next)
		}
	}
	return out, nil
}

// SplitNames returns the names of the splits in the order of their first episodes.
func (i *Info) SplitNames() []string {
	first := map[string]int{}
	var names []string
	for n := range i.Splits {
		first[n] = i.Episodes
		if e, err := i.SplitEpisodes(n); err == nil && len(e) > 0 {
			first[n] = e[0]
		}
		names = append(names, n)
	}
	sort.Slice(names, func(a, b int) bool {
		return first[names[a]] < first[names[b]] ||
			first[names[a]] == first[names[b]] && names[a] < names[b]
	})
	return names
}

// SplitCounts returns the number of episodes of each split. It omits splits that are malformed.
func (i *Info) SplitCounts() map[string]int {
	out := map[string]int{}
	for n := range i.Splits {
		if e, err := i.SplitEpisodes(n); err == nil {
			out[n] = len(e)
		}
	}
	return out
}

// SplitsOf returns the splits of a dataset that is made of some episodes, in this order. nil is all.
// Each split is one range of positions in that dataset. lost are the splits whose episodes are not
// one range there. A split without an episode there is omitted.
func (i *Info) SplitsOf(episodes []int) (ranges map[string]string, lost []string) {
	ranges = map[string]string{}
	for _, name := range i.SplitNames() {
		all, err := i.SplitEpisodes(name)
		positions := all
		if episodes != nil {
			positions = nil
		}
		for k, e := range episodes {
			if _, ok := slices.BinarySearch(all, e); ok {
				positions = append(positions, k)
			}
		}
		switch text := Spans(positions); {
		case err != nil || strings.Contains(text, ","):
			lost = append(lost, name)
		case text != "":
			ranges[name] = text
		}
	}
	return ranges, lost
}

// SplitsDropped returns the finding of a writer that keeps no splits, if there is a split of some
// episodes. A split of all episodes or of none does not count.
func (i *Info) SplitsDropped(episodes []int) []Finding {
	n := len(episodes)
	if episodes == nil {
		n = i.Episodes
	}
	ranges, gone := i.SplitsOf(episodes)
	for name, text := range ranges {
		if text != fmt.Sprintf("0:%d", n) {
			gone = append(gone, name)
		}
	}
	return LostSplits(gone, "the result has no place for them")
}

// LostSplits returns the finding that splits are not kept, and why. It returns none if names is
// empty.
func LostSplits(names []string, why string) []Finding {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []Finding{
		{
			Severity: SeverityWarning,
			Code:     "splits-dropped",
			Message: "not kept: the splits " + strings.Join(names, ", ") + " (" + why +
				"). Training on the result uses their episodes together",
			Count: int64(len(names)),
			Hint:  "Convert each split alone: " + Option("split", names[0]),
		},
	}
}

// TrainSplit returns the split that training reads by default: train, or training. name is empty if
// there is none, if it holds all episodes, or if a split is opened already.
func (i *Info) TrainSplit() (name string, episodes []int) {
	if i.Split != "" {
		return "", nil
	}
	for _, name := range []string{"train", "training"} {
		if _, ok := i.Splits[name]; ok {
			if e, err := i.SplitEpisodes(name); err == nil && len(e) > 0 && len(e) < i.Episodes {
				return name, e
			}
		}
	}
	return "", nil
}

// part is a dataset of some episodes of another one, the whole. Episode.Index, and the numbers in
// findings and errors, are those of the whole.
type part struct {
	Dataset
	info     Info
	episodes []int // positions in the whole
	isPrefix bool  // they are the first episodes of the whole: rows need no translation
	offered  Capabilities
}

// openSplit returns the episodes of a split as a dataset that owns ds.
func openSplit(ds Dataset, name string) (Dataset, error) {
	whole := ds.Info()
	episodes, err := whole.SplitEpisodes(name)
	if err != nil {
		return nil, err
	}
	return partOf(ds, name, episodes)
}

// openEpisodes returns the episodes with some indices as a dataset that owns ds. Its split has the
// name of their ranges.
func openEpisodes(ds Dataset, indices []int) (Dataset, error) {
	positions, err := ds.Info().EpisodePositions(indices)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(positions); i++ {
		if positions[i] <= positions[i-1] {
			return nil, Misuse(
				"open",
				Where{"dataset": ds.Info().URI, "episode": indices[i]},
				"episodes",
			).
				Expected("indices in the order of the dataset, each once", fmt.Sprint(indices))
		}
	}
	return partOf(ds, Spans(positions), positions)
}

// partOf returns the episodes at some ascending positions as a dataset that owns ds. name becomes
// its split.
func partOf(ds Dataset, name string, episodes []int) (Dataset, error) {
	whole := ds.Info()
	p := &part{Dataset: ds, info: *whole, episodes: episodes, isPrefix: true}
	positions, indices := make(map[int]int, len(episodes)), make([]int64, len(episodes))
	p.info.Split, p.info.Splits = name, map[string]string{}
	p.info.Episodes, p.info.Frames = len(episodes), 0
	for i, e := range episodes {
		positions[e], indices[i] = i, whole.EpisodeIndex(e)
		p.isPrefix = p.isPrefix && i == e
		p.info.Frames += int64(ds.Len(e))
	}
	p.info.NumberEpisodes(indices)
	for other := range whole.Splits {
		all, err := whole.SplitEpisodes(other)
		if err != nil {
			continue
		}
		var kept []int
		for _, e := range all {
			if i, ok := positions[e]; ok {
				kept = append(kept, i)
			}
		}
		if len(kept) > 0 || other == name {
			p.info.Splits[other] = Spans(kept)
		}
	}
	p.setCapabilities()
	return p, nil
}

// Arrange returns the episodes at some positions of ds, in this order, as a dataset that owns ds.
// indices are their episode indices in the result. The result has no splits, and no findings about
// episodes that cannot be read.
func Arrange(ds Dataset, positions []int, indices []int64) Dataset {
	p := &part{Dataset: ds, info: *ds.Info(), episodes: positions, isPrefix: true}
	p.info.Split, p.info.Splits = "", nil
	p.info.Episodes, p.info.Frames = len(positions), 0
	for i, e := range positions {
		p.isPrefix = p.isPrefix && i == e
		p.info.Frames += int64(ds.Len(e))
	}
	p.info.NumberEpisodes(indices)
	p.info.Findings = slices.DeleteFunc(slices.Clone(p.info.Findings), func(f Finding) bool {
		return f.Lost
	})
	p.setCapabilities()
	return p
}

// setCapabilities sets the capabilities: those of the whole, with positions of the part. A
// recording may hold episodes of the whole that are not in the part, so the part names none.
func (p *part) setCapabilities() {
	p.offered = *p.Dataset.Capabilities()
	c := &p.offered
	c.Origin, c.Recording = p.Origin, nil
	if c.GatherRagged != nil {
		c.GatherRagged = p.GatherRagged
	}
	if c.LeaseFrames != nil {
		c.LeaseFrames = p.LeaseFrames
	}
	if c.Valid != nil {
		c.Valid = p.Valid
	}
	if c.TimesBy != nil {
		c.TimesBy = p.TimesBy
	}
	if c.Rows != nil {
		c.Rows = p.Rows
	}
	if c.VideoStart != nil {
		c.VideoStart = p.VideoStart
	}
	if c.Lacks != nil {
		c.Lacks = p.Lacks
	}
	if c.Diagnose != nil {
		c.Diagnose = p.Diagnose
	}
}

// Capabilities returns those of the whole, with positions of the part.
func (p *part) Capabilities() *Capabilities { return &p.offered }

// VideoStart returns the time in ns at which an episode begins in its video file.
func (p *part) VideoStart(
	ctx context.Context, episode int, key string,
) (ns int64, ok bool, err error) {
	if episode, err = p.wholePosition(episode); err != nil {
		return 0, false, err
	}
	return p.Dataset.Capabilities().VideoStart(ctx, episode, key)
}

// Spans returns ascending positions as ranges: "0:3,5:6" for 0, 1, 2 and 5.
func Spans(positions []int) string {
	var parts []string
	for at := 0; at < len(positions); {
		end := at + 1
		for end < len(positions) && positions[end] == positions[end-1]+1 {
			end++
		}
		parts = append(parts, fmt.Sprintf("%d:%d", positions[at], positions[end-1]+1))
		at = end
	}
	return strings.Join(parts, ",")
}

// Lacks reports whether an episode of the part lacks a stream.
func (p *part) Lacks(episode int, key string) bool {
	e, err := p.wholePosition(episode)
	return err == nil && Lacks(p.Dataset, e, key)
}

// Info returns the description of the part.
func (p *part) Info() *Info { return &p.info }

// Unwrap returns the whole.
func (p *part) Unwrap() Dataset { return p.Dataset }

// wholePosition returns the position in the whole of an episode of the part.
func (p *part) wholePosition(episode int) (int, error) {
	if episode < 0 || episode >= len(p.episodes) {
		return 0, NotFound(
			"split",
			Where{"dataset": p.info.URI, "position": episode},
			"the split %s has no episode at this position",
			p.info.Split,
		).
			Expected("0 to "+strconv.Itoa(len(p.episodes)-1), "")
	}
	return p.episodes[episode], nil
}

// Len returns the number of rows of an episode, 0 for a position beyond the part.
func (p *part) Len(episode int) int {
	if episode < 0 || episode >= len(p.episodes) {
		return 0
	}
	return p.Dataset.Len(p.episodes[episode])
}

// Episode returns the metadata of an episode, with its position in the part.
func (p *part) Episode(ctx context.Context, episode int) (Episode, error) {
	e, err := p.wholePosition(episode)
	if err != nil {
		return Episode{}, err
	}
	ep, err := p.Dataset.Episode(ctx, e)
	ep.Position, ep.Index = episode, p.info.EpisodeIndex(episode)
	return ep, err
}

// Origin returns the recording that became an episode.
func (p *part) Origin(ctx context.Context, episode int) (*Origin, error) {
	e, err := p.wholePosition(episode)
	if err != nil {
		return nil, err
	}
	return OriginOf(ctx, p.Dataset, e)
}

// Times returns the timestamps of a stream of an episode.
func (p *part) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	e, err := p.wholePosition(episode)
	if err != nil {
		return nil, err
	}
	return p.Dataset.Times(ctx, e, key)
}

// wholeRows returns rows of the part as rows of the whole.
func (p *part) wholeRows(rows []Row) ([]Row, error) {
	out := rows
	if !p.isPrefix {
		out = make([]Row, len(rows))
	}
	for i, r := range rows {
		e, err := p.wholePosition(r.Episode)
		if err != nil {
			return nil, err
		}
		if !p.isPrefix {
			out[i] = Row{e, r.Index}
		}
	}
	return out, nil
}

// Gather copies rows of a numeric stream into dst.
func (p *part) Gather(ctx context.Context, key string, rows []Row, dst []byte) error {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return err
	}
	return p.Dataset.Gather(ctx, key, rows, dst)
}

// Text returns rows of a text stream.
func (p *part) Text(ctx context.Context, key string, rows []Row) ([]string, error) {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return nil, err
	}
	return p.Dataset.Text(ctx, key, rows)
}

// Frames locates the images of rows.
func (p *part) Frames(ctx context.Context, key string, rows []Row, out []FrameRef) error {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return err
	}
	return p.Dataset.Frames(ctx, key, rows, out)
}

// LeaseFrames returns images in memory that the whole leases until the returned function is called.
func (p *part) LeaseFrames(
	ctx context.Context,
	key string,
	rows []Row,
	out []FrameRef,
) (func(), error) {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return nil, err
	}
	return LeaseFrames(ctx, p.Dataset, key, rows, out)
}

// GatherRagged returns rows of a ragged stream.
func (p *part) GatherRagged(ctx context.Context, key string, rows []Row) ([]byte, []int, error) {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return nil, nil, err
	}
	return GatherRagged(ctx, p.Dataset, key, rows)
}

// Valid writes for each row 1 if it holds a value, else 0.
func (p *part) Valid(ctx context.Context, key string, rows []Row, valid []uint8) error {
	rows, err := p.wholeRows(rows)
	if err != nil {
		return err
	}
	return Valid(ctx, p.Dataset, key, rows, valid)
}

// TimesBy returns the timestamps of a stream by one of its clocks.
func (p *part) TimesBy(ctx context.Context, episode int, key, clock string) ([]int64, error) {
	e, err := p.wholePosition(episode)
	if err != nil {
		return nil, err
	}
	return p.Dataset.Capabilities().TimesBy(ctx, e, key, clock)
}

// Rows returns the number of rows of a stream with a separate clock.
func (p *part) Rows(ctx context.Context, episode int, key string) (int, error) {
	e, err := p.wholePosition(episode)
	if err != nil {
		return 0, err
	}
	f := p.info.Feature(key)
	if f == nil {
		return p.Dataset.Len(e), nil
	}
	return RowsIn(ctx, p.Dataset, e, f)
}

// Diagnose runs the checks of the format on episodes of the part.
func (p *part) Diagnose(ctx context.Context, opt DiagnoseOptions) ([]Finding, error) {
	diagnose := p.Dataset.Capabilities().Diagnose
	if opt.Episodes == nil {
		opt.Episodes = p.episodes
		return diagnose(ctx, opt)
	}
	episodes := make([]int, len(opt.Episodes))
	for i, e := range opt.Episodes {
		var err error
		if episodes[i], err = p.wholePosition(e); err != nil {
			return nil, err
		}
	}
	opt.Episodes = episodes
	return diagnose(ctx, opt)
}
