package lerobot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// The rows of the data files decide how long an episode is and where it lies; the episodes table is
// a claim. Open compares both. A footer tells most: if the row groups of a file are as long as its
// episodes, nothing else is read. Otherwise the column episode_index is read.

// Data files that Open looks at, at most. A larger set is compared when its rows are read, and at
// Open only if its own totals contradict its table.
const (
	maxLocalFiles  = 4096
	maxRemoteFiles = 16
	// maxDoubtfulFiles bounds the remote files of a set whose totals contradict its table.
	maxDoubtfulFiles = 256
)

// rowRun is an unbroken run of rows of one episode in a data file.
type rowRun struct {
	id          int64 // episode_index
	file        int32
	start, rows int64
	isTaken     bool // by an episode
}

// countedFile is what a data file holds.
type countedFile struct {
	name string
	at   fileNumber
	rows int64
	runs []rowRun
	// isSound reports that the file holds what the table says.
	isSound bool
	err     error // why the file cannot be read
}

// recountEpisodes corrects the lengths and places of episodes by the rows of the data files. What
// differs is a finding.
func (d *Dataset) recountEpisodes(ctx context.Context) {
	e := d.eps
	if !d.isRecounted() {
		if len(e.unsure) > 0 {
			guard.Fail(d.unsureError())
		}
		return
	}
	var named map[place]string
	if !robocache.IsRemote(d.Bytes) {
		named = d.listData(ctx)
	}
	files := d.countFiles(ctx, named)
	isSound := len(e.unsure) == 0 && len(e.stored) == 0
	isComplete := true
	for i := range files {
		isSound = isSound && files[i].isSound
		isComplete = isComplete && files[i].err == nil
	}
	if isSound {
		return
	}
	if !isComplete || d.lacksRows(files) {
		if named == nil {
			named = d.listData(ctx)
		}
		for _, o := range d.otherFiles(named) {
			file := int32(len(files))
			files = append(files, d.countFile(ctx, file, o, func() (*tableFile, error) {
				return d.openFooter(ctx, o.name)
			}))
		}
	}
	d.correct(files, isComplete)
}

// isRecounted reports whether Open compares the table with the data files.
func (d *Dataset) isRecounted() bool {
	e := d.eps
	doubtful := len(e.unsure) > 0 || len(e.stored) > 0 ||
		d.raw.totalFrames >= 0 && d.raw.totalFrames != e.from[e.n()]
	switch n := len(e.files); {
	case e.n() == 0:
		return false
	case robocache.IsRemote(d.Bytes):
		return n <= maxRemoteFiles && d.raw.major != 2 || doubtful && n <= maxDoubtfulFiles
	default:
		return n <= maxLocalFiles || doubtful
	}
}

// unsureError is the error about a table whose contradictions cannot be settled at Open.
func (d *Dataset) unsureError() error {
	where := robocache.Where{"file": d.episodesFile()}
	for pos := range d.eps.unsure {
		where["episode"] = d.eps.id(pos)
	}
	return &robocache.Error{
		Class: robocache.ErrMalformed, Op: string(op), Where: where,
		Msg:  "the episodes table contradicts itself, and the data files cannot be compared with it",
		Hint: "copy the dataset to this machine: 'robocache doctor --fix' writes the table by the data",
	}
}

// episodesFile names the episodes table.
func (d *Dataset) episodesFile() string {
	if d.raw.major == 2 {
		return episodesJSONL
	}
	if len(d.paths.episodes) == 1 {
		return d.paths.episodes[0]
	}
	return "meta/episodes"
}

