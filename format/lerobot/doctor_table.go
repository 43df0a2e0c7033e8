package lerobot

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/stats"
)

// tableCheck holds the expected values of the next row.
type tableCheck struct {
	totalRows   int64   // number of rows so far, over all files
	episodeRows []int32 // number of rows so far, by episode
	lastTimes   []float64
}

// checkTables reads the bookkeeping columns of every data file as they are stored.
func (doc *doctor) checkTables(ctx context.Context) {
	d := doc.dataset
	c := &tableCheck{
		episodeRows: make([]int32, d.episodes.count()),
		lastTimes:   make([]float64, d.episodes.count()),
	}
	for file := range d.tables.fileCount() {
		eps := d.tables.episodesOf(int32(file))
		rowsAfterFile := c.totalRows + doc.rowsOf(eps) // according to the table
		if !doc.shouldCheckAny(ctx, eps) {
			c.totalRows = rowsAfterFile
		} else if err := doc.checkFile(ctx, int32(file), c); err == nil {
			// If this file has lost rows, the column index of the following files still counts
			// them. checkFile added only the rows that the file has, so add the lost ones.
			for _, e := range eps {
				c.totalRows += max(0, int64(d.Len(int(e)))-int64(c.episodeRows[e]))
			}
		} else {
			// The column index of the following files counts all rows of the unreadable file.
			c.totalRows = rowsAfterFile
			for _, e := range eps {
				doc.unreadable[int(e)] = true
			}
			doc.reportError(ctx, err, robocache.Where{"episodes": doc.spanText(eps)})
		}
	}
	for e, n := range c.episodeRows {
		if doc.isRequested(e) && !doc.unreadable[e] && int(n) != d.Len(e) {
			doc.unreadable[e] = true
			if d.tables.badEpisode(e) == nil { // otherwise Open reported it
				file, _ := d.tables.fileOf(e)
				doc.reportLength(ctx, file, e, n)
			}
		}
	}
}

// reportLength reports an episode whose number of rows in the data differs from the table. file is
// the position of its data file, and e that of the episode.
func (doc *doctor) reportLength(ctx context.Context, file int32, e int, rows int32) {
	d := doc.dataset
	where := robocache.Where{"file": d.episodesFile(), "episode": d.episodes.indexAt(e)}
	code := "episode-length"
	hint := fixTableHint()
	if int(rows) < d.Len(e) {
		code = "rows-missing"
		hint = rowsLostHint()
		if f, err := d.tables.footer(ctx, file); err == nil {
			where["file"] = f.name
		}
	}
	doc.recordFault(robocache.SeverityError, code, where, hint,
		"the episodes table says %d rows, the data has %d", d.Len(e), rows)
}

// rowsOf returns the number of rows of some episodes according to the metadata.
func (doc *doctor) rowsOf(eps []int32) (n int64) {
	for _, e := range eps {
		n += int64(doc.dataset.Len(int(e)))
	}
	return n
}

// spanText returns the range of the episodes of a file, such as "12–14".
func (doc *doctor) spanText(eps []int32) string {
	if len(eps) == 0 {
		return "none"
	}
	table := doc.dataset.episodes
	lo := table.indexAt(int(eps[0]))
	hi := table.indexAt(int(eps[len(eps)-1]))
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d–%d", lo, hi)
}

// checkFile checks the rows of one data file.
func (doc *doctor) checkFile(ctx context.Context, file int32, c *tableCheck) error {
	f, err := doc.dataset.tables.footer(ctx, file)
	if err != nil {
		return err
	}
	if f.pq.Rows == 0 {
		doc.recordFault(
			robocache.SeverityError,
			"empty-file",
			robocache.Where{"file": f.name},
			"remove the file",
			"the data file has no rows: LeRobot refuses such a set",
		)
	}
	doc.checkSchema(f)
	for g := range f.pq.Groups {
		if err := doc.checkGroup(ctx, f, file, g, c); err != nil {
			return err
		}
		doc.addProgress(f.pq.Groups[g].Rows)
	}
	return nil
}

