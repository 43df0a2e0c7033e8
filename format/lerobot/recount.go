package lerobot

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// The rows of the data files determine the length and the place of an episode. The episodes table
// only states them. Open compares both. Usually the footer is enough: if the row groups of a file
// are as long as its episodes, nothing else is read. Otherwise the column episode_index is read.

// Largest numbers of data files that Open compares. A larger dataset is compared when its rows are
// read, and by Open only if its own totals contradict its table.
const (
	maxLocalFiles  = 4096
	maxRemoteFiles = 16
	// maxDoubtfulFiles bounds the remote files of a dataset whose totals contradict its table.
	maxDoubtfulFiles = 256
)

// recountEpisodes counts the rows of the data files, and corrects the length and position of each
// episode in the table. Differences become findings. Without a count, the files are compared when
// their rows are read (compareFile).
func (d *Dataset) recountEpisodes(ctx context.Context) error {
	e := d.episodes
	if !d.shouldRecount() {
		if len(e.unsure) > 0 {
			return d.unsureError()
		}
		d.tables.compared = make([]atomic.Bool, len(e.files))
		return nil
	}
	var named map[place]string // nil if the files were not listed
	if !robocache.IsRemote(d.Bytes) {
		var err error
		if named, err = d.listData(ctx); err != nil {
			return err
		}
	}
	files, err := d.countFiles(ctx, named)
	if err != nil {
		return err
	}
	assigned, err := d.assignRuns(files)
	if err != nil {
		return err
	}
	isTableSure := len(e.unsure) == 0 && assigned == nil // each row of the table has its own data
	isSound, isComplete := isTableSure, true
	for i := range files {
		isSound = isSound && files[i].isSound
		isComplete = isComplete && files[i].err == nil
	}
	if isSound {
		return nil
	}
	if !isComplete || d.lacksRows(files) {
		if files, err = d.appendOtherFiles(ctx, files, named); err != nil {
			return err
		}
	}
	return d.correctTable(files, isComplete, assigned)
}

// appendOtherFiles appends the counted data files that the table does not name, because they may
// hold rows that the named files lack. named maps the places of the data files to their names. It
// is nil if the files were not listed.
func (d *Dataset) appendOtherFiles(
	ctx context.Context, files []countedFile, named map[place]string,
) ([]countedFile, error) {
	if named == nil {
		var err error
		if named, err = d.listData(ctx); err != nil {
			return nil, err
		}
	}
	for _, other := range d.otherFiles(named) {
		file := int32(len(files))
		open := func() (*tableFile, error) { return d.openFooter(ctx, other.name) }
		counted, err := d.countFile(ctx, file, other, open)
		if err != nil {
			return nil, err
		}
		files = append(files, counted)
	}
	return files, nil
}

// shouldRecount reports whether Open compares the table with the data files. The limits on the
// number of files bound the time of Open. A doubtful table, which contradicts itself or the totals,
// is compared for more files.
func (d *Dataset) shouldRecount() bool {
	e := d.episodes
	doubtful := len(e.unsure) > 0 || len(e.stored) > 0 ||
		d.raw.totalFrames >= 0 && d.raw.totalFrames != e.from[e.count()]
	n := len(e.files)
	switch {
	case e.count() == 0:
		return false
	case d.repair:
		return true
	case robocache.IsRemote(d.Bytes):
		return n <= maxRemoteFiles && d.raw.major != 2 || doubtful && n <= maxDoubtfulFiles
	default:
		return n <= maxLocalFiles || doubtful
	}
}

// unsureError returns the error about a table whose contradictions Open cannot resolve.
func (d *Dataset) unsureError() error {
	where := robocache.Where{"file": d.episodesFile()}
	pos := slices.Min(slices.Collect(maps.Keys(d.episodes.unsure)))
	where["episode"] = d.episodes.indexAt(pos)
	where["column"] = d.episodes.unsure[pos].column
	return robocache.Malformed(
		string(op),
		where,
		"%s: the table contradicts itself, and the data files cannot be compared with it",
		d.episodes.unsure[pos].message,
	).WithHint(
		"copy the dataset to this machine: %s writes the table by the data",
		robocache.Command("doctor --fix --in-place"),
	)
}

