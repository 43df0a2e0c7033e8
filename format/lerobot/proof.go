package lerobot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
)

// prove compares the rows of a row group with the metadata, once. episode_index states the episode
// of each row, and index (or frame_index) the order. If the rows are elsewhere in the file, prove
// records this and returns errMoved.
func (t *tables) prove(ctx context.Context, f *tableFile, file int32, group int) error {
	key := unitKey{file: file, group: int32(group), col: unitProof}
	_, err := t.cache.Load(ctx, key, func() (any, int64, error) {
		if err := t.proveGroup(ctx, f, file, group); err != nil {
			return nil, 0, err
		}
		return struct{}{}, 64, nil
	})
	return err
}

// proveGroup compares the rows of one row group with the metadata.
func (t *tables) proveGroup(ctx context.Context, f *tableFile, file int32, group int) error {
	rowGroup := f.pq.Groups[group]
	eps := t.episodesOf(file)
	if t.dataset.raw.major == 2 && len(eps) == 1 {
		only := int(eps[0]) // its rows are all rows of the file
		if f.pq.Rows != int64(t.dataset.Len(only)) {
			return t.lengthError(f.name, only, f.pq.Rows)
		}
	}
	ids, err := t.integers(ctx, f, file, group, "episode_index")
	if err != nil {
		return err
	}
	order, err := t.integers(ctx, f, file, group, "index")
	if err != nil {
		return err
	}
	if order == nil {
		if order, err = t.integers(ctx, f, file, group, "frame_index"); err != nil {
			return err
		}
	}
	if t.moved.Load() == nil {
		// Episodes are ordered by start, so those that end before the group are skipped by binary
		// search. A linear scan per group would be quadratic in a file with many groups and
		// episodes.
		first := sort.Search(len(eps), func(i int) bool {
			_, start := t.fileOf(int(eps[i]))
			return start+int64(t.dataset.Len(int(eps[i]))) > rowGroup.Start
		})
		eps = eps[first:]
	}
	p := groupProof{
		tables:    t,
		tableFile: f,
		file:      file,
		group:     group,
		start:     rowGroup.Start,
		ids:       ids,
		order:     order,
		bad:       map[int32]relocated{},
	}
	for _, e := range eps {
		if t.badEpisode(int(e)) != nil {
			continue
		}
		_, start := t.fileOf(int(e))
		end := start + int64(t.dataset.Len(int(e)))
		groupEnd := rowGroup.Start + rowGroup.Rows
		if start < groupEnd && end > f.pq.Rows { // the file ends before the episode
			return t.searchFile(ctx, f, file)
		}
		lo := max(start, rowGroup.Start)
		hi := min(end, groupEnd)
		if lo >= hi { // the episode has no row in the group
			continue
		}
		err := p.proveEpisode(ctx, e, lo, hi)
		if errors.Is(err, errOtherRows) {
			return t.searchFile(ctx, f, file)
		}
		if err != nil {
			return err
		}
	}
	if len(p.bad) > 0 {
		t.relocate(p.bad)
		return errMoved
	}
	return nil
}

// errOtherRows reports that rows of a file belong to another episode than the metadata states.
var errOtherRows = errors.New("rows of another episode")

// groupProof compares the rows of one row group with the metadata.
type groupProof struct {
	tables    *tables
	tableFile *tableFile
	file      int32
	group     int
	start     int64   // the first row of the group in the file
	ids       []int64 // episode_index, or nil
	order     []int64 // index or frame_index, or nil
	bad       map[int32]relocated
}

// proveEpisode compares the rows [lo, hi) of the file with episode e. It stops at the first row
// that differs. It returns errOtherRows if the file must be searched for its episodes.
func (p *groupProof) proveEpisode(ctx context.Context, e int32, lo, hi int64) error {
	d := p.tables.dataset
	id := d.episodes.dataID(int(e))
	for row := lo; row < hi; row++ {
		rowInGroup := row - p.start
		if p.ids != nil && p.ids[rowInGroup] != id {
			if d.raw.major != 2 {
				return errOtherRows
			}
			return p.noticeIndex(ctx, e, row)
		}
		isNext := p.order == nil || row == lo || p.order[rowInGroup] == p.order[rowInGroup-1]+1
		if !isNext {
			return p.judgeOrder(ctx, e, lo, hi, row)
		}
	}
	return nil
}

// judgeOrder decides about the rows [lo, hi) of episode e if p.order does not count them at row. A
// wrong column index does not matter if frame_index counts the rows. Otherwise the episode is bad.
func (p *groupProof) judgeOrder(ctx context.Context, e int32, lo, hi, row int64) error {
	frames, err := p.tables.integers(ctx, p.tableFile, p.file, p.group, "frame_index")
	if err != nil {
		return err
	}
	if frames == nil || !isConsecutive(frames[lo-p.start:hi-p.start]) {
		_, start := p.tables.fileOf(int(e))
		p.bad[e] = relocated{start, p.orderError(e, row-p.start)}
		return nil
	}
	p.tables.dataset.noticeOnce(warningAt(
		"index-order",
		p.tableFile.name,
		"the column index does not count the rows, but frame_index does",
		"renumber the column: "+robocache.Command("doctor --fix --in-place")+" does",
	))
	return nil
}

