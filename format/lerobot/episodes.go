package lerobot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// episodes is the episodes table, sorted by episode_index, with one slice per column. Its files are
// numbered from 0.
type episodes struct {
	index   []int64 // episode_index; nil if it equals the position
	length  []int32
	from    []int64 // index of the first row in the dataset, counted from the lengths; n+1 values
	file    []int32 // positions in files; in v2 each episode has its own file
	start   []int64 // row of the episode's first row in its data file
	files   []fileNumber
	cameras map[string]*camColumns
	// unsure holds, by position, the faults of episodes whose length or data file is missing or
	// contradictory in the table. Only the data can determine them. It is nil if there are none.
	unsure map[int]tableFault
	// stored holds, by position, the episode_index in the data of episodes that were renumbered
	// because their index occurred twice (OpenOptions.Repair).
	stored map[int]int64
	rows   int // rows of the table, including duplicates
	// unlisted is the number of episodes at the end that are in the data but not in the table
	// (OpenOptions.Repair).
	unlisted int
	// hasFiles reports whether the table has a column of data files, or needs none.
	hasFiles bool
	// nextRow is the largest dataset_to_index.
	nextRow int64
}

// tableFault describes a value of the episodes table that cannot be correct.
type tableFault struct {
	column, message string
}

// fileNumber identifies a file by chunk_index and file_index. In v2 it is the chunk of an episode
// and its episode_index.
type fileNumber struct{ chunk, file int64 }

// camColumns holds the columns of one camera.
type camColumns struct {
	file     []int32
	files    []fileNumber
	from, to []float64 // nil if the columns are missing; v2 has none
}

// setOwnFiles gives every episode its own file, as in v2.
func (e *episodes) setOwnFiles(perChunk int64) {
	n := e.count()
	e.file, e.start, e.files = make([]int32, n), make([]int64, n), make([]fileNumber, n)
	for i := range e.file {
		id := e.indexAt(i)
		e.file[i] = int32(i)
		e.files[i] = fileNumber{id / perChunk, id}
	}
}

// count returns the number of episodes.
func (e *episodes) count() int { return len(e.length) }

// indexAt returns the episode_index of the episode at a position.
func (e *episodes) indexAt(pos int) int64 {
	if e.index == nil {
		return int64(pos)
	}
	return e.index[pos]
}

// dataID returns the episode_index that the rows of an episode have in the data files.
func (e *episodes) dataID(pos int) int64 {
	if id, ok := e.stored[pos]; ok {
		return id
	}
	return e.indexAt(pos)
}

// isListed reports whether the table has a row of an episode.
func (e *episodes) isListed(pos int) bool { return pos < e.count()-e.unlisted }

// isUnsure reports whether only the data can tell the length or the file of an episode.
func (e *episodes) isUnsure(pos int) bool {
	_, ok := e.unsure[pos]
	return ok
}

// position returns the position of the episode with an episode_index, or -1.
func (e *episodes) position(id int64) int {
	if e.index == nil {
		if id < 0 || id >= int64(e.count()) {
			return -1
		}
		return int(id)
	}
	if i, ok := slices.BinarySearch(e.index, id); ok {
		return i
	}
	return -1
}

// sumLengths sets e.from to the sums of the lengths, and returns the number of rows.
func (e *episodes) sumLengths() int64 {
	e.from = make([]int64, e.count()+1)
	for i, n := range e.length {
		e.from[i+1] = e.from[i] + int64(n)
	}
	return e.from[e.count()]
}

// sortEpisodes returns the permutation that sorts rows of the table by episode_index, or nil if
// they are in order.
//
// An index that occurs twice is an error unless repair is set. With repair, a row that repeats an
// earlier one (same reports this) is left out, and any other row gets a new index above all others.
// stored maps the position of such a row in perm to the row's original index, which its data has.
func sortEpisodes(
	ids []int64, repair bool, same func(a, b int) bool,
) (perm []int32, stored map[int]int64, err error) {
	perm = reader.InOrder(ids)
	sorted := reader.Permute(ids, perm)
	isTwice := func(i int) bool { return i > 0 && sorted[i] == sorted[i-1] }
	firstTwice := 0
	for firstTwice < len(sorted) && !isTwice(firstTwice) {
		firstTwice++
	}
	if firstTwice == len(sorted) {
		return perm, nil, nil
	}
	if !repair {
		return nil, nil, repeatedIndexError(sorted[firstTwice])
	}
	var renumbered []int32
	kept := make([]int32, 0, len(ids))
	tableRow := func(i int) int32 { // the row of the table at position i of sorted
		if perm == nil {
			return int32(i)
		}
		return perm[i]
	}
	firstOfIndex := 0 // in sorted, the first row of the current index
	for i := range sorted {
		if !isTwice(i) {
			firstOfIndex = i
			kept = append(kept, tableRow(i))
		} else if !same(int(tableRow(firstOfIndex)), int(tableRow(i))) {
			renumbered = append(renumbered, tableRow(i))
		}
	}
	next := sorted[len(sorted)-1] + 1
	stored = map[int]int64{}
	for _, r := range renumbered {
		stored[len(kept)] = ids[r]
		ids[r] = next
		kept = append(kept, r)
		next++
	}
	return kept, stored, nil
}

