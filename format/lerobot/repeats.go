package lerobot

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/video"
)

// repeatedIndexes returns the episode_index values that two episodes of the data share, each with
// the file of the second one.
func (d *Dataset) repeatedIndexes(files []countedFile) map[int64]string {
	e := d.episodes
	occurrences := map[int64]int{}
	repeated := map[int64]string{}
	count := func(id int64, file *countedFile) {
		occurrences[id]++
		if id >= 0 && occurrences[id] > 1 && repeated[id] == "" {
			repeated[id] = file.name
		}
	}
	listed := map[int64]bool{} // episode_index values that the table lists
	for pos := range e.count() {
		listed[e.dataID(pos)] = true
	}
	for i := range files[:len(e.files)] {
		f := &files[i]
		if d.raw.major == 2 {
			count(f.storedID, f)
		}
		for k, r := range f.runs {
			switch {
			// A v2 file is one episode. A second run in it is another episode with the same index.
			case d.raw.major == 2 && k > 0:
				repeated[r.id] = f.name
			case d.raw.major > 2 && r.isWhole && listed[r.id]:
				count(r.id, f)
			}
		}
	}
	return repeated
}

// assignRuns returns the run of rows of each episode if an episode_index occurs twice in the data
// or in the table, and nil otherwise. An episode_index that occurs twice in the data is an error
// unless OpenOptions.Repair is set. Repair makes each run an episode. A run at the place of an
// episode that the table lists gets the index of that episode, and another run the highest index
// plus 1.
func (d *Dataset) assignRuns(files []countedFile) (map[int]*rowRun, error) {
	e := d.episodes
	repeated := d.repeatedIndexes(files)
	if len(repeated) == 0 && len(e.stored) == 0 {
		return nil, nil
	}
	if len(repeated) > 0 && !d.repair {
		id := slices.Min(slices.Collect(maps.Keys(repeated)))
		return nil, robocache.At(repeatedIndexError(id), robocache.Where{"file": repeated[id]})
	}
	reported := map[int64]bool{} // by Open, because the table lists the index twice
	for _, id := range e.stored {
		reported[id] = true
	}
	renumberedByTable := len(e.stored) // the calls below add to e.stored
	if d.raw.major == 2 {
		d.storeDataIDs(files, repeated)
	}
	assigned := d.assignListed(files, repeated)
	surplus := map[int64]int64{}          // episodes that lose the index they share, by that index
	for i := range files[:len(e.files)] { // the files that the table names
		for k := range files[i].runs {
			r := &files[i].runs[k]
			if r.isTaken || repeated[r.id] == "" {
				continue
			}
			pos := d.appendEpisode(r, assigned)
			assigned[pos] = r
			r.isTaken = true
			surplus[r.id]++
		}
	}
	for pos, id := range e.stored {
		if e.isListed(pos) {
			surplus[id]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(repeated)) {
		if !reported[id] {
			d.reportRepeat(robocache.Where{
				"file": repeated[id], "column": "episode_index", "episode": id,
			}, max(1, surplus[id]))
		}
	}
	d.extendSplits(e.count() - e.unlisted - renumberedByTable)
	return assigned, nil
}

// assignListed returns a run for each listed episode: one with its episode_index, or else the run
// at its place.
func (d *Dataset) assignListed(
	files []countedFile,
	repeated map[int64]string,
) map[int]*rowRun {
	e := d.episodes
	assigned := map[int]*rowRun{}
	runs := map[int64][]*rowRun{}
	for i := range files[:len(e.files)] {
		for k := range files[i].runs {
			r := &files[i].runs[k]
			runs[r.id] = append(runs[r.id], r)
		}
	}
	// First, runs with the index of the episode. If there are several, the index must be repeated.
	for pos := range e.count() {
		id := e.dataID(pos)
		best, candidates := d.bestRun(pos, runs[id])
		isRepeated := repeated[id] != "" || d.isRenumbered(id)
		if candidates == 1 || candidates > 1 && isRepeated {
			assigned[pos] = best
			best.isTaken = true
		}
	}
	// Then, for episodes whose index no free run has, the run at their place.
	for pos := range e.count() {
		_, candidates := d.bestRun(pos, runs[e.dataID(pos)])
		mayHaveRows := e.length[pos] > 0 || e.isUnsure(pos)
		if assigned[pos] == nil && mayHaveRows && candidates == 0 {
			d.adoptRun(pos, &files[e.file[pos]], repeated, assigned)
		}
	}
	return assigned
}

// adoptRun assigns the run at the place of an episode in its data file to the episode. The rows of
// the run must have an index that occurs twice, or the table must list the episode's index twice.
// Caller must ensure that no rows have the index of the episode.
func (d *Dataset) adoptRun(
	pos int, file *countedFile, repeated map[int64]string, assigned map[int]*rowRun,
) {
	e := d.episodes
	_, isRenumbered := e.stored[pos]
	for k := range file.runs {
		r := &file.runs[k]
		if r.isTaken || r.start != e.start[pos] || repeated[r.id] == "" && !isRenumbered {
			continue
		}
		if e.stored == nil {
			e.stored = map[int]int64{}
		}
		e.stored[pos] = r.id
		r.isTaken = true
		assigned[pos] = r
	}
}

// storeDataIDs records in episodes.stored the episode_index that the file of a v2 episode holds, if
// that index differs from the episode's and occurs twice in the data. The name of a v2 file, not
// its content, determines which episode it holds.
func (d *Dataset) storeDataIDs(files []countedFile, repeated map[int64]string) {
	e := d.episodes
	for i := range files[:len(e.files)] {
		f := &files[i]
		pos := i // A file of v2 is one episode.
		if f.storedID < 0 || f.storedID == e.indexAt(pos) || repeated[f.storedID] == "" {
			continue
		}
		if e.stored == nil {
			e.stored = map[int]int64{}
		}
		e.stored[pos] = f.storedID
		for k := range f.runs {
			f.runs[k].id = f.storedID
		}
	}
}

// appendEpisode adds an episode that the table does not list, and returns its position.
func (d *Dataset) appendEpisode(r *rowRun, assigned map[int]*rowRun) int {
	e := d.episodes
	pos := e.count()
	before := -1 // position of the episode whose rows end where those of r begin
	for k, other := range assigned {
		if other.file == r.file && other.start+other.rows == r.start {
			before = k
		}
	}
	ids := make([]int64, pos, pos+1)
	next := int64(0)
	for k := range ids {
		ids[k] = e.indexAt(k)
		next = max(next, ids[k]+1)
	}
	e.setIndex(append(ids, next))
	length, _ := rowCount(min(r.rows, math.MaxInt32))
	e.length = append(e.length, length)
	e.file = append(e.file, r.file)
	e.start = append(e.start, r.start)
	if e.stored == nil {
		e.stored = map[int]int64{}
	}
	e.stored[pos] = r.id
	e.unlisted++
	e.sumLengths()
	for _, c := range e.cameras {
		d.appendFrames(c, before, r, assigned)
	}
	d.About.Episodes = e.count()
	d.About.Frames = e.from[e.count()]
	d.About.NumberEpisodes(e.index)
	return pos
}

// appendFrames adds the frames of a new last episode, whose rows are r, to the columns of a camera.
// They are the frames after those of the episode at position before. The frames are unknown if
// there is no such episode, or if the frames belong to another one.
func (d *Dataset) appendFrames(c *camColumns, before int, r *rowRun, assigned map[int]*rowRun) {
	file := int32(unknownFile)
	from := math.NaN()
	to := math.NaN()
	defer func() {
		c.file = append(c.file, file)
		if c.from != nil {
			c.from = append(c.from, from)
		}
		if c.to != nil {
			c.to = append(c.to, to)
		}
	}()
	if before < 0 || c.from == nil || c.file[before] == unknownFile {
		return
	}
	step := 1 / d.raw.fps.Float()
	start := c.from[before] + float64(assigned[before].rows)*step
	end := start + float64(r.rows)*step
	for k, f := range c.file {
		if f != c.file[before] || k == before {
			continue
		}
		rows := int64(d.episodes.length[k])
		if assigned[k] != nil {
			rows = assigned[k].rows
		}
		first := c.from[k]
		last := first + float64(rows)*step
		// The negation also returns if first is NaN.
		if !(last < start+step/2 || first > end-step/2) {
			return
		}
	}
	file = c.file[before]
	from = start
	to = end
}

// unknownFile is the video file of an episode whose frames the metadata does not name.
const unknownFile = -1

// unknownFramesError returns the error about an episode that the table does not list and whose
// frames are unknown.
func (d *Dataset) unknownFramesError(key string, episode int) error {
	where := robocache.Where{"stream": key, "episode": d.episodes.indexAt(episode)}
	return robocache.Malformed("lerobot frames", where,
		"the episodes table does not list these rows, so their frames are unknown").
		WithHint("%s", d.noFrameHint())
}

// holdsOnly reports whether a row group has the rows of one episode only, according to the footer.
// It returns true for a file without the column episode_index.
func holdsOnly(f *pq.File, group int, id int64) bool {
	leaf := numberLeaf(f, "episode_index")
	if leaf == nil {
		return true
	}
	c, ok := f.Chunk(group, leaf)
	return ok && c.HasRange && c.Min == id && c.Max == id
}

// numberLeaf returns a column that has a number in each row; nil if there is none.
func numberLeaf(f *pq.File, name string) *pq.Node {
	leaf := f.Column(name)
	if leaf == nil || leaf.Group() || leaf.MaxRep > 0 {
		return nil
	}
	return leaf
}

// isRenumbered reports whether an episode got a new index because its episode_index id occurs
// twice.
func (d *Dataset) isRenumbered(id int64) bool {
	for _, stored := range d.episodes.stored {
		if stored == id {
			return true
		}
	}
	return false
}

// storedIndex returns the episode_index of all rows of a v2 data file; -1 if they have several, or
// none.
func (d *Dataset) storedIndex(ctx context.Context, f *tableFile, file int32) (int64, error) {
	leaf := numberLeaf(f.pq, "episode_index")
	if leaf == nil || f.pq.Rows == 0 {
		return -1, nil
	}
	first := int64(-1)
	for g := range f.pq.Groups {
		low, high := int64(0), int64(0)
		if c, ok := f.pq.Chunk(g, leaf); ok && c.HasRange {
			low, high = c.Min, c.Max
		} else {
			ids, err := d.tables.integers(ctx, f, file, g, "episode_index")
			if err != nil {
				return 0, err
			}
			if len(ids) == 0 {
				continue
			}
			low = slices.Min(ids)
			high = slices.Max(ids)
		}
		if low != high || low < 0 || first >= 0 && low != first {
			return -1, nil
		}
		first = low
	}
	return first, nil
}

// noFrameHint returns the hint about an episode without frames. Other verbs reject a dataset in
// which an episode_index occurs twice.
func (d *Dataset) noFrameHint() string {
	if len(d.episodes.stored) > 0 {
		return "leave the episode out: " + robocache.Command("doctor --fix --in-place --drop-bad") +
			" does"
	}
	return video.NoFrameHint()
}

// repeatError returns the error of an episode whose rows are not where the table says because an
// index occurs twice in the data file. It returns nil if that is not the reason.
func (t *tables) repeatError(file string, episode int, found map[int64][]rowRun) error {
	isTwice := func(id int64) bool { // id has two whole episodes in the file
		n := 0
		for _, r := range found[id] {
			if r.isWhole {
				n++
			}
		}
		return n > 1
	}
	id := t.dataset.episodes.dataID(episode)
	if !isTwice(id) {
		// Otherwise look for a repeated index in the rows at the episode's place.
		_, start := t.fileOf(episode)
		id = -1
		for other, runs := range found {
			for _, r := range runs {
				if r.start == start && isTwice(other) {
					id = other
				}
			}
		}
		if id < 0 {
			return nil
		}
	}
	where := robocache.Where{"file": file, "episode": t.dataset.episodes.indexAt(episode)}
	return robocache.At(repeatedIndexError(id), where)
}

// otherFileHas reports whether the file of another v2 episode also has the rows of an index.
func (t *tables) otherFileHas(ctx context.Context, index int64) (bool, error) {
	pos := t.dataset.episodes.position(index)
	if pos < 0 {
		return false, nil
	}
	f, err := t.footer(ctx, int32(pos))
	if robocache.Bad(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stored, err := t.dataset.storedIndex(ctx, f, int32(pos))
	return stored == index, err
}

// repeatMessage is the message of the finding about an episode_index that occurs twice.
func repeatMessage() string {
	return "an episode_index occurs twice: readers reject the dataset, or show other episodes"
}

// reportRepeat adds the finding about an episode_index that occurs twice.
func (d *Dataset) reportRepeat(where robocache.Where, count int64) {
	f := robocache.Finding{
		Severity: robocache.SeverityError, Code: "episode-twice", Where: where, Count: count,
		Message: repeatMessage(),
		Hint: fmt.Sprintf("run %s: it gives each episode a unique index",
			robocache.Command("doctor --fix --in-place")),
	}
	d.reportCounted(f)
}