// checkSchema compares a file's columns with the declaration.
func (doc *doctor) checkSchema(f *tableFile) {
	for i := range doc.dataset.columns {
		c := &doc.dataset.columns[i]
		if c.source != fromColumn {
			continue
		}
		top := f.pq.Column(c.key)
		where := robocache.Where{"file": f.name, "column": c.key}
		isScalar := elementCount(c.shape) == 1 && len(c.shape) < 2
		switch {
		case top == nil:
			doc.recordFault(
				robocache.SeverityError,
				"missing-column",
				where,
				"write the file again",
				"declared, but not in this file",
			)
		case c.kind == robocache.KindNumeric && top.Group() && isScalar:
			doc.recordFault(
				robocache.SeverityWarning,
				"scalar-as-list",
				where,
				"store shape [1] as a plain number",
				"shape [1] is stored as a list: LeRobot refuses it",
			)
		case c.kind == robocache.KindNumeric && !top.Group():
			stored := pq.DType(top)
			// Classes are floats, booleans and integers.
			isSameClass := stored.Float() == c.dtype.Float() &&
				(stored == robocache.Bool) == (c.dtype == robocache.Bool)
			if !isSameClass {
				doc.recordFault(
					robocache.SeverityWarning,
					"stored-type",
					where,
					"declare the type that is stored",
					"declared %s, stored %s",
					c.dtype,
					stored,
				)
			}
		}
	}
}

// checkGroup checks the rows of one row group.
func (doc *doctor) checkGroup(
	ctx context.Context,
	f *tableFile,
	file int32,
	g int,
	c *tableCheck,
) error {
	rows, err := doc.readBookkeeping(ctx, f, file, g)
	if err != nil {
		return err
	}
	for r := range int(f.pq.Groups[g].Rows) {
		doc.checkRow(rows, r, c)
	}
	return nil
}

// groupRows are the bookkeeping columns of one row group. A column that the file lacks is nil.
type groupRows struct {
	tableFile  *tableFile
	file       int32
	group      int
	episodes   []int64
	index      []int64
	frames     []int64 // frame_index
	tasks      []int64
	timestamps []float64
}

// readBookkeeping reads the bookkeeping columns of a row group.
func (doc *doctor) readBookkeeping(
	ctx context.Context,
	f *tableFile,
	file int32,
	g int,
) (*groupRows, error) {
	tables := doc.dataset.tables
	out := &groupRows{tableFile: f, file: file, group: g}
	for _, column := range []struct {
		name   string
		values *[]int64
	}{
		{"episode_index", &out.episodes},
		{"index", &out.index},
		{"frame_index", &out.frames},
		{"task_index", &out.tasks},
	} {
		values, err := tables.integers(ctx, f, file, g, column.name)
		if err != nil {
			return nil, err
		}
		*column.values = values
	}
	timestamps, err := readScalars(ctx, tables, f, file, g, "timestamp", pq.Float64s)
	if err != nil {
		return nil, err
	}
	out.timestamps = timestamps
	return out, nil
}

// whereOf returns the place of a row in a column.
func (g *groupRows) whereOf(column string, row int) robocache.Where {
	return robocache.Where{
		"file":      g.tableFile.name,
		"row_group": g.group,
		"column":    column,
		"row":       row,
	}
}

// checkRow checks the bookkeeping columns of row r of a row group, and counts the row in c.
func (doc *doctor) checkRow(rows *groupRows, r int, c *tableCheck) {
	d := doc.dataset
	renumber := "renumber the rows: run " + robocache.Command("convert")
	if rows.index != nil && rows.index[r] != c.totalRows {
		doc.recordFault(
			robocache.SeverityError,
			"index-order",
			rows.whereOf("index", r),
			renumber,
			"index is %d, but %d follows in order: readers that use a row's position as "+
				"its index deliver other rows, and windows are cut at wrong rows",
			rows.index[r],
			c.totalRows,
		)
	}
	c.totalRows++
	episode := doc.episodeOfRow(rows, r)
	if episode < 0 || episode >= d.episodes.count() {
		doc.recordFault(
			robocache.SeverityError,
			"orphan-rows",
			rows.whereOf("episode_index", r),
			"remove the rows, or restore their episode",
			"rows of episode %d, which is not in the metadata",
			rows.episodes[r],
		)
		return
	}
	rowInEpisode := int64(c.episodeRows[episode])
	c.episodeRows[episode]++
	if !doc.isRequested(episode) {
		return
	}
	if rows.frames != nil && rows.frames[r] != rowInEpisode {
		doc.recordFault(
			robocache.SeverityError,
			"frame-index",
			rows.whereOf("frame_index", r),
			renumber,
			"frame_index is %d in row %d of episode %d",
			rows.frames[r],
			rowInEpisode,
			d.episodes.indexAt(episode),
		)
	}
	if rows.tasks != nil {
		if _, ok := d.taskText[rows.tasks[r]]; !ok {
			doc.recordFault(
				robocache.SeverityError,
				"task-index",
				rows.whereOf("task_index", r),
				"add the task, or fix the number",
				"task_index %d has no text",
				rows.tasks[r],
			)
		}
	}
	if rows.timestamps != nil {
		doc.checkTimestamp(rows.timestamps[r], rowInEpisode, episode, c, func() robocache.Where {
			w := rows.whereOf("timestamp", r)
			w["episode"] = d.episodes.indexAt(episode)
			return w
		})
	}
}

