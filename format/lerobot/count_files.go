package lerobot

import (
	"context"
	"errors"
	"path"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// rowRun is a run of consecutive rows of one episode in a data file.
type rowRun struct {
	id          int64 // episode_index
	file        int32
	start, rows int64
	isTaken     bool // assigned to an episode
	// isWhole reports that the run begins with the first frame of an episode (splitRuns). Two whole
	// runs with one id are two episodes.
	isWhole bool
}

// countedFile describes the content of a data file.
type countedFile struct {
	name string
	at   fileNumber
	rows int64
	runs []rowRun
	// isSound reports whether the content agrees with the table.
	isSound bool
	err     error // why the file cannot be read
	// storedID is the episode_index of all rows of a v2 file, or -1.
	storedID int64
}

// otherFiles returns the data files that the table does not name.
func (d *Dataset) otherFiles(named map[place]string) (others []countedFile) {
	known := map[fileNumber]bool{}
	for _, f := range d.episodes.files {
		known[f] = true
	}
	for pl, name := range named {
		if at := (fileNumber{pl.chunk, pl.file}); name != "" && !known[at] {
			others = append(others, countedFile{name: name, at: at})
		}
	}
	slices.SortFunc(others, func(a, b countedFile) int { return compareFiles(a.at, b.at) })
	return others
}

// countFiles counts the rows of the files that the table names. named maps the places of the data
// files to their names. It is empty if the files were not listed.
func (d *Dataset) countFiles(ctx context.Context, named map[place]string) ([]countedFile, error) {
	e := d.episodes
	files := make([]countedFile, len(e.files))
	missing := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range files {
		f := countedFile{at: e.files[i], name: named[d.dataPlace(int32(i))], storedID: -1}
		// A missing file is tried under several names. A few missing files already show that the
		// dataset is incomplete, so the others are not tried.
		if len(named) > 0 && f.name == "" {
			missing++
			if missing > maxRemoteFiles {
				f.err = missingData(e.files[i])
				files[i] = f
				continue
			}
		}
		count := crash.Func("lerobot recount", func() error {
			open := func() (*tableFile, error) { return d.namedFileFooter(ctx, int32(i)) }
			counted, err := d.countFile(ctx, int32(i), f, open)
			files[i] = counted
			return err
		})
		if len(files) == 1 { // most datasets have one file and need no goroutine
			if err := count(); err != nil {
				return nil, err
			}
			continue
		}
		g.Go(count)
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return files, nil
}

// missingData returns the error about a data file that does not exist.
func missingData(f fileNumber) error {
	return robocache.NotFound(
		string(op),
		nil,
		"data file %d of chunk %d is missing",
		f.file,
		f.chunk,
	)
}

// listData lists the data files of v3 by their numbers. It is empty if the store cannot list.
func (d *Dataset) listData(ctx context.Context) (map[place]string, error) {
	if d.raw.major == 2 {
		return map[place]string{}, nil
	}
	list, _, err := store.Files(ctx, d.Bytes, "data", func(name string) bool {
		return fileName.MatchString(path.Base(name))
	})
	if errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrNotFound) {
		return map[place]string{}, nil
	}
	if err := robocache.At(err, robocache.Where{"file": "data"}); err != nil {
		return nil, err
	}
	return indexTree(list, d.raw), nil
}

// namedFileFooter reads the footer of a data file that the table names. Unlike tables.openFile, it
// does not read small v2 files as a whole.
func (d *Dataset) namedFileFooter(ctx context.Context, file int32) (f *tableFile, err error) {
	if d.raw.major != 2 || robocache.IsRemote(d.Bytes) {
		return d.tables.footer(ctx, file)
	}
	open := func(name string) (err error) {
		f, err = d.openFooter(ctx, name)
		return err
	}
	_, err = d.paths.tryPaths(ctx, d.paths.data, d.dataPlace(file), open)
	return f, err
}

// openFooter reads the footer of a data file.
func (d *Dataset) openFooter(ctx context.Context, name string) (f *tableFile, err error) {
	defer robocache.LocateIn(&err, "file", name)
	r, err := d.Bytes.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	footer, err := pq.Open(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return &tableFile{d: d, name: name, pq: footer}, nil
}

// countFile counts the rows of one data file. An error of the data is stored in the result. Other
// errors, such as a lost connection, are returned.
func (d *Dataset) countFile(
	ctx context.Context, file int32, c countedFile, open func() (*tableFile, error),
) (countedFile, error) {
	err := d.countRuns(ctx, file, &c, open)
	if err != nil && !robocache.Bad(err) {
		return countedFile{}, err
	}
	c.err = err
	return c, nil
}

// countRuns sets the name, the rows and the runs of a counted file. It reads episode_index only if
// the footer does not show the runs.
func (d *Dataset) countRuns(
	ctx context.Context, file int32, c *countedFile, open func() (*tableFile, error),
) error {
	f, err := open()
	if err != nil {
		return err
	}
	c.name = f.name
	c.rows = f.pq.Rows
	isListed := file < int32(len(d.episodes.files))
	var eps []int32 // the episodes that the table lists in the file
	if isListed {
		eps = d.tables.episodesOf(file)
	}
	switch {
	case d.raw.major == 2:
		c.runs = []rowRun{{id: d.episodes.dataID(int(eps[0])), file: file, rows: c.rows}}
		if c.storedID, err = d.storedIndex(ctx, f, file); err != nil {
			return err
		}
		if c.runs, err = d.fitOrSplit(ctx, f, file, c.runs, eps); err != nil {
			return err
		}
	case isListed && d.fitsGroups(f.pq, eps): // the footer confirms the table
		for _, e := range eps {
			c.runs = append(c.runs, d.claimOf(e))
		}
	case f.pq.Column("episode_index") == nil:
		return malformed(robocache.Where{"file": f.name}, "a column episode_index", "none")
	case isListed:
		runs, err := d.tables.runsIn(ctx, f, file)
		if err != nil {
			return err
		}
		if runs, err = d.fitOrSplit(ctx, f, file, runs, eps); err != nil {
			return err
		}
		c.runs = runs
	default: // the table does not name the file
		runs, err := d.readUnlistedFileRuns(ctx, f, file)
		if err != nil {
			return err
		}
		c.runs = runs
	}
	c.isSound = isListed && d.fitsRuns(c.runs, eps)
	for k := range c.runs {
		c.runs[k].isWhole = c.runs[k].isWhole || c.isSound
	}
	return nil
}

// fitOrSplit returns the runs if they are the episodes of the table, else splitRuns of them.
func (d *Dataset) fitOrSplit(
	ctx context.Context, f *tableFile, file int32, runs []rowRun, eps []int32,
) ([]rowRun, error) {
	if d.fitsRuns(runs, eps) {
		return runs, nil
	}
	return d.splitRuns(ctx, f, file, runs)
}

// sameRows reports whether two runs are the same rows of the same episode.
func (r rowRun) sameRows(o rowRun) bool {
	return r.id == o.id && r.file == o.file && r.start == o.start && r.rows == o.rows
}

// claimOf returns the run of an episode according to the table.
func (d *Dataset) claimOf(episode int32) rowRun {
	e := d.episodes
	return rowRun{
		id: e.dataID(int(episode)), file: e.file[episode], start: e.start[episode],
		rows: int64(e.length[episode]),
	}
}

// fitsGroups reports whether a file has one row group for each of its episodes, as lerobot's
// recorder writes it, with column statistics that confirm the episode.
func (d *Dataset) fitsGroups(f *pq.File, eps []int32) bool {
	if len(f.Groups) != len(eps) {
		return false
	}
	for i, g := range f.Groups {
		claim := d.claimOf(eps[i])
		if claim.start != g.Start || claim.rows != g.Rows || !holdsOnly(f, i, claim.id) {
			return false
		}
	}
	return true
}

// fitsRuns reports whether the runs of a file are exactly the episodes that the table places there.
func (d *Dataset) fitsRuns(runs []rowRun, eps []int32) bool {
	next := 0
	for _, e := range eps {
		claim := d.claimOf(e)
		if claim.rows == 0 { // an empty episode has no run
			continue
		}
		if next == len(runs) || !runs[next].sameRows(claim) {
			return false
		}
		next++
	}
	return next == len(runs)
}

// readUnlistedFileRuns reads the runs of a data file that the table does not name.
func (d *Dataset) readUnlistedFileRuns(
	ctx context.Context,
	f *tableFile,
	file int32,
) (runs []rowRun, err error) {
	r, err := d.Bytes.Open(ctx, f.name)
	if err != nil {
		return runs, err
	}
	defer r.Close()
	leaf := f.pq.Column("episode_index")
	for g := range f.pq.Groups {
		col, err := pq.ReadColumn(ctx, r, f.pq, g, leaf, []int{}, f.limits())
		if err != nil {
			return runs, err
		}
		int64s, err := pq.Int64s(col)
		if err != nil {
			return runs, err
		}
		runs = appendRuns(runs, int64s, file, f.pq.Groups[g].Start)
	}
	return runs, nil
}

// appendRuns appends the runs of ids, which begin at row start of a file.
func appendRuns(runs []rowRun, ids []int64, file int32, start int64) []rowRun {
	for i, id := range ids {
		if n := len(runs); n > 0 && runs[n-1].id == id {
			runs[n-1].rows++
		} else {
			runs = append(runs, rowRun{id: id, file: file, start: start + int64(i), rows: 1})
		}
	}
	return runs
}
