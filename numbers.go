package robocache

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// An episode has an index, the number that users see and pass, and a position, the slot by which
// the methods of Dataset find it: 0 to Info.Episodes-1. The methods of this file are the only place
// where one becomes the other.

// numbering holds the indices of a dataset whose episodes are not numbered 0, 1, 2 and on.
type numbering struct {
	indices   []int64 // by position
	positions []int32 // by ascending index
}

// NumberEpisodes sets the index of the episode at each position. A reader calls it while it opens a
// dataset whose format numbers its episodes. Without it, an episode's index is its position.
func (i *Info) NumberEpisodes(indices []int64) {
	i.numbers = nil
	isPosition := func(position int) bool { return indices[position] == int64(position) }
	for position := range indices {
		if isPosition(position) {
			continue
		}
		n := &numbering{indices: indices, positions: make([]int32, len(indices))}
		for k := range n.positions {
			n.positions[k] = int32(k)
		}
		slices.SortStableFunc(
			n.positions,
			func(a, b int32) int { return cmp.Compare(indices[a], indices[b]) },
		)
		i.numbers = n
		return
	}
}

// NumberedEpisodes returns the index of the episode at each position, or nil if every index is the
// position. The caller must not change it.
func (i *Info) NumberedEpisodes() []int64 {
	if i.numbers == nil {
		return nil
	}
	return i.numbers.indices
}

// EpisodeIndex returns the index of the episode at a position.
func (i *Info) EpisodeIndex(position int) int64 {
	if i.numbers == nil || position < 0 || position >= len(i.numbers.indices) {
		return int64(position)
	}
	return i.numbers.indices[position]
}

// EpisodeIndices returns the indices of the episodes at some positions. It returns nil for nil,
// which means all.
func (i *Info) EpisodeIndices(positions []int) []int {
	if positions == nil {
		return nil
	}
	indices := make([]int, len(positions))
	for k, position := range positions {
		indices[k] = int(i.EpisodeIndex(position))
	}
	return indices
}

// EpisodePosition returns the position of the episode with an index. It fails with ErrMisuse if
// there is none, or more than one.
func (i *Info) EpisodePosition(index int64) (int, error) {
	switch from, to := i.ranksOf(index, index); to - from {
	case 1:
		return i.positionAt(from), nil
	case 0:
		return 0, i.noEpisode(index)
	default:
		return 0, Misuse(
			"episodes",
			Where{"dataset": i.URI, "episode": index},
			"%d episodes have this index",
			to-from,
		).
			WithHint("Renumber them: %s does.", Command("convert"))
	}
}

// EpisodePositions returns the positions of the episodes with some indices, in their order. It
// returns nil for nil, which means all.
func (i *Info) EpisodePositions(indices []int) (positions []int, err error) {
	if indices == nil {
		return nil, nil
	}
	positions = make([]int, len(indices))
	for k, index := range indices {
		if positions[k], err = i.EpisodePosition(int64(index)); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// PositionIn returns the position of the episode that the place of a finding or an error names by
// its index. named reports whether the place names one. The position is -1 if the dataset has no
// such episode.
func (i *Info) PositionIn(where Where) (position int, named bool) {
	var index int64
	switch v := where["episode"].(type) {
	case int:
		index = int64(v)
	case int64:
		index = v
	default:
		return -1, v != nil
	}
	if from, to := i.ranksOf(index, index); from < to {
		return i.positionAt(from), true
	}
	return -1, true
}

// ParseEpisodes reads indices such as 0,3,5-9 and returns the positions of these episodes in the
// order in which they are named. It returns nil for an empty text, which means all. A range names
// the episodes that exist between its ends.
func (i *Info) ParseEpisodes(text string) (positions []int, err error) {
	if text == "" {
		return nil, nil
	}
	ranges, err := parseRanges(text)
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		from, to := i.ranksOf(r.first, r.last)
		_, behind := i.ranksOf(r.last, r.last)
		endsAfterLast := behind == i.Episodes && (from == to || i.indexAt(to-1) != r.last)
		if endsAfterLast { // a range that ends after the highest index is taken for a mistake
			return nil, i.noEpisode(r.last)
		}
		if from == to {
			return nil, i.noEpisode(r.first)
		}
		for k := from; k < to; k++ {
			position, err := i.EpisodePosition(i.indexAt(k))
			if err != nil {
				return nil, err
			}
			positions = append(positions, position)
		}
	}
	return positions, nil
}

// CheckEpisodes refuses a text that is not of the form that ParseEpisodes reads. It is for callers
// that have not opened the dataset yet.
func CheckEpisodes(text string) error {
	if text == "" {
		return nil
	}
	_, err := parseRanges(text)
	return err
}

// indexRange holds the first and the last index of a range.
type indexRange struct{ first, last int64 }

func parseRanges(text string) (ranges []indexRange, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		var r indexRange
		r.first, err = strconv.ParseInt(first, 10, 64)
		r.last = r.first
		if err == nil && isRange {
			r.last, err = strconv.ParseInt(last, 10, 64)
		}
		if err != nil || r.first < 0 || r.last < r.first {
			return nil, Misuse("episodes", nil, "episodes").
				Expected("episode indices such as 0,3,5-9", strconv.Quote(part))
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// EpisodeRanges writes the indices of all episodes, such as 3,7-8,20. Of many ranges it writes the
// first ones.
func (i *Info) EpisodeRanges() string {
	const most = 8
	var parts []string
	for from := 0; from < i.Episodes; {
		if len(parts) == most {
			return strings.Join(parts, ",") + " …"
		}
		to := from + 1
		for to < i.Episodes && i.indexAt(to) <= i.indexAt(to-1)+1 {
			to++
		}
		part := strconv.FormatInt(i.indexAt(from), 10)
		if last := i.indexAt(to - 1); last > i.indexAt(from) {
			part += "-" + strconv.FormatInt(last, 10)
		}
		parts = append(parts, part)
		from = to
	}
	return strings.Join(parts, ",")
}

func (i *Info) noEpisode(index int64) error {
	hint := "The dataset has no episodes."
	if i.Episodes > 0 {
		hint = "The dataset has " + i.EpisodeRanges() + "."
	}
	return Misuse("episodes", Where{"dataset": i.URI, "episode": index}, "no such episode").
		WithHint("%s", hint)
}

// ranksOf returns the ranks, by ascending index, of the episodes whose indices lie between first
// and last: from <= rank < to.
func (i *Info) ranksOf(first, last int64) (from, to int) {
	from = sort.Search(i.Episodes, func(rank int) bool { return i.indexAt(rank) >= first })
	to = sort.Search(i.Episodes, func(rank int) bool { return i.indexAt(rank) > last })
	return from, to
}

// positionAt returns the position of the episode that is rank-th by ascending index.
func (i *Info) positionAt(rank int) int {
	if i.numbers == nil {
		return rank
	}
	return int(i.numbers.positions[rank])
}

// indexAt returns the index of the episode that is rank-th by ascending index.
func (i *Info) indexAt(rank int) int64 { return i.EpisodeIndex(i.positionAt(rank)) }
