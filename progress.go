package robocache

import (
	"sync"
	"time"
)

// Progress states how much of a job is done.
type Progress struct {
	Done, Total int64
	Unit        string // of Done and Total: "rows", "files", "bytes"
	// Episodes and TotalEpisodes count episodes, if the job is one over episodes.
	Episodes, TotalEpisodes int
}

// progressInterval is the least time between two reports within an episode.
const progressInterval = 100 * time.Millisecond

// RowCounter counts the rows that a writer has finished, within an episode too. A nil RowCounter
// counts nothing. Its methods are safe for concurrent use.
type RowCounter struct {
	report  func(Progress)
	lengths func(episode int) int

	mu       sync.Mutex
	progress Progress
	finished int64           // rows of the finished episodes
	shares   map[int]float64 // done share of each unfinished episode, 0 to 1
	reported time.Time
}

// NewRowCounter returns a counter of the rows of some episodes, by position. It calls report, one
// call at a time, after each episode, and within an episode at most ten times a second. It returns
// nil if report is nil.
func NewRowCounter(src Dataset, episodes []int, report func(Progress)) *RowCounter {
	if report == nil {
		return nil
	}
	c := &RowCounter{report: report, lengths: src.Len, shares: map[int]float64{}}
	c.progress = Progress{Unit: "rows", TotalEpisodes: len(episodes)}
	for _, e := range episodes {
		c.progress.Total += int64(src.Len(e))
	}
	return c
}

// Advance adds a share of an episode, of 1 for all that is to be done for it.
func (c *RowCounter) Advance(episode int, share float64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares[episode] = min(1, c.shares[episode]+share)
	if time.Since(c.reported) < progressInterval {
		return
	}
	rows := c.finished
	for e, share := range c.shares {
		rows += int64(share * float64(c.lengths(e)))
	}
	if rows > c.progress.Done {
		c.reportRows(rows)
	}
}

// Finish counts all rows of an episode: it is written, or left out.
func (c *RowCounter) Finish(episode int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shares, episode)
	c.finished += int64(c.lengths(episode))
	c.progress.Episodes++
	c.reportRows(max(c.finished, c.progress.Done))
}

// reportRows reports the number of rows. Caller must hold c.mu.
func (c *RowCounter) reportRows(rows int64) {
	c.progress.Done, c.reported = min(rows, c.progress.Total), time.Now()
	c.report(c.progress)
}