// episodeOfRow returns the position of the episode of row r. It may be no position of an episode.
func (doc *doctor) episodeOfRow(rows *groupRows, r int) int {
	d := doc.dataset
	if len(d.episodes.stored) > 0 {
		row := rows.tableFile.pq.Groups[rows.group].Start + int64(r)
		return doc.episodeAtRow(rows.file, row, rows.episodes, r)
	}
	if rows.episodes != nil && d.raw.major != 2 {
		return d.episodes.position(rows.episodes[r])
	}
	return int(rows.file) // v2: the file is the episode
}

// episodeAtRow returns the position of the episode that has a row of a data file, or -1. ids holds
// the episode_index values of a row group, and i is the row in it.
func (doc *doctor) episodeAtRow(file int32, row int64, ids []int64, i int) int {
	d := doc.dataset
	isUnnamed := ids == nil || d.raw.major == 2 // the rows do not state their episode
	for _, e := range d.tables.episodesOf(file) {
		_, start := d.tables.fileOf(int(e))
		isInside := row >= start && row < start+int64(d.Len(int(e)))
		if isInside && (isUnnamed || ids[i] == d.episodes.dataID(int(e))) {
			return int(e)
		}
	}
	if isUnnamed {
		return -1
	}
	return d.episodes.position(ids[i])
}

// checkTimestamp checks one row's time. It must be finite, increase, and be on the grid of the
// frame rate from 0. where returns the location of the row; it is called only for a fault.
func (doc *doctor) checkTimestamp(
	seconds float64,
	rowInEpisode int64,
	episode int,
	c *tableCheck,
	where func() robocache.Where,
) {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		doc.recordFault(
			robocache.SeverityError,
			"timestamp-not-finite",
			where(),
			"fix the timestamp, or drop the row",
			"timestamp is %v",
			seconds,
		)
		return
	}
	fps := doc.dataset.About.FPS
	step := 1 / fps.Float()
	before := c.lastTimes[episode]
	c.lastTimes[episode] = seconds
	if rowInEpisode == 0 {
		if math.Abs(seconds) > tolerance(seconds) {
			doc.recordFault(
				robocache.SeverityWarning,
				"timestamp-offset",
				where(),
				robocache.Command("convert")+" writes timestamps from 0",
				"timestamps start at %.6g s, not at 0: readers that look up frames by time are "+
					"off by %.3g frames",
				seconds,
				seconds/step,
			)
		}
		return
	}
	passed := seconds - before
	switch {
	case passed < 0:
		doc.recordFault(
			robocache.SeverityError,
			"timestamp-order",
			where(),
			"sort the rows, or fix the timestamps",
			"the time decreases from %.9g to %.9g s",
			before,
			seconds,
		)
	case passed == 0:
		doc.recordFault(
			robocache.SeverityWarning,
			"timestamp-repeated",
			where(),
			"drop the row, or fix the timestamp",
			"the time does not increase at %.9g s",
			seconds,
		)
	case passed > 1.5*step:
		doc.recordFault(
			robocache.SeverityWarning,
			"timestamp-gap",
			where(),
			"frames may be lost: compare with the recording",
			"the step is %.4g s, %.3g frames",
			passed,
			passed/step,
		)
	case math.Abs(passed-step) > 2*tolerance(seconds):
		doc.recordFault(robocache.SeverityWarning, "timestamp-grid", where(),
			robocache.Command("convert")+
				" writes timestamps on the grid, and keeps the recorded ones",
			"the step is %.6g s, but 1/fps is %.6g", passed, step)
	}
}

// tolerance returns the largest error of a timestamp t in seconds: lerobot's 0.1 ms plus the
// rounding error of float32, which has 23 bits after the leading one.
func tolerance(t float64) float64 { return 1e-4 + math.Abs(t)/(1<<23) }

