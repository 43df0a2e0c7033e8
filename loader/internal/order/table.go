package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Table maps sample numbers to rows: prefix sums over the selected episodes, O(episodes) to make and to hold, whatever
// the number of rows.
type Table struct {
	episodes []int32 // selected positions, ascending; nil = all of them
	ends     []int64 // samples up to and with each
	first    int     // row of an episode's first sample (drop_n_first_frames)
	Start    []int64 // with a timeline: its first timestamp, an episode each
	Emptied  []int   // episodes that the options leave without a sample
	Print    Fingerprint
}

// Selection is the part of a dataset that samples are made of.
type Selection struct {
	Positions           []int // of episodes, in any order; nil: all
	DropFirst, DropTail int   // rows left out at the start and at the end of each episode
}

// NewTable counts samples. count gives an episode's samples before the options drop some, and its timeline's start.
func NewTable(total int, cfg Selection, exclude map[int]bool, count func(episode int) (n int, start int64, err error), timeline bool) (*Table, error) {
	t := &Table{first: cfg.DropFirst}
	var list []int
	if cfg.Positions != nil {
		list = append(make([]int, 0, len(cfg.Positions)), cfg.Positions...)
		sort.Ints(list)
		for _, e := range list {
			if e < 0 || e >= total {
				return nil, robocache.Misuse("loader", robocache.Where{"position": e}, "episodes").
					Expected(fmt.Sprintf("0 to %d", total-1), fmt.Sprint(e))
			}
		}
	}
	if list != nil || len(exclude) > 0 {
		t.episodes = []int32{}
		if list == nil {
			for e := range total {
				if !exclude[e] {
					t.episodes = append(t.episodes, int32(e))
				}
			}
		}
		for i, e := range list {
			if !exclude[e] && (i == 0 || list[i-1] != e) {
				t.episodes = append(t.episodes, int32(e))
			}
		}
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
		c, start, err := count(e)
		if err != nil {
			return nil, err // count names the episode
		}
		if left := c - cfg.DropFirst - cfg.DropTail; left > 0 {
			sum += int64(left)
		} else if c > 0 {
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

// Episode is the position in the dataset of a place of the table.
func (t *Table) Episode(i int) int {
	if t.episodes == nil {
		return i
	}
	return int(t.episodes[i])
}

// Len is the number of selected episodes, those without samples among them.
func (t *Table) Len() int { return len(t.ends) }

// Samples is the number of samples.
func (t *Table) Samples() int64 {
	if len(t.ends) == 0 {
		return 0
	}
	return t.ends[len(t.ends)-1]
}

// samplesWithout is the number of samples that are not of some bad episodes.
func (t *Table) samplesWithout(bad []BadEpisode) (left int64) {
	out := make(map[int]bool, len(bad))
	for i := range bad {
		out[bad[i].Episode] = true
	}
	before := int64(0)
	for i, end := range t.ends {
		if !out[t.Episode(i)] {
			left += end - before
		}
		before = end
	}
	return left
}

// Row finds a sample's row, and which of the selected episodes it is in.
func (t *Table) Row(sample int64) (r robocache.Row, i int) {
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

// Fingerprint is a hash over what decides the order: which episodes, with how many samples each.
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
	return Fingerprint{Episodes: len(t.ends), Samples: t.Samples(), Lengths: hex.EncodeToString(h.Sum(nil)[:12])}
}

// differenceFrom names what differs between two fingerprints; "" where nothing does.
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
