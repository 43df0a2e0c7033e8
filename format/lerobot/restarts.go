package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
)

// frameCount holds the columns that count the rows of the episodes in a data file.
type frameCount struct {
	// frames is frame_index or, if the file lacks that column, the number computed from the
	// timestamp. It is nil if the file has neither.
	frames  []int64
	seconds []float64 // timestamp, nil if the file has none
	step    float64   // seconds between two frames
}

// splitRuns splits runs at rows where frame_index restarts at 0, because two episodes with the same
// index may be adjacent. It marks the runs that begin with an episode's first frame.
//
// A run that the table lists as one episode is not split, nor are rows whose timestamps continue.
// In these cases only frame_index is wrong, and doctor reports it.
func (d *Dataset) splitRuns(
	ctx context.Context, f *tableFile, file int32, runs []rowRun,
) ([]rowRun, error) {
	claimed := map[int64]bool{} // rows at which the table places the start of an episode
	listed := map[rowRun]bool{}
	for _, e := range d.tables.episodesOf(file) {
		claimed[d.episodes.start[e]] = true
		listed[d.claimOf(e)] = true
	}
	count, err := d.readFrameCount(ctx, f, file)
	if err != nil {
		return nil, err
	}
	var out []rowRun
	for _, r := range runs {
		first := r.start
		isListed := listed[rowRun{id: r.id, file: file, start: r.start, rows: r.rows}]
		isWhole := count.frames != nil && (isListed || count.frames[first] == 0)
		for row := first + 1; row < r.start+r.rows; row++ {
			if isListed && !claimed[row] {
				continue
			}
			isBoundary := claimed[row] && d.isRenumbered(r.id)
			if count.frames != nil {
				isBoundary = count.restarts(first, row, claimed[row])
			}
			if !isBoundary {
				continue
			}
			before := rowRun{
				id:      r.id,
				file:    file,
				start:   first,
				rows:    row - first,
				isWhole: isWhole,
			}
			out = append(out, before)
			first = row
			isWhole = count.frames != nil
		}
		r.rows = r.start + r.rows - first
		r.start = first
		r.isWhole = isWhole
		out = append(out, r)
	}
	return out, nil
}

// restarts reports whether a new episode begins at row. The episode before it begins at row first of
// the file. isClaimed reports that the table places the start of an episode at row.
func (c *frameCount) restarts(first, row int64, isClaimed bool) bool {
	lastFrame := c.frames[row-1]
	countsFromFirst := lastFrame == row-1-first
	if c.frames[row] != 0 || !countsFromFirst {
		return false
	}
	// Two zeros in a row may be a column of zeros, so that the table must confirm the episode.
	// Timestamps that continue also contradict it.
	return isClaimed || lastFrame > 0 && !c.continues(first, row)
}

// continues reports whether the timestamps continue at a row of the episode that begins at row
// first. A gap does not end an episode that begins at time 0, because the next episode would also
// begin at 0.
func (c *frameCount) continues(first, row int64) bool {
	if c.seconds == nil {
		return false
	}
	passed := c.seconds[row] - c.seconds[row-1]
	isNextFrame := passed <= 1.5*c.step
	beginsAtZero := math.Abs(c.seconds[first]) < c.step/2
	return passed > 0 && (isNextFrame || beginsAtZero)
}

// readFrameCount reads the columns that count the rows of a data file. The error of a damaged
// column is reported when its rows are read.
func (d *Dataset) readFrameCount(
	ctx context.Context, f *tableFile, file int32,
) (*frameCount, error) {
	frames, err := wholeColumn(ctx, d.tables, f, file, "frame_index", pq.Int64s)
	if err != nil {
		return nil, err
	}
	seconds, err := wholeColumn(ctx, d.tables, f, file, "timestamp", pq.Float64s)
	if err != nil {
		return nil, err
	}
	if frames == nil && numberLeaf(f.pq, "frame_index") == nil {
		for _, s := range seconds {
			number := int64(-1)
			if frame := math.Round(s * d.raw.fps.Float()); math.Abs(frame) < 1<<53 {
				number = int64(frame)
			}
			frames = append(frames, number)
		}
	}
	return &frameCount{frames: frames, seconds: seconds, step: 1 / d.raw.fps.Float()}, nil
}

// wholeColumn reads a column of a data file with one number per row. It returns nil if the file has
// no such column, or if the column is damaged.
func wholeColumn[T any](
	ctx context.Context, t *tables, f *tableFile, file int32, name string,
	convert func(*pq.Column) ([]T, error),
) ([]T, error) {
	if numberLeaf(f.pq, name) == nil {
		return nil, nil
	}
	values := make([]T, 0, f.pq.Rows)
	for g := range f.pq.Groups {
		part, err := readScalars(ctx, t, f, file, g, name, convert)
		if robocache.Bad(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		values = append(values, part...)
	}
	if int64(len(values)) != f.pq.Rows {
		return nil, nil
	}
	return values, nil
}