// episodesFile returns the name of the episodes table.
func (d *Dataset) episodesFile() string {
	if d.raw.major == 2 {
		return episodesJSONL
	}
	if len(d.paths.episodes) == 1 {
		return d.paths.episodes[0]
	}
	return "meta/episodes"
}

// lacksRows reports whether some episode has no rows in the counted files.
func (d *Dataset) lacksRows(files []countedFile) bool {
	have := map[int64]int{}
	for i := range files {
		for _, r := range files[i].runs {
			have[r.id]++
		}
	}
	for pos := range d.episodes.count() {
		id := d.episodes.dataID(pos)
		have[id]-- // each episode needs a run of its own
		mayHaveRows := d.episodes.length[pos] > 0 || d.episodes.isUnsure(pos)
		if have[id] < 0 && mayHaveRows {
			return true
		}
	}
	return false
}

// correctTable assigns to every episode its rows in the files, and makes them the table in use.
// isComplete reports that all files were read. assigned holds, by position of the episode, the runs
// that are already chosen.
func (d *Dataset) correctTable(
	files []countedFile,
	isComplete bool,
	assigned map[int]*rowRun,
) error {
	table := d.episodes
	correction := tableCorrection{
		dataset:    d,
		files:      files,
		length:     slices.Clone(table.length),
		file:       slices.Clone(table.file),
		start:      slices.Clone(table.start),
		unreadable: map[int32]relocated{},
		moved:      map[int32]bool{},
	}
	runs := map[int64][]*rowRun{}
	var totalRows int64
	for i := range files {
		totalRows += files[i].rows
		for k := range files[i].runs {
			r := &files[i].runs[k]
			runs[r.id] = append(runs[r.id], r)
		}
	}
	correction.isShort = !isComplete || d.raw.totalFrames < 0 || totalRows < d.raw.totalFrames
	correction.claimed = make([]int64, len(files))
	for pos := range table.count() {
		rows := int64(table.length[pos])
		if r := assigned[pos]; r != nil && d.isRenumbered(r.id) {
			rows = r.rows
		}
		correction.claimed[table.file[pos]] += rows
	}
	for pos := range table.count() {
		r := assigned[pos]
		matching := 0
		if r == nil {
			r, matching = d.pickRun(pos, runs[table.dataID(pos)])
		}
		switch {
		case matching > 1:
			name := files[table.file[pos]].name
			err := d.tables.scatteredError(name, pos, matching)
			correction.setUnreadable(pos, table.start[pos], err)
		case r == nil:
			correction.setLost(pos)
		default:
			correction.placeEpisode(pos, r)
		}
	}
	// Wrong lengths, wrong files and lost rows also move the following episodes. That is not a
	// second fault.
	isTableRight := slices.Equal(correction.length, table.length) &&
		slices.Equal(correction.file, table.file)
	onlyStartsDiffer := isTableRight && len(correction.unreadable) == 0
	for f := range files {
		if onlyStartsDiffer && correction.moved[int32(f)] {
			d.tables.reportMoved(files[f].name)
		}
	}
	table.length = correction.length
	table.sumLengths()
	d.About.Frames = table.from[table.count()]
	return d.useFiles(files, correction.file, correction.start, correction.unreadable)
}

// tableCorrection holds the corrected columns of the episodes table.
type tableCorrection struct {
	dataset    *Dataset
	files      []countedFile
	isShort    bool                // the set may have fewer rows than its totals state
	claimed    []int64             // rows that the episodes of each file have by the table
	length     []int32             // by position of the episode
	file       []int32             // by position of the episode
	start      []int64             // by position of the episode
	unreadable map[int32]relocated // episodes whose rows cannot be read, by position
	moved      map[int32]bool      // files in which episodes are at other rows
}

// setUnreadable makes reading the episode at position pos return err. start is the row of its first
// row in its data file.
func (c *tableCorrection) setUnreadable(pos int, start int64, err error) {
	c.unreadable[int32(pos)] = relocated{start, err}
}

