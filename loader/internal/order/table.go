package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Table maps sample numbers to rows by prefix sums over the selected episodes. Time and memory are
// O(episodes), regardless of the number of rows.
type Table struct {
	episodes []int32  // positions of the selected episodes, ascending; nil: all
	ends     []int64  // samples up to and including each episode
	runs     []rowRun // samples of segments, in order; nil: one run of rows per episode
	first    int      // row of an episode's first sample, if there are no runs
	IsPadded bool     // samples may be outside their episode
	Start    []int64  // first timestamp of each episode, with a timeline
	Emptied  []int    // episodes without a sample because of the options
	weights  *weights // nil: each sample once
	Print    Fingerprint
}

// Selection is the part of a dataset whose rows are samples.
type Selection struct {
	Positions []int // of episodes, in any order; nil: all
	// Rows between which an episode's samples are: from First to its number of rows - Last - 1.
	// Negative numbers add samples outside the episode.
	First, Last int
	// Segments holds ranges [from, to) of rows by the position of the episode, ascending and
	// disjoint. Only their rows are samples. nil does not restrict the samples.
	Segments map[int][][2]int
}

// rowRun is a run of consecutive rows that are samples.
type rowRun struct {
	end   int64 // samples up to and including the run
	entry int32 // of the table
	first int32 // row of the first sample
}

// addRuns adds the samples in the segments of an entry. rows is the number of rows of its episode,
// and sum the number of samples before it. It returns the number of samples including them.
func (t *Table) addRuns(cfg *Selection, entry, rows int, sum int64) int64 {
	for _, s := range cfg.Segments[t.Episode(entry)] {
		from, to := max(s[0], cfg.First), min(s[1], rows-max(cfg.Last, 0))
		if from >= to {
			continue
		}
		sum += int64(to - from)
		t.runs = append(t.runs, rowRun{end: sum, entry: int32(entry), first: int32(from)})
	}
	return sum
}

// NewTable counts the samples of the selected episodes. count returns the rows of an episode and
// the start of its timeline.
func NewTable(
	total int, cfg Selection, exclude map[int]bool,
	count func(episode int) (n int, start int64, err error), timeline bool,
) (*Table, error) {
	t := &Table{first: cfg.First, IsPadded: cfg.First < 0 || cfg.Last < 0}
	if cfg.Segments != nil {
		t.runs = []rowRun{}
	}
	var err error
	if t.episodes, err = selectEpisodes(total, cfg.Positions, exclude); err != nil {
		return nil, err
	}
	n := total
	if t.episodes != nil {
		n = len(t.episodes)
	}
	t.ends = make([]int64, n)
	if timeline {
		t.Start = make([]int64, n)
	}
	var sum int64
	for i := range n {
		e := t.Episode(i)
		rows, start, err := count(e)
		if err != nil {
			return nil, err // count names the episode
		}
		before := sum
		if t.runs != nil {
			sum = t.addRuns(&cfg, i, rows, sum)
		} else if rows > 0 {
			sum += int64(max(rows-cfg.First-cfg.Last, 0))
		}
		if sum == before && rows > 0 {
			t.Emptied = append(t.Emptied, e)
		}
		t.ends[i] = sum
		if timeline {
			t.Start[i] = start
		}
	}
	t.Print = t.Fingerprint()
	return t, nil
}

// selectEpisodes returns the episodes at positions that are not excluded, ascending and without
// repetitions. nil positions mean all total episodes, and a nil result means the same.
func selectEpisodes(total int, positions []int, exclude map[int]bool) ([]int32, error) {
	if positions == nil && len(exclude) == 0 {
		return nil, nil
	}
	sorted := slices.Clone(positions)
	if positions == nil {
		sorted = make([]int, total)
		for e := range sorted {
			sorted[e] = e
		}
	}
	slices.Sort(sorted)
	selected := []int32{}
	for _, e := range slices.Compact(sorted) {
		if e < 0 || e >= total {
			return nil, robocache.Misuse("loader", robocache.Where{"position": e}, "episodes").
				Expected(fmt.Sprintf("0 to %d", total-1), fmt.Sprint(e))
		}
		if !exclude[e] {
			selected = append(selected, int32(e))
		}
	}
	return selected, nil
}