// repeatedIndexError returns the error about an episode_index of two rows of the table.
func repeatedIndexError(index int64) error {
	return robocache.Misuse(
		string(op),
		robocache.Where{"column": "episode_index"},
		"episode_index %d occurs twice",
		index,
	).WithHint(
		"run %s: it gives each episode a unique index",
		robocache.Command("doctor --fix --in-place"),
	)
}

// setIndex stores the episode_index values unless they equal the positions.
func (e *episodes) setIndex(ids []int64) {
	for i, id := range ids {
		if id != int64(i) {
			e.index = ids
			return
		}
	}
}

// setUnsure marks rows of the table as unsure. perm is the permutation that sorts them.
func (e *episodes) setUnsure(rows map[int]tableFault, perm []int32) {
	if len(rows) == 0 {
		return
	}
	e.unsure = map[int]tableFault{}
	for row, fault := range rows {
		pos := row
		if perm != nil {
			pos = slices.Index(perm, int32(row))
		}
		if pos >= 0 {
			e.unsure[pos] = fault
		}
	}
}

// rowCount converts a number of rows. It returns false if n cannot be one.
func rowCount(n int64) (int32, bool) { return int32(n), n >= 0 && n <= math.MaxInt32 }

// episodeTasks holds the task texts of every episode, as numbers into texts.
type episodeTasks struct {
	ranges  [][2]int32 // range of each episode in ids
	ids     []int32
	texts   []string
	numbers map[string]int32 // used while the table is built
}

// of returns the task texts of an episode.
func (t *episodeTasks) of(pos int) []string {
	if pos >= len(t.ranges) {
		return nil
	}
	ids := t.ids[t.ranges[pos][0]:t.ranges[pos][1]]
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = t.texts[id]
	}
	return out
}

// addEpisode appends the tasks of the next episode.
func (t *episodeTasks) addEpisode(tasks []string) {
	from := int32(len(t.ids))
	for _, s := range tasks {
		id, ok := t.numbers[s]
		if !ok {
			if t.numbers == nil {
				t.numbers = map[string]int32{}
			}
			id = int32(len(t.texts))
			t.texts = append(t.texts, s)
			t.numbers[s] = id
		}
		t.ids = append(t.ids, id)
	}
	t.ranges = append(t.ranges, [2]int32{from, int32(len(t.ids))})
}

// sortedBy returns the table with its episodes in the order of perm.
func (t *episodeTasks) sortedBy(perm []int32) *episodeTasks {
	return &episodeTasks{ranges: reader.Permute(t.ranges, perm), ids: t.ids, texts: t.texts}
}

// Episode returns the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (ep robocache.Episode, err error) {
	defer crash.Recover("lerobot episode", &err)
	if err := d.checkEpisode(episode); err != nil {
		return ep, err
	}
	defer robocache.LocateIn(&err, "episode", d.episodes.indexAt(episode))
	t, err := d.episodeTasks(ctx)
	if err != nil {
		return ep, err
	}
	return robocache.Episode{
		Position: episode,
		Index:    d.episodes.indexAt(episode),
		Length:   d.Len(episode),
		Tasks:    t.of(episode),
	}, nil
}

// episodeTasks reads the tasks column at the first call. No other part of the episodes table needs
// memory for texts.
func (d *Dataset) episodeTasks(ctx context.Context) (*episodeTasks, error) {
	t := d.taskTable.Load()
	if t == nil {
		var err error
		if t, err = d.readEpisodeTasksV3(ctx); err != nil {
			return nil, err
		}
		d.taskTable.Store(t)
	}
	return t, nil
}

// eachLine calls each for every line of b that is not blank. b is the content of the file name,
// which errors name with the line.
func eachLine(name string, b []byte, each func(line int, b []byte) error) error {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if isLFSPointer(b) {
		return lfsError(name)
	}
	for n := 1; len(b) > 0; n++ {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if err := each(n, line); err != nil {
			var e *robocache.Error
			if !errors.As(err, &e) {
				err = robocache.Malformed("lerobot", nil, "%s", err.Error())
			}
			return robocache.At(err, robocache.Where{"file": name, "line": n})
		}
	}
	return nil
}

// episodesJSONL is the episodes table of v2.
const episodesJSONL = "meta/episodes.jsonl"

// episodeLine is a line of episodesJSONL.
type episodeLine struct {
	Index  *int64          `json:"episode_index"`
	Length *int64          `json:"length"`
	Tasks  json.RawMessage `json:"tasks"`
}