// setLost marks an episode of which no rows were found as unreadable, and reports it. It does
// nothing if the episode is empty, or if its file could not be read.
func (c *tableCorrection) setLost(pos int) {
	d := c.dataset
	e := d.episodes
	listed := &c.files[e.file[pos]]
	isEmpty := e.length[pos] == 0 && !e.isUnsure(pos)
	if listed.err != nil || isEmpty {
		return // listed.err is reported when the file is read
	}
	c.setUnreadable(pos, e.start[pos], d.tables.lengthError(listed.name, pos, 0))
	d.reportLost(pos, listed.name, 0)
}

// placeEpisode assigns a run of rows to an episode, and reports the errors of the table.
func (c *tableCorrection) placeEpisode(pos int, r *rowRun) {
	d := c.dataset
	e := d.episodes
	r.isTaken = true
	isReported := false
	name := c.files[r.file].name
	// A run that is shorter than the table states has two possible causes: rows were lost, or the
	// table is wrong. Assume lost rows only if the totals and the lengths of the file's other
	// episodes also state more rows than there are.
	isFileShort := c.files[r.file].rows < c.claimed[r.file]
	isCertain := !e.isUnsure(pos) && !d.isRenumbered(r.id)
	mayHaveLostRows := c.isShort && isCertain && isFileShort
	length, ok := rowCount(r.rows)
	switch {
	case mayHaveLostRows && r.rows < int64(e.length[pos]):
		c.setUnreadable(pos, r.start, d.tables.lengthError(name, pos, r.rows))
		d.reportLost(pos, name, r.rows)
	case ok && length != e.length[pos]:
		d.reportLength(pos, name, length)
		c.length[pos] = length
		isReported = true
	}
	if r.file != e.file[pos] {
		d.reportStale(pos, &c.files[e.file[pos]], name)
		isReported = true
	} else if r.start != e.start[pos] {
		c.moved[r.file] = true
	}
	c.file[pos] = r.file
	c.start[pos] = r.start
	if fault, ok := e.unsure[pos]; ok && !isReported && e.hasFiles {
		d.reportFault(pos, fault)
	}
}

// useFiles makes files the data files of the table. By position of the episode, file holds the
// position of its file in files, and start the row of its first row in that file. places holds the
// episodes that cannot be read.
func (d *Dataset) useFiles(
	files []countedFile, file []int32, start []int64, places map[int32]relocated,
) error {
	e := d.episodes
	e.start = start
	if d.raw.major != 2 {
		// Only files that hold an episode stay in the table. They get new positions.
		chunk := make([]int64, e.count())
		number := make([]int64, e.count())
		for pos, f := range file {
			chunk[pos], number[pos] = files[f].at.chunk, files[f].at.file
		}
		var err error
		e.file, e.files, err = numberFiles(chunk, number, e.count())
		if err != nil {
			return err
		}
	}
	// The cached columns and open files belong to the old positions.
	budget := d.tables.cache.Stats().Budget
	d.tables.close()
	d.tables = newTables(d, budget)
	d.tables.relocate(places)
	return nil
}

// pickRun chooses the run of an episode among the runs with its index. If several are free and the
// table's row fits none exactly, it returns nil and their number, and otherwise 0.
func (d *Dataset) pickRun(pos int, runs []*rowRun) (best *rowRun, ambiguous int) {
	best, free := d.bestRun(pos, runs)
	needsExactFit := free > 1 && !d.isRenumbered(d.episodes.dataID(pos))
	if needsExactFit && !best.sameRows(d.claimOf(int32(pos))) {
		return nil, free
	}
	return best, 0
}

// bestRun returns the run that fits the table's row of an episode best. It skips runs that are
// assigned to an episode; free is the number of the others.
func (d *Dataset) bestRun(pos int, runs []*rowRun) (best *rowRun, free int) {
	claim := d.claimOf(int32(pos))
	// The file, the number of rows and the first row give one point each.
	score := func(r *rowRun) (points int) {
		for _, fits := range []bool{
			r.file == claim.file, r.rows == claim.rows,
			r.file == claim.file && r.start == claim.start,
		} {
			if fits {
				points++
			}
		}
		return points
	}
	for _, r := range runs {
		if r.isTaken {
			continue
		}
		free++
		if best == nil || score(r) > score(best) {
			best = r
		}
	}
	return best, free
}
