package loader

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// table maps sample numbers to rows: prefix sums over the selected episodes, O(episodes) to make and to hold, whatever
// the number of rows.
type table struct {
	episodes []int32 // selected positions, ascending; nil = all of them
	ends     []int64 // samples up to and with each
	first    int     // row of an episode's first sample (drop_n_first_frames)
	start    []int64 // with a timeline: its first timestamp, an episode each
	emptied  []int   // episodes that the options leave without a sample
	print    Fingerprint
}

// newTable counts samples. count gives an episode's samples before the options drop some, and its timeline's start.
func newTable(total int, cfg *Config, exclude map[int]bool, count func(episode int) (n int, start int64, err error), timeline bool) (*table, error) {
	t := &table{first: cfg.DropFirst}
	var list []int
	if cfg.Episodes != nil {
		list = append(make([]int, 0, len(cfg.Episodes)), cfg.Episodes...)
		sort.Ints(list)
		for _, e := range list {
			if e < 0 || e >= total {
				return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"episode": e}, Msg: "episodes", Want: fmt.Sprintf("0 to %d", total-1), Got: fmt.Sprint(e)}
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
		t.start = make([]int64, n)
	}
	var sum int64
	for i := range n {
		e := t.episode(i)
		c, start, err := count(e)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"episode": e})
		}
		if left := c - cfg.DropFirst - cfg.DropTail; left > 0 {
			sum += int64(left)
		} else if c > 0 {
			t.emptied = append(t.emptied, e)
		}
		t.ends[i] = sum
		if timeline {
			t.start[i] = start
		}
	}
	t.print = t.fingerprint()
	return t, nil
}

func (t *table) episode(i int) int {
	if t.episodes == nil {
		return i
	}
	return int(t.episodes[i])
}

func (t *table) samples() int64 {
	if len(t.ends) == 0 {
		return 0
	}
	return t.ends[len(t.ends)-1]
}

// without is the number of samples that are not of some bad episodes.
func (t *table) without(bad []BadEpisode) (left int64) {
	out := make(map[int]bool, len(bad))
	for i := range bad {
		out[bad[i].Episode] = true
	}
	before := int64(0)
	for i, end := range t.ends {
		if !out[t.episode(i)] {
			left += end - before
		}
		before = end
	}
	return left
}

// row finds a sample's row, and which of the selected episodes it is in.
func (t *table) row(sample int64) (r robocache.Row, i int) {
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
	return robocache.Row{Episode: t.episode(lo), Index: int(sample-before) + t.first}, lo
}

// fingerprint is a hash over what decides the order: which episodes, with how many samples each.
func (t *table) fingerprint() Fingerprint {
	h := sha256.New()
	var b [16]byte
	before := int64(0)
	for i, end := range t.ends {
		binary.LittleEndian.PutUint64(b[:8], uint64(t.episode(i)))
		binary.LittleEndian.PutUint64(b[8:], uint64(end-before))
		h.Write(b[:])
		before = end
	}
	return Fingerprint{Episodes: len(t.ends), Samples: t.samples(), Lengths: hex.EncodeToString(h.Sum(nil)[:12])}
}

// difference names what differs between two fingerprints; "" where nothing does.
func (f Fingerprint) difference(other Fingerprint) string {
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
