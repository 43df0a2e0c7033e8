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

// episodes is the episodes table: a flat slice a column, sorted by episode_index. Files are
// numbered within it.
type episodes struct {
	index  []int64 // episode_index; nil where it is the position
	length []int32
	from   []int64 // global row of the first row, by our count; n+1
	file   []int32 // into files; in v2 the file of an episode is its own
	start  []int64 // row of the episode's first row inside its data file
	files  []fileNumber
	cams   map[string]*camColumns
	// unsure holds, by position, what is wrong with episodes whose length or data file the table
	// contradicts or lacks: only the data can tell. nil means none.
	unsure map[int]tableFault
	// stored holds, by position, the episode_index that the data has of episodes that were
	// renumbered because their index occurred before (OpenOptions.Repair).
	stored map[int]int64
	rows   int // rows of the table, duplicates included
	// unlisted is the number of episodes at the end that only the data has (OpenOptions.Repair).
	unlisted int
	// hasFiles reports that the table has a column of data files, or needs none.
	hasFiles bool
	// nextRow is the largest dataset_to_index.
	nextRow int64
}

// tableFault is a value of the episodes table that cannot be right.
type tableFault struct {
	column, message string
}

// fileNumber is the pair that names a file: chunk_index and file_index, in v2 the chunk of an
// episode and its episode_index.
type fileNumber struct{ chunk, file int64 }

// camColumns are the columns of one camera.
type camColumns struct {
	file     []int32
	files    []fileNumber
	from, to []float64 // nil where the columns are missing: v2 has none
}

// ownFiles gives every episode a file of its own, as v2 does.
func (e *episodes) ownFiles(perChunk int64) {
	e.file, e.start, e.files = make([]int32, e.n()), make([]int64, e.n()), make([]fileNumber, e.n())
	for i := range e.file {
		id := e.id(i)
		e.file[i], e.files[i] = int32(i), fileNumber{id / perChunk, id}
	}
}

func (e *episodes) n() int { return len(e.length) }

func (e *episodes) id(pos int) int64 {
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
	return e.id(pos)
}

// isListed reports whether the table has a row of an episode.
func (e *episodes) isListed(pos int) bool { return pos < e.n()-e.unlisted }

// isUnsure reports whether only the data can tell the length or the file of an episode.
func (e *episodes) isUnsure(pos int) bool {
	_, ok := e.unsure[pos]
	return ok
}

// position finds an episode by episode_index; -1 where it is not there.
func (e *episodes) position(id int64) int {
	if e.index == nil {
		if id < 0 || id >= int64(e.n()) {
			return -1
		}
		return int(id)
	}
	if i, ok := slices.BinarySearch(e.index, id); ok {
		return i
	}
	return -1
}

// count fills from.
func (e *episodes) count() int64 {
	e.from = make([]int64, e.n()+1)
	for i, n := range e.length {
		e.from[i+1] = e.from[i] + int64(n)
	}
	return e.from[e.n()]
}

// sortEpisodes returns the permutation that sorts rows of the table by episode_index, nil if they
// are in order. An index that occurs twice is an error, unless repair is set: a row that repeats an
// earlier one (same reports so) is then left out, and any other row gets a new index above all
// others. stored holds the index that such a row has in the data, by its position in the result.
func sortEpisodes(
	ids []int64, repair bool, same func(a, b int) bool,
) (perm []int32, stored map[int]int64, err error) {
	perm = reader.InOrder(ids)
	sorted := reader.Permute(ids, perm)
	isTwice := func(i int) bool { return i > 0 && sorted[i] == sorted[i-1] }
	first := 0
	for first < len(sorted) && !isTwice(first) {
		first++
	}
	if first == len(sorted) {
		return perm, nil, nil
	}
	if !repair {
		return nil, nil, indexTwice(sorted[first])
	}
	var renumbered []int32
	kept := make([]int32, 0, len(ids))
	row := func(i int) int32 {
		if perm == nil {
			return int32(i)
		}
		return perm[i]
	}
	last := 0 // in sorted, the first row of the index at hand
	for i := range sorted {
		if !isTwice(i) {
			last = i
			kept = append(kept, row(i))
		} else if !same(int(row(last)), int(row(i))) {
			renumbered = append(renumbered, row(i))
		}
	}
	next := sorted[len(sorted)-1] + 1
	stored = map[int]int64{}
	for _, r := range renumbered {
		stored[len(kept)] = ids[r]
		ids[r] = next
		kept, next = append(kept, r), next+1
	}
	return kept, stored, nil
}

// indexTwice is the error about an episode_index that two rows of the table have.
func indexTwice(index int64) error {
	return robocache.Misuse(string(op), robocache.Where{"column": "episode_index"}, "episode_index %d occurs twice", index).
		WithHint("run %s: it gives each episode an index of its own", robocache.Command("doctor --fix --in-place"))
}

// setIndex keeps the index column only where it says something.
func (e *episodes) setIndex(ids []int64) {
	for i, id := range ids {
		if id != int64(i) {
			e.index = ids
			return
		}
	}
}

// setUnsure marks rows of the table, which perm sorts, as unsure.
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

func rowCount(n int64) (int32, bool) { return int32(n), n >= 0 && n <= math.MaxInt32 }

// episodeTasks holds the task texts of every episode: numbers into texts.
type episodeTasks struct {
	span  [][2]int32 // of each episode, in ids
	ids   []int32
	texts []string
	seen  map[string]int32 // while it is made
}

func (t *episodeTasks) of(pos int) []string {
	if pos >= len(t.span) {
		return nil
	}
	ids := t.ids[t.span[pos][0]:t.span[pos][1]]
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = t.texts[id]
	}
	return out
}