// statedLength returns the length of the episode. If the line states no valid length, it returns 0,
// and fault says why.
func (l *episodeLine) statedLength() (length int32, fault string) {
	if l.Length == nil {
		return 0, "length is missing"
	}
	length, ok := rowCount(*l.Length)
	if !ok {
		return 0, fmt.Sprintf("length is %d", *l.Length)
	}
	return length, ""
}

// statedTasks returns the tasks of the episode: a list of texts, or a single text.
func (l *episodeLine) statedTasks() ([]string, error) {
	var list []string
	if len(l.Tasks) == 0 || string(l.Tasks) == "null" || json.Unmarshal(l.Tasks, &list) == nil {
		return list, nil
	}
	var single string
	if json.Unmarshal(l.Tasks, &single) != nil {
		return nil, fmt.Errorf("tasks is not a list of texts")
	}
	return []string{single}, nil
}

// readEpisodesV2 reads meta/episodes.jsonl.
func (d *Dataset) readEpisodesV2(ctx context.Context) (err error) {
	defer robocache.LocateIn(&err, "file", episodesJSONL)
	text, err := store.ReadFile(ctx, d.Bytes, episodesJSONL, maxLines)
	if err != nil {
		return err
	}
	e, tasks, perm, err := parseEpisodesV2(text, d.repair)
	if err != nil {
		return err
	}
	if e.count() == 0 && d.raw.totalEpisodes > 0 {
		return d.noEpisodes(episodesJSONL)
	}
	e.setOwnFiles(d.raw.chunksSize)
	d.taskTable.Store(tasks)
	e.sumLengths()
	d.useTable(
		e,
		perm,
		episodesJSONL,
		"episodes are not in the order of episode_index",
		"sort the lines",
	)
	return nil
}

// noEpisodes returns the error about a table without rows although info.json states some.
func (d *Dataset) noEpisodes(file string) error {
	return robocache.Malformed("lerobot", robocache.Where{"file": file}, "").
		Expected(fmt.Sprintf("%d episodes, as info.json states", d.raw.totalEpisodes), "none").
		WithHint("fetch it again")
}

// useTable makes e the table of the dataset. perm is the permutation that sorted its rows, or nil
// if they were in order. unsorted and hint are the texts of the finding about rows out of order.
func (d *Dataset) useTable(e *episodes, perm []int32, file, unsorted, hint string) {
	switch {
	case e.count() < e.rows || len(e.stored) > 0:
		d.reportRepeatedIndex(e, perm, file)
	case perm != nil:
		d.addFinding(warningAt("episodes-unsorted", file, unsorted, hint))
	}
	d.episodes, d.paths.permutation = e, perm
	d.About.Episodes = e.count()
	d.About.Frames = e.from[e.count()]
	d.About.NumberEpisodes(e.index)
}

// reportRepeatedIndex adds the finding about an episode_index that occurs twice.
func (d *Dataset) reportRepeatedIndex(e *episodes, perm []int32, file string) {
	where := robocache.Where{"file": file, "column": "episode_index"}
	for _, id := range e.stored {
		where["episode"] = id
	}
	d.reportRepeat(where, int64(e.rows-e.count()+len(e.stored)))
}

// parseEpisodesV2 parses meta/episodes.jsonl. It returns the table with its tasks, and the
// permutation that sorted its rows.
func parseEpisodesV2(
	b []byte, repair bool,
) (e *episodes, tasks *episodeTasks, perm []int32, err error) {
	e = &episodes{hasFiles: true}
	tasks = &episodeTasks{}
	var ids []int64
	unsure := map[int]tableFault{}
	err = eachLine(episodesJSONL, b, func(_ int, b []byte) error {
		var l episodeLine
		if err := unmarshalLine(b, &l); err != nil {
			return err
		}
		if l.Index == nil {
			return fmt.Errorf("episode_index is missing")
		}
		if *l.Index < 0 {
			return fmt.Errorf("episode_index is %d", *l.Index)
		}
		length, fault := l.statedLength()
		if fault != "" { // The rows of the data file are counted instead.
			unsure[len(ids)] = tableFault{"length", fault}
		}
		texts, err := l.statedTasks()
		if err != nil {
			return err
		}
		tasks.addEpisode(texts)
		ids = append(ids, *l.Index)
		e.length = append(e.length, length)
		return nil
	})
	e.rows = len(ids)
	if err == nil {
		// In v2 the index determines the file, so two lines with one index have the same file.
		perm, e.stored, err = sortEpisodes(ids, repair, func(int, int) bool { return true })
		err = robocache.At(err, robocache.Where{"file": episodesJSONL})
	}
	if err != nil {
		return nil, nil, nil, err
	}
	e.setUnsure(unsure, perm)
	e.setIndex(reader.Permute(ids, perm))
	e.length = reader.Permute(e.length, perm)
	return e, tasks.sortedBy(perm), perm, nil
}
