package diff

import (
	"bytes"
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// comparePair returns the differences of a matched episode, or nil if there are none.
func (c *comparison) comparePair(ctx context.Context, p pair) (*Change, error) {
	lengthA, lengthB := c.a.ds.Len(p.a), c.b.ds.Len(p.b)
	out := &Change{
		A: c.a.ds.Info().EpisodeIndex(p.a), B: c.b.ds.Info().EpisodeIndex(p.b),
		Streams: []Stream{},
	}
	runs := identity(lengthA, lengthB)
	sigA, sigB := &c.signaturesA[p.a], &c.signaturesB[p.b]
	if sigA.content != sigB.content {
		var err error
		if runs, err = c.alignPair(ctx, p); err != nil {
			return nil, err
		}
	}
	out.Rows = runs.countRows(lengthA, lengthB)
	for _, x := range c.shared {
		if sigA.streams[x.inA] == sigB.streams[x.inB] {
			continue
		}
		s, err := c.compareStream(ctx, x, p, runs)
		if err != nil {
			return nil, err
		}
		if s != nil {
			out.Streams = append(out.Streams, *s)
		}
	}
	for _, x := range c.cameras {
		s, err := c.compareCamera(ctx, x, p, runs)
		if err != nil {
			return nil, err
		}
		if s != nil {
			out.Streams = append(out.Streams, *s)
		}
	}
	if sigA.tasks != sigB.tasks {
		a, err := c.a.ds.Episode(ctx, p.a)
		if err != nil {
			return nil, c.a.located(err, p.a, "task")
		}
		b, err := c.b.ds.Episode(ctx, p.b)
		if err != nil {
			return nil, c.b.located(err, p.b, "task")
		}
		// A trimmed episode has fewer rows of the same task.
		if !slices.Equal(a.Tasks, b.Tasks) || runs.count() == max(lengthA, lengthB) {
			out.Tasks = &Property{"tasks", a.Tasks, b.Tasks}
		}
	}
	if c.a.knowsTime && c.b.knowsTime && sigA.times != sigB.times {
		var err error
		if out.Times, err = c.compareTimes(ctx, p, runs); err != nil {
			return nil, err
		}
	}
	isEqual := len(out.Streams) == 0 && out.Tasks == nil && out.Times == nil &&
		runs.count() == lengthA && lengthA == lengthB
	if isEqual {
		return nil, nil
	}
	return out, nil
}

// streamRuns returns the pairs of rows of a stream. A stream on a separate clock is paired by row
// number, and counts describes its rows. lacks reports whether only one episode has the stream.
func (c *comparison) streamRuns(
	ctx context.Context, a, b *robocache.Feature, p pair, runs rowRuns,
) (_ rowRuns, counts RowCounts, lacks bool, err error) {
	rowsA, hasA, err := c.a.rowCount(ctx, p.a, a)
	if err != nil {
		return nil, counts, false, c.a.located(err, p.a, a.Key)
	}
	rowsB, hasB, err := c.b.rowCount(ctx, p.b, b)
	if err != nil {
		return nil, counts, false, c.b.located(err, p.b, b.Key)
	}
	if a.Clock != "" || b.Clock != "" {
		runs = identity(rowsA, rowsB)
		counts = runs.countRows(rowsA, rowsB)
	}
	return runs, counts, hasA != hasB, nil
}

// compareStream returns how the values of a stream differ; nil if the paired rows are equal.
func (c *comparison) compareStream(
	ctx context.Context, x sharedStream, p pair, runs rowRuns,
) (*Stream, error) {
	runs, counts, lacks, err := c.streamRuns(ctx, x.a.Feature, x.b.Feature, p, runs)
	if err != nil {
		return nil, err
	}
	out := &Stream{Key: x.a.Key, What: "values", FirstRow: -1}
	out.addCounts(counts)
	switch {
	case lacks:
		out.What, out.Rows, out.FirstRow = "lacking", runs.count(), 0
		return out, nil
	case x.a.RowBytes() > 0 && x.b.RowBytes() > 0 && x.a.Elements() != x.b.Elements():
		out.What, out.Rows, out.FirstRow = "shape", runs.count(), 0
		return out, nil
	case x.a.isText():
		out.What = "text"
	}
	block := min(x.a.blockRows(), x.b.blockRows())
	for _, run := range runs {
		for at := 0; at < run.n; at += block {
			n := min(block, run.n-at)
			rowsA := robocache.RowsOf(p.a, run.a+at, n)
			a, err := c.a.readRows(ctx, x.a, rowsA, false)
			if err != nil {
				return nil, c.a.located(err, p.a, x.a.Key)
			}
			b, err := c.b.readRows(ctx, x.b, robocache.RowsOf(p.b, run.b+at, n), false)
			if err != nil {
				return nil, c.b.located(err, p.b, x.b.Key)
			}
			out.compareBlocks(a, b, run.a+at)
		}
	}
	if out.Rows == 0 && out.RemovedRows == 0 && out.AddedRows == 0 {
		return nil, nil
	}
	return out, nil
}

// addCounts adds the rows that only one dataset has.
func (s *Stream) addCounts(n RowCounts) {
	s.RemovedRows = n.RemovedHead + n.RemovedMiddle + n.RemovedTail
	s.AddedRows = n.AddedHead + n.AddedMiddle + n.AddedTail
}

// addRow counts a row of A that differs.
func (s *Stream) addRow(row int) {
	if s.Rows == 0 {
		s.FirstRow = row
	}
	s.Rows++
}

// addDifference raises the largest difference.
func (s *Stream) addDifference(d float64) {
	if s.MaxDifference == nil || d > *s.MaxDifference {
		s.MaxDifference = &d
	}
}

// compareBlocks counts the rows that differ. first is the row of A at the start of the block.
func (s *Stream) compareBlocks(a, b *rowBlock, first int) {
	for i := range a.ends {
		rowA, rowB := a.row(i), b.row(i)
		if bytes.Equal(rowA, rowB) {
			continue
		}
		s.addRow(first + i)
		if a.numbers == nil || b.numbers == nil || rowA[0] != rowB[0] {
			continue
		}
		for k := range a.width {
			d := math.Abs(a.numbers[i*a.width+k] - b.numbers[i*b.width+k])
			if d-d == 0 && d > 0 {
				s.addDifference(d)
			}
		}
	}
}

const (
	// sameTime is the difference in ns of timestamps that count as equal, in addition to the
	// resolution of float32 seconds.
	sameTime      = 1000
	float32Digits = 23
)

// compareTimes returns how the timestamps of paired rows differ; nil if they do not. Times are
// relative to the first row of a run, because an edit restarts the times of a trimmed episode.
func (c *comparison) compareTimes(
	ctx context.Context, p pair, runs rowRuns,
) (*TimeChange, error) {
	out := &TimeChange{}
	compareKeys := func(keyA, keyB string, runs func(a, b int) rowRuns) error {
		a, err := c.a.relativeTimes(ctx, p.a, keyA)
		if err != nil {
			return err
		}
		b, err := c.b.relativeTimes(ctx, p.b, keyB)
		if err != nil {
			return err
		}
		for _, run := range runs(len(a), len(b)) {
			out.compareRun(a[run.a:run.a+run.n], b[run.b:run.b+run.n], keyA != "")
		}
		return nil
	}
	err := compareKeys("", "", func(int, int) rowRuns { return runs })
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{"": true}
	features := slices.Clone(c.cameras)
	for _, x := range c.shared {
		features = append(features, sharedCamera{x.a.Feature, x.b.Feature})
	}
	for _, x := range features {
		if seen[x.a.Clock] || x.b.Clock == "" {
			continue
		}
		seen[x.a.Clock] = true
		if err := compareKeys(x.a.Key, x.b.Key, identity); err != nil {
			return nil, err
		}
	}
	if out.Rows == 0 {
		return nil, nil
	}
	return out, nil
}

// compareRun counts the timestamps that differ. keepsOffset also compares their offsets.
func (t *TimeChange) compareRun(a, b []int64, keepsOffset bool) {
	var offset int64
	if !keepsOffset && len(a) > 0 {
		offset = a[0] - b[0]
	}
	for i := range a {
		d := a[i] - b[i] - offset
		d = max(d, -d)
		if d > sameTime+(max(a[i], -a[i])>>float32Digits) {
			t.Rows++
			t.MaxDifference = max(t.MaxDifference, float64(d)/1e9)
		}
	}
}