// noticeIndex notices a row of a v2 file, which is one episode, with the index of another episode.
// If that episode has a file, it is an error.
func (p *groupProof) noticeIndex(ctx context.Context, e int32, row int64) error {
	d := p.tables.dataset
	stored := p.ids[row-p.start]
	isTwice, err := p.tables.otherFileHas(ctx, stored)
	if err != nil {
		return err
	}
	if isTwice && !d.repair {
		where := robocache.Where{
			"file":    p.tableFile.name,
			"episode": d.episodes.indexAt(int(e)),
		}
		return robocache.At(repeatedIndexError(stored), where)
	}
	id := d.episodes.dataID(int(e))
	d.noticeOnce(robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "episode-index",
		Where:    robocache.Where{"file": p.tableFile.name, "row": row, "episode": id},
		Message: fmt.Sprintf(
			"the column episode_index has %d in the file of episode %d",
			stored,
			id,
		),
		Hint: "renumber the column: " +
			robocache.Command("doctor --fix --in-place") + " does",
	})
	return nil
}

// orderError returns the error about a row of the group that does not follow the row before it.
func (p *groupProof) orderError(e int32, rowInGroup int64) error {
	return robocache.Malformed("lerobot", robocache.Where{
		"file": p.tableFile.name, "row_group": p.group, "column": "index", "row": rowInGroup,
		"episode": p.tables.dataset.episodes.indexAt(int(e)),
	}, "rows are not in order").
		Expected(fmt.Sprint(p.order[rowInGroup-1]+1), fmt.Sprint(p.order[rowInGroup])).
		WithHint("sort the rows by index")
}

// compareFile compares a data file with the episodes table before its first row is delivered,
// unless Open did. A file that differs is searched, which also determines where its episodes are.
// Reading an episode whose length differs from the table is then an error.
func (t *tables) compareFile(ctx context.Context, f *tableFile, file int32) error {
	// a file of v2 is one episode
	if t.compared == nil || t.compared[file].Load() || t.dataset.raw.major == 2 {
		return nil
	}
	eps := t.episodesOf(file)
	fits := t.dataset.fitsGroups(f.pq, eps)
	if !fits && f.pq.Column("episode_index") == nil {
		var rows int64
		for _, e := range eps {
			rows += int64(t.dataset.Len(int(e)))
		}
		fits = rows == f.pq.Rows
	} else if !fits {
		runs, err := t.runsIn(ctx, f, file)
		if err != nil {
			return err
		}
		fits = t.dataset.fitsRuns(runs, eps)
	}
	var err error
	if !fits {
		err = t.searchFile(ctx, f, file)
	}
	if err == nil || err == error(errMoved) {
		// Set after searchFile has recorded the places, because a goroutine that sees true reads
		// them without waiting.
		t.compared[file].Store(true)
	}
	if err != nil {
		return err
	}
	return nil
}

// compareEpisodes compares the data files of episodes that share a video with the table. It returns
// an error if the length of one episode differs from the table, because the first frames of the
// others are then unknown.
func (t *tables) compareEpisodes(ctx context.Context, eps []int32) error {
	if t.compared == nil || t.dataset.raw.major == 2 {
		return nil
	}
	last := int32(-1)
	for _, e := range eps {
		file, _ := t.fileOf(int(e))
		if file != last {
			f, err := t.footer(ctx, file)
			if err != nil {
				return err
			}
			if err := t.compareFile(ctx, f, file); err != nil && err != error(errMoved) {
				return err
			}
			last = file
		}
		if err := t.badEpisode(int(e)); err != nil {
			return err
		}
	}
	return nil
}

// isConsecutive reports whether every number is the previous one plus 1.
func isConsecutive(v []int64) bool {
	for i := 1; i < len(v); i++ {
		if v[i] != v[i-1]+1 {
			return false
		}
	}
	return true
}

// readScalars reads a column of a row group with one number per row, or returns nil if the file
// lacks it.
func readScalars[T any](
	ctx context.Context,
	t *tables,
	f *tableFile,
	file int32,
	group int,
	name string,
	convert func(*pq.Column) ([]T, error),
) (_ []T, err error) {
	leaf := f.pq.Column(name)
	if leaf == nil || leaf.Group() || leaf.MaxRep > 0 {
		return nil, nil
	}
	h, err := t.openFile(ctx, file)
	if err != nil {
		return nil, err
	}
	defer t.handles.Put(h)
	defer robocache.Locate(
		&err,
		robocache.Where{"file": f.name, "row_group": group, "column": name},
	)
	values, err := pq.ReadColumn(
		ctx,
		t.ranged(h, f, file, group),
		f.pq,
		group,
		leaf,
		[]int{},
		f.limits(),
	)
	if err != nil {
		return nil, err
	}
	return convert(values)
}