// otherFiles are the data files that the table does not name.
func (d *Dataset) otherFiles(named map[place]string) (others []countedFile) {
	known := map[fileNumber]bool{}
	for _, f := range d.eps.files {
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

// countFiles counts the rows of the files that the table names. named lists the data files, if they
// were listed.
func (d *Dataset) countFiles(ctx context.Context, named map[place]string) []countedFile {
	e := d.eps
	files := make([]countedFile, len(e.files))
	missing := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range files {
		f := countedFile{at: e.files[i], name: named[d.dataPlace(int32(i))]}
		// A missing file is looked for under every name that it may have: a few are enough to see
		// that the set is not whole.
		if len(named) > 0 && f.name == "" {
			if missing++; missing > maxRemoteFiles {
				f.err = missingData(e.files[i])
				files[i] = f
				continue
			}
		}
		count := guard.Func("lerobot recount", func() {
			files[i] = d.countFile(ctx, int32(i), f, func() (*tableFile, error) {
				return d.claimedFooter(ctx, int32(i))
			})
		})
		if len(files) == 1 { // most datasets: it needs no goroutine
			guard.Check(count())
			continue
		}
		g.Go(count)
	}
	guard.Check(g.Wait())
	return files
}

func missingData(f fileNumber) error {
	return &robocache.Error{
		Class: robocache.ErrNotFound, Op: string(op),
		Msg: fmt.Sprintf("data file %d of chunk %d is missing", f.file, f.chunk),
	}
}

// listData lists the data files of v3 by their numbers. It is empty if the store cannot list.
func (d *Dataset) listData(ctx context.Context) map[place]string {
	if d.raw.major == 2 {
		return map[place]string{}
	}
	list, _, err := store.Files(ctx, d.Bytes, "data", func(name string) bool {
		return fileName.MatchString(name[1+lastSlash(name):])
	})
	if errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrNotFound) {
		return map[place]string{}
	}
	guard.Check(robocache.At(err, robocache.Where{"file": "data"}))
	return index(list, d.raw)
}

func lastSlash(name string) int {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return i
		}
	}
	return -1
}

// claimedFooter reads the footer of a data file that the table names. Small files of v2, which
// tables.open reads whole, are not read beyond it.
func (d *Dataset) claimedFooter(ctx context.Context, file int32) (f *tableFile, err error) {
	if d.raw.major != 2 || robocache.IsRemote(d.Bytes) {
		return d.tab.footer(ctx, file)
	}
	err = guard.Try(func() {
		d.paths.try(ctx, d.paths.data, d.dataPlace(file), func(name string) (err error) {
			f, err = d.openFooter(ctx, name)
			return err
		})
	})
	return f, err
}

// openFooter reads the footer of a data file.
func (d *Dataset) openFooter(ctx context.Context, name string) (f *tableFile, err error) {
	err = guard.Try(func() {
		r := guard.Must(d.Bytes.Open(ctx, name))
		defer r.Close()
		f = &tableFile{d: d, name: name, pq: guard.Must(pq.Open(ctx, r, nil))}
	})
	return f, robocache.At(err, robocache.Where{"file": name})
}

// countFile counts the rows of one data file. It fails only by what another try may not meet.
func (d *Dataset) countFile(
	ctx context.Context, file int32, c countedFile, open func() (*tableFile, error),
) countedFile {
	err := guard.Try(func() {
		f := guard.Must(open())
		c.name, c.rows = f.name, f.pq.Rows
		claimed := file < int32(len(d.eps.files))
		var eps []int32
		if claimed {
			eps = d.tab.episodesOf(file)
		}
		switch {
		case d.raw.major == 2:
			c.runs = []rowRun{{id: d.eps.dataID(int(eps[0])), file: file, rows: c.rows}}
		case claimed && d.fitsGroups(f.pq, eps):
			for _, e := range eps {
				c.runs = append(c.runs, d.claim(e))
			}
		case f.pq.Column("episode_index") == nil:
			guard.Fail(malformed(robocache.Where{"file": f.name}, "a column episode_index", "none"))
		case claimed:
			c.runs = d.tab.runsIn(ctx, f, file)
		default:
			c.runs = d.runsOfOther(ctx, f, file)
		}
		c.isSound = claimed && d.fitsRuns(c.runs, eps)
	})
	if err != nil && !robocache.Bad(err) {
		guard.Fail(err)
	}
	c.err = err
	return c
}

// claim is the run that the table gives to an episode.
func (d *Dataset) claim(episode int32) rowRun {
	e := d.eps
	return rowRun{
		id: e.dataID(int(episode)), file: e.file[episode], start: e.start[episode],
		rows: int64(e.length[episode]),
	}
}

