package write

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// The names of complete staging directories whose files are not yet in place.
const (
	wholeName  = "whole"  // a save: every new file begins with the bytes of the old file
	shrunkName = "shrunk" // a deletion: every old file begins with the bytes of the staged file
	// goneName lists in a shrunkName directory the files that the deletion removes.
	goneName = "gone.json"
)

// maxHead bounds a file that covers all episodes.
const maxHead = 1 << 30

// tailEpisode is a saved episode whose files are still growing.
type tailEpisode struct {
	*EpisodeData
	size  int64
	stats robocache.Stats
	// recording holds the samples of streams with native clocks. It is nil once they are written.
	recording     *nativeEpisode
	recordingName string
}

// beginTail returns an empty tail. The number of its first file is file, and its first episode is
// the next one.
func (r *Recorder) beginTail(ctx context.Context, file int) (tail, error) {
	t := tail{
		firstEpisode: r.nextEpisode(),
		firstRow:     r.nextRow(),
		firstFile:    file,
		nextFile:     file,
		base:         r.saved,
		tasks:        r.cfg.Tasks,
		head:         map[string][]byte{},
	}
	for _, name := range applyOrder {
		if strings.HasSuffix(name, "/") || name == "README.md" && !r.saved.ownsReadme {
			continue
		}
		b, err := store.ReadFile(ctx, r.dst, name, maxHead)
		if err == nil {
			t.head[name] = b
		} else if !errors.Is(err, robocache.ErrNotFound) {
			return tail{}, err
		}
	}
	return t, nil
}

// unusedNumbers returns how many episode indices and row indices below the next free ones are not
// in use. Adding them to the numbers of episodes and rows gives the next free indices.
func (r *Recorder) unusedNumbers() shardPlace {
	have := &r.saved.Recorded
	return shardPlace{
		firstEpisode: have.NextEpisode - have.Episodes, firstRow: have.NextRow - have.Frames,
	}
}

// nextEpisode returns the episode_index of the current episode.
func (r *Recorder) nextEpisode() int { return r.counters.Episodes + r.unusedNumbers().firstEpisode }

// nextRow returns the index of the first row of the current episode.
func (r *Recorder) nextRow() int64 { return r.counters.Frames + r.unusedNumbers().firstRow }

// saveEpisode writes the tail with the new episode at its end. If the tail is full, it stays as it
// is and the episode begins a new one.
func (r *Recorder) saveEpisode(
	ctx context.Context,
	ep *EpisodeData,
	size int64,
	native *nativeEpisode,
) error {
	t := r.tail
	isFull := len(t.episodes) == tailEpisodes || len(t.episodes) > 0 && t.bytes+size > tailBytes
	if isFull {
		var err error
		if t, err = r.beginTail(ctx, t.nextFile); err != nil {
			return err
		}
	}
	added := tailEpisode{EpisodeData: ep, size: size, recording: native}
	if native != nil {
		added.recordingName = native.name
	}
	t.episodes = append(slices.Clone(t.episodes), added)
	t.bytes += size
	old := r.tail.episodes
	if err := r.rewriteTail(ctx, t, wholeName); err != nil {
		return err
	}
	if isFull { // no later save rewrites the episodes of the old tail
		if err := r.removeEncoded(old, t.episodes); err != nil {
			return err
		}
	}
	r.counters.Episodes++
	r.counters.Frames += int64(ep.Length)
	return nil
}

// DeleteLastEpisode removes the episode that was saved last. Rows of the episode under way are
// kept. Only episodes in the files that this recorder is still writing can be deleted.
func (r *Recorder) DeleteLastEpisode(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.errIfClosed(); err != nil {
		return err
	}
	defer robocache.LocateIn(&err, "dataset", r.dir)
	// Completes an earlier save that failed.
	if err := r.applyStaged(ctx); err != nil {
		return err
	}
	t := r.tail
	last := len(t.episodes) - 1
	if r.counters.Episodes == 0 {
		return robocache.Misuse(opRecord, nil, "delete_last_episode: the dataset has no episodes").
			WithHint("discard_episode() drops the rows of an episode that is not saved yet")
	}
	if last < 0 {
		return robocache.Misuse(
			opRecord,
			robocache.Where{"episode": r.nextEpisode() - 1},
			"delete_last_episode: the last episode is in a file that this Writer has finished, "+
				"or was saved by an earlier Writer",
		).WithHint(
			"close the Writer, then run: %s",
			robocache.Command("edit delete %s --episodes=%d --in-place", r.dir, r.nextEpisode()-1),
		)
	}
	ep := t.episodes[last]
	t.episodes = slices.Clone(t.episodes[:last])
	t.bytes -= ep.size
	if err := r.rewriteTail(ctx, t, shrunkName); err != nil {
		return err
	}
	r.counters.Episodes--
	r.counters.Frames -= int64(ep.Length)
	if err := r.removeEncoded([]tailEpisode{ep}, t.episodes); err != nil {
		return err
	}
	return r.applyStaged(ctx)
}