// integers reads a column of a row group with one integer per row, or returns nil if the file lacks
// it.
func (t *tables) integers(
	ctx context.Context,
	f *tableFile,
	file int32,
	group int,
	name string,
) ([]int64, error) {
	return readScalars(ctx, t, f, file, group, name, pq.Int64s)
}

// searchFile searches a whole file for its episodes and records the place of each. An episode is
// recorded as bad if its rows are not consecutive, or if the table states another length. The other
// episodes can be read. searchFile always returns errMoved, unless reading fails.
func (t *tables) searchFile(ctx context.Context, f *tableFile, file int32) error {
	found := map[int64][]rowRun{}
	hasIDs := f.pq.Column("episode_index") != nil
	allRuns, err := t.runsIn(ctx, f, file)
	if err != nil {
		return err
	}
	if hasIDs {
		if allRuns, err = t.dataset.splitRuns(ctx, f, file, allRuns); err != nil {
			return err
		}
	}
	for _, r := range allRuns {
		found[r.id] = append(found[r.id], r)
	}
	places := map[int32]relocated{}
	for _, e := range t.episodesOf(file) {
		runs := found[t.dataset.episodes.dataID(int(e))]
		_, start := t.fileOf(int(e))
		repeated := t.repeatError(f.name, int(e), found)
		switch {
		case len(runs) == 0 && t.dataset.Len(int(e)) == 0:
		case repeated != nil && !t.dataset.repair:
			places[e] = relocated{start, repeated}
		case len(runs) > 1:
			places[e] = relocated{start, t.scatteredError(f.name, int(e), len(runs))}
		case !hasIDs:
			places[e] = relocated{start, t.lengthError(f.name, int(e), f.pq.Rows)}
		case len(runs) == 0:
			places[e] = relocated{start, t.lengthError(f.name, int(e), 0)}
		case runs[0].rows != int64(t.dataset.Len(int(e))):
			places[e] = relocated{runs[0].start, t.lengthError(f.name, int(e), runs[0].rows)}
		default:
			places[e] = relocated{start: runs[0].start}
		}
	}
	// If no start changes, none is wrong, or another goroutine has reported the file.
	if t.relocate(places) {
		t.reportMoved(f.name)
	}
	return errMoved
}

// runsIn returns the runs of equal episode_index in a data file, or none if it lacks that column.
func (t *tables) runsIn(ctx context.Context, f *tableFile, file int32) (runs []rowRun, err error) {
	for g := range f.pq.Groups {
		ids, err := t.integers(ctx, f, file, g, "episode_index")
		if err != nil {
			return runs, err
		}
		runs = appendRuns(runs, ids, file, f.pq.Groups[g].Start)
	}
	return runs, nil
}

// relocate records the positions of episodes that were found in the data. It reports whether any
// start changed.
func (t *tables) relocate(places map[int32]relocated) (moved bool) {
	t.moving.Lock()
	defer t.moving.Unlock()
	all := map[int32]relocated{}
	if m := t.moved.Load(); m != nil {
		maps.Copy(all, *m)
	}
	for e, r := range places {
		_, oldStart := t.fileOf(int(e))
		moved = moved || r.err == nil && oldStart != r.start
		all[e] = r
	}
	t.moved.Store(&all)
	return moved
}

// reportMoved reports a file whose episodes are at other rows than the table states.
func (t *tables) reportMoved(file string) {
	t.dataset.noticeOnce(warningAt(
		"rows-moved",
		file,
		"episodes are at other rows than dataset_from_index states: they were found by "+
			"episode_index",
		"run "+robocache.Command("doctor --fix --in-place")+": it writes rows and table in order",
	))
}

// scatteredError returns the error about an episode whose rows are not one run.
func (t *tables) scatteredError(file string, episode, runs int) error {
	return robocache.Malformed(
		string(op),
		robocache.Where{
			"file":    file,
			"column":  "episode_index",
			"episode": t.dataset.episodes.indexAt(episode),
		},
		"",
	).Expected("the rows of an episode in one run", fmt.Sprintf("%d runs", runs)).
		WithHint("sort the rows by index")
}

// lengthError returns the error about an episode whose number of rows in a data file differs from
// the table.
func (t *tables) lengthError(file string, episode int, rows int64) error {
	return robocache.Malformed(
		string(op),
		robocache.Where{"file": file, "episode": t.dataset.episodes.indexAt(episode)},
		"",
	).Expected(
		fmt.Sprintf("%d rows, as the episodes table states", t.dataset.Len(episode)),
		fmt.Sprint(rows),
	).WithHint("%s", rowsLostHint())
}

// rowsLostHint returns the hint about rows that are missing in a data file.
func rowsLostHint() string {
	return "fetch the file again, or leave the episode out: " +
		robocache.Command("doctor --fix --in-place --drop-bad") + " does"
}

// missingRow handles a row after the end of its file. It returns an error, which is errMoved if the
// file can be searched for its episodes.
func (t *tables) missingRow(ctx context.Context, f *tableFile, file int32) error {
	if t.dataset.raw.major == 2 {
		return t.lengthError(f.name, int(file), f.pq.Rows)
	}
	return t.searchFile(ctx, f, file)
}