// add takes the tasks of the next episode.
func (t *episodeTasks) add(tasks []string) {
	from := int32(len(t.ids))
	for _, s := range tasks {
		id, ok := t.seen[s]
		if !ok {
			if t.seen == nil {
				t.seen = map[string]int32{}
			}
			id = int32(len(t.texts))
			t.texts = append(t.texts, s)
			t.seen[s] = id
		}
		t.ids = append(t.ids, id)
	}
	t.span = append(t.span, [2]int32{from, int32(len(t.ids))})
}

// made ends the adding: episodes are in the order of a permutation.
func (t *episodeTasks) made(perm []int32) *episodeTasks {
	return &episodeTasks{span: reader.Permute(t.span, perm), ids: t.ids, texts: t.texts}
}

// Episode gives the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (ep robocache.Episode, err error) {
	defer crash.Recover("lerobot episode", &err)
	if err := d.checkEpisode(episode); err != nil {
		return ep, err
	}
	defer robocache.LocateIn(&err, "episode", d.eps.id(episode))
	t, err := d.episodeTasks(ctx)
	if err != nil {
		return ep, err
	}
	return robocache.Episode{
		Position: episode,
		Index:    d.eps.id(episode),
		Length:   d.Len(episode),
		Tasks:    t.of(episode),
	}, nil
}

// episodeTasks reads the tasks column on the first call: it is the only part of the episodes table
// that costs text.
func (d *Dataset) episodeTasks(ctx context.Context) (*episodeTasks, error) {
	t := d.taskTab.Load()
	if t == nil {
		var err error
		if t, err = d.readEpisodeTasksV3(ctx); err != nil {
			return nil, err
		}
		d.taskTab.Store(t)
	}
	return t, nil
}

// lines calls each for every line that is not blank.
func lines(name string, b []byte, each func(line int, b []byte) error) error {
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

const episodesJSONL = "meta/episodes.jsonl"

type episodeLine struct {
	Index  *int64          `json:"episode_index"`
	Length *int64          `json:"length"`
	Tasks  json.RawMessage `json:"tasks"`
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
	if e.n() == 0 && d.raw.totalEpisodes > 0 {
		return d.noEpisodes(episodesJSONL)
	}
	e.ownFiles(d.raw.chunksSize)
	d.taskTab.Store(tasks)
	e.count()
	d.take(
		e,
		perm,
		episodesJSONL,
		"episodes are not in the order of episode_index",
		"sort the lines",
	)
	return nil
}

// noEpisodes is the error of a table without rows where info.json counts some.
func (d *Dataset) noEpisodes(file string) error {
	return robocache.Malformed("lerobot", robocache.Where{"file": file}, "").
		Expected(fmt.Sprintf("%d episodes, as info.json says", d.raw.totalEpisodes), "none").
		WithHint("fetch it again")
}

// take makes e the table of the dataset. perm says how its rows were sorted; nil: they were.
func (d *Dataset) take(e *episodes, perm []int32, file, unsorted, hint string) {
	switch {
	case e.n() < e.rows || len(e.stored) > 0:
		d.reportTwice(e, perm, file)
	case perm != nil:
		d.find(warn("episodes-unsorted", file, unsorted, hint))
	}
	d.eps, d.paths.perm = e, perm
	d.About.Episodes, d.About.Frames = e.n(), e.from[e.n()]
	d.About.NumberEpisodes(e.index)
}

// reportTwice adds the finding about an episode_index that occurs twice.
func (d *Dataset) reportTwice(e *episodes, perm []int32, file string) {
	where := robocache.Where{"file": file, "column": "episode_index"}
	for _, id := range e.stored {
		where["episode"] = id
	}
	d.reportRepeat(where, int64(e.rows-e.n()+len(e.stored)))
}

func parseEpisodesV2(
	b []byte, repair bool,
) (e *episodes, tasks *episodeTasks, perm []int32, err error) {
	e, tasks = &episodes{hasFiles: true}, &episodeTasks{}
	var ids []int64
	unsure := map[int]tableFault{}
	err = lines(episodesJSONL, b, func(_ int, b []byte) error {
		var l episodeLine
		if err := unmarshalLine(b, &l); err != nil {
			return err
		}
		if l.Index == nil {
			return fmt.Errorf("episode_index is missing")
		}
		lengthText := "length is missing"
		var n int32
		isCount := l.Length != nil
		if isCount {
			lengthText = fmt.Sprintf("length is %d", *l.Length)
			n, isCount = rowCount(*l.Length)
		}
		if *l.Index < 0 {
			return fmt.Errorf("episode_index is %d", *l.Index)
		}
		if !isCount { // The rows of the data file are counted.
			unsure[len(ids)], n = tableFault{"length", lengthText}, 0
		}
		var list []string
		if len(l.Tasks) > 0 && string(l.Tasks) != "null" && json.Unmarshal(l.Tasks, &list) != nil {
			list = make([]string, 1)
			if json.Unmarshal(l.Tasks, &list[0]) != nil {
				return fmt.Errorf("tasks is not a list of texts")
			}
		}
		tasks.add(list)
		ids = append(ids, *l.Index)
		e.length = append(e.length, n)
		return nil
	})
	e.rows = len(ids)
	if err == nil {
		// A file belongs to an index, so that two lines of one index are of the same file.
		perm, e.stored, err = sortEpisodes(ids, repair, func(int, int) bool { return true })
		err = robocache.At(err, robocache.Where{"file": episodesJSONL})
	}
	if err != nil {
		return nil, nil, nil, err
	}
	e.setUnsure(unsure, perm)
	e.setIndex(reader.Permute(ids, perm))
	e.length = reader.Permute(e.length, perm)
	return e, tasks.made(perm), perm, nil
}