// fitsGroups reports whether a file has a row group for each of its episodes, as the recorder
// writes it. Whose rows they are is proven when they are read.
func (d *Dataset) fitsGroups(f *pq.File, eps []int32) bool {
	if len(f.Groups) != len(eps) {
		return false
	}
	for i, g := range f.Groups {
		if c := d.claim(eps[i]); c.start != g.Start || c.rows != g.Rows {
			return false
		}
	}
	return true
}

// fitsRuns reports whether every episode of a file is the run that the table gives to it, and no
// row is left.
func (d *Dataset) fitsRuns(runs []rowRun, eps []int32) bool {
	at := 0
	for _, e := range eps {
		c := d.claim(e)
		if c.rows == 0 {
			continue
		}
		if at == len(runs) || runs[at] != c {
			return false
		}
		at++
	}
	return at == len(runs)
}

// runsOfOther reads the runs of a data file that the table does not name.
func (d *Dataset) runsOfOther(ctx context.Context, f *tableFile, file int32) (runs []rowRun) {
	r := guard.Must(d.Bytes.Open(ctx, f.name))
	defer r.Close()
	leaf := f.pq.Column("episode_index")
	for g := range f.pq.Groups {
		col := guard.Must(pq.ReadColumn(ctx, r, f.pq, g, leaf, []int{}, f.limits()))
		runs = appendRuns(runs, guard.Must(pq.Int64s(col)), file, f.pq.Groups[g].Start)
	}
	return runs
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

// lacksRows reports whether some episode has no rows in the files that were counted.
func (d *Dataset) lacksRows(files []countedFile) bool {
	have := map[int64]int{}
	for i := range files {
		for _, r := range files[i].runs {
			have[r.id]++
		}
	}
	for pos := range d.eps.n() {
		id := d.eps.dataID(pos)
		if have[id]--; have[id] < 0 && (d.eps.length[pos] > 0 || d.eps.unsure[pos]) {
			return true
		}
	}
	return false
}

// correct gives every episode the rows that the files hold of it.
func (d *Dataset) correct(files []countedFile, isComplete bool) {
	e := d.eps
	runs := map[int64][]*rowRun{}
	var rows int64
	for i := range files {
		rows += files[i].rows
		for k := range files[i].runs {
			r := &files[i].runs[k]
			runs[r.id] = append(runs[r.id], r)
		}
	}
	isShort := !isComplete || d.raw.totalFrames < 0 || rows < d.raw.totalFrames
	claimed := make([]int64, len(files))
	for pos := range e.n() {
		claimed[e.file[pos]] += int64(e.length[pos])
	}
	places := map[int32]relocated{}
	corrected := slices.Clone(e.length)
	file, start := slices.Clone(e.file), slices.Clone(e.start)
	moved := map[int32]bool{} // files in which episodes lie at other rows
	for pos := range e.n() {
		own := &files[e.file[pos]]
		r, n := d.pickRun(pos, runs[e.dataID(pos)])
		switch {
		case n > 1:
			places[int32(pos)] = relocated{e.start[pos], d.tab.scatteredError(own.name, pos, n)}
			continue
		case r == nil && own.err != nil || r == nil && e.length[pos] == 0 && !e.unsure[pos]:
			continue // reading says what is wrong with the file
		case r == nil:
			places[int32(pos)] = relocated{e.start[pos], d.tab.lengthError(own.name, pos, 0)}
			d.reportLost(pos, own.name, 0)
			continue
		}
		r.isTaken = true
		// Rows are lost if the set has fewer than its totals say, and the file fewer than its
		// episodes. Otherwise the table is wrong.
		isLost := isShort && !e.unsure[pos] && files[r.file].rows < claimed[r.file]
		if r.rows < int64(e.length[pos]) && isLost {
			name := files[r.file].name
			places[int32(pos)] = relocated{r.start, d.tab.lengthError(name, pos, r.rows)}
			d.reportLost(pos, name, r.rows)
		} else if n, ok := rowCount(r.rows); ok && n != e.length[pos] {
			d.reportLength(pos, files[r.file].name, n)
			corrected[pos] = n
		}
		if r.file != e.file[pos] {
			d.reportStale(pos, own, files[r.file].name)
		} else if r.start != e.start[pos] {
			moved[r.file] = true
		}
		file[pos], start[pos] = r.file, r.start
	}
	// Wrong lengths, wrong files and lost rows move the episodes behind: that is one fault.
	isOrder := len(places) == 0 && slices.Equal(corrected, e.length) && slices.Equal(file, e.file)
	for f := range files {
		if moved[int32(f)] && isOrder {
			d.tab.reportMoved(files[f].name)
		}
	}
	e.length = corrected
	e.count()
	d.About.Frames = e.from[e.n()]
	d.useFiles(files, file, start, places)
}

// useFiles makes files, of which file names one for each episode, those of the table.
func (d *Dataset) useFiles(
	files []countedFile, file []int32, start []int64, places map[int32]relocated,
) {
	e := d.eps
	e.start = start
	if d.raw.major != 2 {
		chunk, number := make([]int64, e.n()), make([]int64, e.n())
		for pos, f := range file {
			chunk[pos], number[pos] = files[f].at.chunk, files[f].at.file
		}
		var err error
		e.file, e.files, err = numberFiles(chunk, number, e.n())
		guard.Check(err)
	}
	// Files have other numbers now, and episodes other places in them.
	budget := d.tab.cache.Stats().Budget
	d.tab.close()
	d.tab = newTables(d, budget)
	d.tab.relocate(places)
}

// pickRun chooses the run of an episode among those of its index. n is their number if the choice
// is ambiguous.
func (d *Dataset) pickRun(pos int, runs []*rowRun) (best *rowRun, n int) {
	claim := d.claim(int32(pos))
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
	left := 0
	for _, r := range runs {
		if r.isTaken {
			continue
		}
		if left++; best == nil || score(r) > score(best) {
			best = r
		}
	}
	if left > 1 && len(d.eps.stored) == 0 && *best != claim {
		return nil, left
	}
	return best, 0
}

// maxListed bounds the findings of one kind that Open lists; the last one counts the others.
const maxListed = 20

// report adds a finding of Open, or counts it in the last of its kind.
func (d *Dataset) report(f robocache.Finding) {
	listed, last := 0, 0
	for i := range d.About.Findings {
		if d.About.Findings[i].Code == f.Code {
			listed, last = listed+1, i
		}
	}
	if f.Count = 1; listed >= maxListed {
		d.About.Findings[last].Count++
		return
	}
	d.find(f)
}

const fixTableHint = "run 'robocache doctor --fix': it writes the table by the data"

func (d *Dataset) reportLength(pos int, file string, rows int32) {
	says := fmt.Sprintf("says %d rows", d.eps.length[pos])
	switch {
	case d.eps.unsure[pos] && d.eps.length[pos] == 0:
		says = "does not say how many rows the episode has"
	case d.eps.unsure[pos]:
		says += ", its dataset_from_index and dataset_to_index say another number"
	}
	d.report(robocache.Finding{
		Severity: robocache.SeverityError, Code: "episode-length",
		Where:   robocache.Where{"file": d.episodesFile(), "episode": d.eps.id(pos)},
		Message: fmt.Sprintf("the table %s; %s has %d rows, which are read", says, file, rows),
		Hint:    fixTableHint,
	})
}

func (d *Dataset) reportLost(pos int, file string, rows int64) {
	d.report(robocache.Finding{
		Severity: robocache.SeverityError, Code: "rows-missing",
		Where: robocache.Where{"file": file, "episode": d.eps.id(pos)},
		Message: fmt.Sprintf("the file has %d rows of the episode, the episodes table says %d: "+
			"rows are lost", rows, d.eps.length[pos]),
		Hint: rowsLostHint,
	})
}

func (d *Dataset) reportStale(pos int, claimed *countedFile, file string) {
	name := claimed.name
	if name == "" {
		name = fmt.Sprintf("file %d of chunk %d", claimed.at.file, claimed.at.chunk)
	}
	d.report(robocache.Finding{
		Severity: robocache.SeverityWarning, Code: "stale-pointer",
		Where: robocache.Where{
			"file": d.episodesFile(), "column": "data/file_index", "episode": d.eps.id(pos),
		},
		Message: fmt.Sprintf("the table names %s, the rows are in %s", name, file),
		Hint:    fixTableHint,
	})
}