// rewriteTail writes the episodes of t, and the files that cover all episodes, into a staging
// directory. One rename to name then makes it complete. applyStaged moves complete directories into
// place, also after a kill.
func (r *Recorder) rewriteTail(ctx context.Context, t tail, name string) error {
	stage, err := os.MkdirTemp(r.ownDir, "stage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	dst, err := store.OpenLocal(stage)
	if err != nil {
		return err
	}
	defer dst.Close()
	next, tasks := t.base, t.tasks
	oldFiles := r.tail.files
	t.files = nil
	t.nextFile = t.firstFile
	if len(t.episodes) == 0 {
		for file, b := range t.head {
			if err := store.Put(ctx, dst, file, b); err != nil {
				return err
			}
			t.files = append(t.files, file)
		}
	} else {
		if next, tasks, err = r.writeTail(ctx, dst, &t); err != nil {
			return err
		}
		last := &t.episodes[len(t.episodes)-1]
		if err := r.writeRecording(ctx, stage, *last); err != nil {
			return err
		}
		last.recording = nil
	}
	if name == shrunkName {
		removed := slices.DeleteFunc(
			slices.Clone(oldFiles),
			func(file string) bool { return slices.Contains(t.files, file) },
		)
		for _, ep := range r.tail.episodes[len(t.episodes):] {
			if ep.recordingName != "" {
				removed = append(removed, ep.recordingName)
			}
		}
		encoded, err := json.Marshal(removed)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, dst, goneName, encoded); err != nil {
			return err
		}
	}
	if err := os.Rename(stage, filepath.Join(r.ownDir, name)); err != nil {
		return err
	}
	syncDir(r.ownDir)
	r.saved, r.tail, r.cfg.Tasks = next, t, tasks
	return nil
}

// writeTail writes the episodes of t, and the files that cover all episodes, into dst. next is the
// state of the dataset with these episodes, and tasks are all tasks. It sets the files of t and the
// number of its next file.
func (r *Recorder) writeTail(
	ctx context.Context,
	dst *store.Local,
	t *tail,
) (next recorded, tasks []string, err error) {
	cfg := r.cfg
	cfg.Encoders = 2 // the robot's loop needs the other cores
	cfg.Frames = stats.AllFrames
	cfg.Shard = &shardPlace{
		firstEpisode: t.firstEpisode,
		firstRow:     t.firstRow,
		firstFile:    t.firstFile,
		files:        cfg.ChunksSize*(maxFileNumber+1) - t.firstFile,
	}
	recordingInfo, err := r.recordingInfo()
	if err != nil {
		return next, tasks, err
	}
	cfg.Tasks = t.tasks
	cfg.Info = recordingInfo
	for _, ep := range t.episodes {
		for _, text := range ep.Tasks {
			if !slices.Contains(cfg.Tasks, text) {
				cfg.Tasks = append(slices.Clip(cfg.Tasks), text)
			}
		}
	}
	w, err := NewWriter(ctx, dst, cfg)
	if err != nil {
		return next, tasks, err
	}
	defer w.Abort()
	for _, ep := range t.episodes {
		if err := w.AddEpisode(ctx, *ep.EpisodeData); err != nil {
			return next, tasks, err
		}
	}
	// The other episodes got their statistics when they were added.
	if last := &t.episodes[len(t.episodes)-1]; last.stats == nil {
		last.stats = w.pending[len(w.pending)-1].stats
	}
	if err := w.Close(ctx); err != nil {
		return next, tasks, err
	}
	useNumber := func(chunk, file int) {
		t.nextFile = max(t.nextFile, chunk*cfg.ChunksSize+file+1)
	}
	useNumber(w.data.lastFile())
	useNumber(w.index.lastFile())
	for _, c := range w.cameras {
		useNumber(c.chunk, c.file)
	}
	episodes := t.firstEpisode + len(t.episodes) - r.unusedNumbers().firstEpisode
	next = recorded{
		Recorded:   r.saved.Recorded,
		exact:      episodes == 1, // quantiles of several episodes are estimated
		pixels:     maps.Clone(t.base.pixels),
		totals:     maps.Clone(t.base.totals),
		ownsReadme: r.saved.ownsReadme,
	}
	for _, ep := range t.episodes {
		next.addStats(ep)
	}
	if err := r.writeHead(ctx, w, &next); err != nil {
		return next, tasks, err
	}
	t.files = slices.Clone(w.files)
	return next, cfg.Tasks, nil
}