// checkStatistics reads the values of every stored feature. It computes the statistics of numbers
// exactly, and compares them with those of the dataset.
func (doc *doctor) checkStatistics(ctx context.Context) {
	d := doc.dataset
	stored, err := d.Stats(ctx)
	doc.reportError(ctx, err, robocache.Where{"part": "statistics"})
	lacksStats := stored == nil && err == nil && d.episodes.count() > 0
	var episodes []int // readable ones
	for e := range d.episodes.count() {
		if doc.isRequested(e) && !doc.unreadable[e] {
			episodes = append(episodes, e)
		}
	}
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if d.columns[i].source != fromColumn || doc.failed != nil {
			continue
		}
		doc.checkFeature(ctx, f, stored[f.Key], episodes)
	}
	if lacksStats {
		hint := robocache.Command("stats --write") + " writes them"
		if slices.ContainsFunc(doc.findings, isUnreadable) {
			hint = "correct the errors first: statistics need every row"
		}
		doc.recordFault(
			robocache.SeverityInfo,
			"no-stats",
			robocache.Where{"file": statsJSON},
			hint,
			"the dataset has no statistics",
		)
	}
}

// checkFeature reads all values of a feature in the given episodes. It compares the statistics of
// numbers with stored, which may be nil.
func (doc *doctor) checkFeature(
	ctx context.Context,
	f *robocache.Feature,
	stored *robocache.FeatureStats,
	episodes []int,
) {
	d := doc.dataset
	switch {
	case f.Kind == robocache.KindImage:
		doc.checkImages(ctx, f)
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		doc.checkTexts(ctx, f)
	case f.DType == robocache.Bool:
		doc.checkNumbers(ctx, f)
	}
	hasStatistics := f.Kind == robocache.KindNumeric && f.DType != robocache.Bool
	if !hasStatistics || doc.failed != nil {
		return
	}
	recomputed, nonFinite, err := stats.Rows(ctx, d, f, episodes, 256<<20)
	if err != nil {
		before := len(doc.findings)
		doc.checkNumbers(ctx, f) // finds the exact location
		if len(doc.findings) == before {
			doc.reportError(ctx, err, robocache.Where{"stream": f.Key})
		}
		return
	}
	if nonFinite > 0 {
		doc.checkNumbers(ctx, f) // finds the locations of these values
	}
	readAll := doc.requested == nil && len(doc.unreadable) == 0
	if stored != nil && recomputed != nil && readAll {
		doc.compareStats(f, stored, recomputed)
	}
	doc.addProgress(d.About.Frames / int64(len(d.About.Features)))
}

// isUnreadable reports whether a finding is about rows that cannot be read.
func isUnreadable(f robocache.Finding) bool {
	switch f.Code {
	case "stored-value", "unreadable-file", "missing-file", "missing-column", "rows-missing",
		"unreadable-image", "codec-unsupported", "undecodable", "episode-twice", "image-size":
		return f.Severity == robocache.SeverityError
	}
	return false
}

// compareStats compares statistics with recomputed ones. It allows the errors of float32 arithmetic
// and of a histogram of 5,000 bins.
func (doc *doctor) compareStats(f *robocache.Feature, stored, recomputed *robocache.FeatureStats) {
	hint := robocache.Command("stats --write") + " writes exact ones"
	where := robocache.Where{"file": "meta/stats", "stream": f.Key}
	if stored.Count > 0 && stored.Count != recomputed.Count {
		doc.recordFault(
			robocache.SeverityWarning,
			"stats-count",
			where,
			hint,
			"the statistics count %d rows, but the dataset has %d",
			stored.Count,
			recomputed.Count,
		)
	}
	for _, name := range []string{"min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"} {
		old, exact := stats.Vector(stored, name), stats.Vector(recomputed, name)
		if old == nil || exact == nil {
			continue
		}
		if len(old) != len(exact) {
			doc.recordFault(
				robocache.SeverityWarning,
				"stats-shape",
				where,
				hint,
				"%s has %d numbers, expected %d",
				name,
				len(old),
				len(exact),
			)
			continue
		}
		for c := range old {
			scale := math.Max(math.Abs(recomputed.Min[c]), math.Abs(recomputed.Max[c]))
			width := recomputed.Max[c] - recomputed.Min[c]
			allowed := 1e-5 * scale
			switch name {
			case "std":
				allowed = 0.01*recomputed.Std[c] + 1e-6*scale
			case "q01", "q10", "q50", "q90", "q99":
				allowed = 0.01*width + 1e-5*scale
			}
			if diff := math.Abs(old[c] - exact[c]); diff > allowed || math.IsNaN(diff) {
				w := robocache.Where{"file": "meta/stats", "stream": f.Key, "index": c}
				doc.recordFault(
					robocache.SeverityWarning,
					"stats-wrong",
					w,
					hint,
					"%s is %.6g, but computing it gives %.6g",
					name,
					old[c],
					exact[c],
				)
			}
		}
	}
}