// Episode returns the position in the dataset of entry i of the table.
func (t *Table) Episode(i int) int {
	if t.episodes == nil {
		return i
	}
	return int(t.episodes[i])
}

// Len returns the number of selected episodes, including those without samples.
func (t *Table) Len() int { return len(t.ends) }

// Samples returns the number of samples.
func (t *Table) Samples() int64 {
	if len(t.ends) == 0 {
		return 0
	}
	return t.ends[len(t.ends)-1]
}

// countGoodSamples returns the number of samples whose episodes are not in bad. It ignores
// BadEpisode.Source.
func (t *Table) countGoodSamples(bad []BadEpisode) (left int64) {
	isBad := make(map[int]bool, len(bad))
	for i := range bad {
		isBad[bad[i].Episode] = true
	}
	before := int64(0)
	for i, end := range t.ends {
		if !isBad[t.Episode(i)] {
			left += end - before
		}
		before = end
	}
	return left
}

// Row returns the row of a sample and the position of its episode in the table. The row may be
// outside its episode if the table is padded.
func (t *Table) Row(sample int64) (r robocache.Row, place int) {
	if t.runs != nil {
		k := sort.Search(len(t.runs), func(k int) bool { return t.runs[k].end > sample })
		run, before := t.runs[k], int64(0)
		if k > 0 {
			before = t.runs[k-1].end
		}
		entry := int(run.entry)
		return robocache.Row{
			Episode: t.Episode(entry),
			Index:   int(sample-before) + int(run.first),
		}, entry
	}
	lo, hi := 0, len(t.ends)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if t.ends[m] <= sample {
			lo = m + 1
		} else {
			hi = m
		}
	}
	before := int64(0)
	if lo > 0 {
		before = t.ends[lo-1]
	}
	return robocache.Row{Episode: t.Episode(lo), Index: int(sample-before) + t.first}, lo
}

// Fingerprint returns a hash of everything that determines the order: the selected episodes and
// their samples.
func (t *Table) Fingerprint() Fingerprint {
	h := sha256.New()
	var b [16]byte
	before := int64(0)
	for i, end := range t.ends {
		binary.LittleEndian.PutUint64(b[:8], uint64(t.Episode(i)))
		binary.LittleEndian.PutUint64(b[8:], uint64(end-before))
		h.Write(b[:])
		before = end
	}
	// Options that were added later are hashed only if they are set. Tables without them keep the
	// hash that older states contain.
	if t.first < 0 {
		binary.LittleEndian.PutUint64(b[:8], uint64(t.first))
		h.Write(b[:8])
	}
	for _, run := range t.runs {
		binary.LittleEndian.PutUint64(b[:8], uint64(run.end))
		binary.LittleEndian.PutUint64(b[8:], uint64(run.first))
		h.Write(b[:])
	}
	return Fingerprint{
		Episodes: len(t.ends),
		Samples:  t.Samples(),
		Lengths:  hex.EncodeToString(h.Sum(nil)[:12]),
	}
}

// differenceFrom describes the difference between two fingerprints. It returns "" if there is none.
func (f Fingerprint) differenceFrom(other Fingerprint) string {
	switch {
	case f.Format != other.Format:
		return fmt.Sprintf("format: the state is of %s, this is %s", f.Format, other.Format)
	case f.Episodes != other.Episodes:
		return fmt.Sprintf("episodes: the state is of %d, here are %d", f.Episodes, other.Episodes)
	case f.Samples != other.Samples:
		return fmt.Sprintf("samples: the state is of %d, here are %d", f.Samples, other.Samples)
	case f.Lengths != other.Lengths:
		return "the episodes' numbers or lengths differ, though there are equally many"
	}
	return ""
}