// addStats adds the statistics of an episode.
func (n *recorded) addStats(ep tailEpisode) {
	for key, fs := range ep.stats {
		episodePixels, earlierPixels := ep.FrameStats[key], n.pixels[key]
		switch {
		case episodePixels == nil:
			n.totals[key] = mergeStats(n.totals[key], fs, false)
		case earlierPixels == nil:
			n.pixels[key] = episodePixels
		default:
			// Merge into a new histogram, because the maps of other states share the earlier one.
			merged := episodePixels.Empty()
			merged.Merge(earlierPixels)
			merged.Merge(episodePixels)
			n.pixels[key] = merged
		}
	}
}

// removeEncoded removes the encoded files of episodes that will not be written again. The encoded
// episodes of kept are added to a new library, which replaces the old one.
func (r *Recorder) removeEncoded(old, kept []tailEpisode) error {
	_ = r.library.Close() // a removed file keeps its disk space while it is open
	for _, ep := range old {
		for _, v := range ep.Videos {
			_ = os.Remove(filepath.Join(r.partsDir, v.Path))
		}
	}
	if err := r.openParts(); err != nil {
		return err
	}
	for _, ep := range kept {
		for key, v := range ep.Videos {
			v.Library = r.library
			ep.Videos[key] = v
		}
	}
	return nil
}

// writeHead writes the files that cover all episodes, such as info.json and the statistics.
func (r *Recorder) writeHead(ctx context.Context, w *Writer, next *recorded) error {
	unused := r.unusedNumbers()
	// The writer subtracts the numbers in Shard from its own. With the unused numbers, it counts
	// all episodes of the dataset instead of those of the tail.
	w.cfg.Shard = &unused
	if err := w.writeTasks(ctx); err != nil {
		return err
	}
	if next.ownsReadme {
		if err := w.putFile(ctx, "README.md", w.datasetCard()); err != nil {
			return err
		}
	}
	all := robocache.Stats{}
	for key, fs := range next.totals {
		all[key] = fs
	}
	maps.Copy(all, r.frameStats(next))
	encoded, err := stats.Marshal(all)
	if err != nil {
		return err
	}
	if err := w.putFile(ctx, "meta/stats.json", encoded); err != nil {
		return err
	}
	counts, err := next.countsText(w.episodeCount())
	if err != nil {
		return err
	}
	if err := w.putFile(ctx, countsName, counts); err != nil {
		return err
	}
	info, err := r.infoText(w)
	if err != nil {
		return err
	}
	return w.putFile(ctx, "meta/info.json", info)
}

// countsText returns the content of the file countsName.
func (n *recorded) countsText(episodes int) ([]byte, error) {
	return json.Marshal(recordingCounts{episodes, n.exact, n.pixels})
}

// infoText returns info.json. An existing dataset keeps its own info.json, with new totals.
func (r *Recorder) infoText(w *Writer) ([]byte, error) {
	text, err := w.infoText()
	if err != nil {
		return nil, err
	}
	if r.saved.Info == nil {
		return text, nil
	}
	var existing, written map[string]json.RawMessage
	if err := decodeJSON("info.json", r.saved.Info, &existing); err != nil {
		return nil, err
	}
	if err := decodeJSON("info.json", text, &written); err != nil {
		return nil, err
	}
	// isWhole reports whether a split covers all episodes of the existing dataset. Its total can be
	// wrong, so the actual number is also accepted.
	isWhole := func(split string) bool {
		claimed := fmt.Sprintf("0:%s", existing["total_episodes"])
		return split == claimed || split == fmt.Sprintf("0:%d", r.saved.Episodes)
	}
	var splits map[string]string
	err = json.Unmarshal(existing["splits"], &splits)
	if err == nil && (len(splits) == 0 || len(splits) == 1 && isWhole(splits["train"])) {
		existing["splits"] = written["splits"]
	}
	keys := []string{"total_episodes", "total_frames", "total_tasks"}
	if r.saved.Episodes == 0 { // the first episode determines the encoding of videos
		keys = append(keys, "features")
	}
	for _, key := range keys {
		existing[key] = written[key]
	}
	var ordered jsonObject
	for _, key := range append(slices.Clone(infoKeys), slices.Sorted(maps.Keys(existing))...) {
		if v, ok := existing[key]; ok {
			ordered = append(ordered, jsonField{key, v})
			delete(existing, key)
		}
	}
	return indentedJSON(ordered)
}

// applyOrder lists files in the order in which they are moved into place. A concurrent reader sees
// the old info.json and all files it refers to, because every new file begins with the content of
// the old one.
var applyOrder = []string{
	RecordingsFolder + "/",
	"videos/",
	"data/",
	"meta/episodes/",
	"meta/tasks.parquet",
	"README.md",
	"meta/stats.json",
	countsName,
	infoName,
}

// infoName is the file that completes a dataset.
const infoName = "meta/info.json"

// applyStaged moves the staged files of a save or deletion into place, also those of a recorder
// that was killed. Files that are already in place are no longer in the staging directory.
func (r *Recorder) applyStaged(ctx context.Context) error {
	if err := r.applyFrom(ctx, wholeName); err != nil {
		return err
	}
	return r.applyFrom(ctx, shrunkName)
}

// applyFrom moves the files of a complete staging directory into the dataset. A save ends with
// info.json. A deletion uses the opposite order and begins with info.json. In both cases info.json
// never names a row that is not in place.
func (r *Recorder) applyFrom(ctx context.Context, name string) error {
	from := filepath.Join(r.ownDir, name)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files, gone, err := stagedFiles(from)
	if err != nil {
		return err
	}
	files = append(files, gone...)
	rank := func(name string) int { // position in applyOrder
		return slices.IndexFunc(
			applyOrder,
			func(prefix string) bool { return strings.HasPrefix(name, prefix) },
		)
	}
	slices.SortFunc(
		files,
		func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) },
	)
	if name == shrunkName {
		slices.Reverse(files)
	}
	for _, name := range files { // creates all folders first, to keep the renames close together
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o777); err != nil {
			return err
		}
	}
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == infoName { // the files before info.json are durable before it
			r.syncFolders(files)
		}
		to := filepath.Join(r.dir, name)
		if slices.Contains(gone, name) {
			err = os.Remove(to)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // an interrupted run removed it
			}
		} else {
			err = os.Rename(filepath.Join(from, name), to)
		}
		if err != nil {
			return err
		}
		if name == infoName {
			r.syncFolders(files)
		}
	}
	r.syncFolders(files)
	if err := os.RemoveAll(from); err != nil {
		return err
	}
	for _, name := range gone { // removes folders that are now empty
		dir := filepath.Dir(name)
		for dir != "." && os.Remove(filepath.Join(r.dir, dir)) == nil {
			dir = filepath.Dir(dir)
		}
	}
	return nil
}

// stagedFiles returns the names of the files in a staging directory, and of the files of the
// dataset that it removes.
func stagedFiles(dir string) (files, gone []string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	i := slices.Index(files, goneName)
	if i < 0 {
		return files, nil, nil
	}
	content, err := os.ReadFile(filepath.Join(dir, goneName))
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(content, &gone); err != nil {
		return nil, nil, err
	}
	return slices.Delete(files, i, i+1), gone, nil
}

// syncFolders makes the names of files durable.
func (r *Recorder) syncFolders(files []string) {
	done := map[string]bool{}
	for _, name := range files {
		for dir := filepath.Dir(name); !done[dir]; dir = filepath.Dir(dir) {
			done[dir] = true
			syncDir(filepath.Join(r.dir, dir))
		}
	}
}

// syncDir makes the names in a folder durable. Errors are ignored because some network file systems
// do not support it; the contents are durable in any case.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
