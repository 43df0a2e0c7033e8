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

// The names of staging directories that are complete and still have to be put in place.
const (
	wholeName  = "whole"  // a save: every new file begins with the bytes of the old file
	shrunkName = "shrunk" // a deletion: every old file begins with the bytes of the staged file
	// goneName lists in a shrunkName directory the files that the deletion removes.
	goneName = "gone.json"
)

// maxHead bounds a file above all episodes.
const maxHead = 1 << 30

// tailEpisode is a saved episode whose files are still growing.
type tailEpisode struct {
	*EpisodeData
	size int64
	own  robocache.Stats
	// recording is the samples of streams with native clocks, and nil once they are written.
	recording     *nativeEpisode
	recordingName string
}

// beginTail returns a tail whose first file has the number file. The next episode is its first.
func (r *Recorder) beginTail(ctx context.Context, file int) (tail, error) {
	t := tail{
		first: r.nextEpisode(),
		row:   r.nextRow(),
		file:  file,
		next:  file,
		base:  r.whole,
		tasks: r.cfg.Tasks,
		head:  map[string][]byte{},
	}
	for _, name := range order {
		if strings.HasSuffix(name, "/") || name == "README.md" && !r.whole.card {
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

// unusedNumbers is the number of episode indices and of row indices below the next free ones that
// no episode and no row has.
func (r *Recorder) unusedNumbers() shardPlace {
	have := &r.whole.Recorded
	return shardPlace{
		firstEpisode: have.NextEpisode - have.Episodes, firstRow: have.NextRow - have.Frames,
	}
}

// nextEpisode returns the episode_index of the episode under way.
func (r *Recorder) nextEpisode() int { return r.count.Episodes + r.unusedNumbers().firstEpisode }

// nextRow returns the index of its first row.
func (r *Recorder) nextRow() int64 { return r.count.Frames + r.unusedNumbers().firstRow }

// save writes the tail with the new episode at its end. A full tail is left as it is, and the
// episode begins the next one.
func (r *Recorder) save(
	ctx context.Context,
	ep *EpisodeData,
	size int64,
	native *nativeEpisode,
) error {
	t := r.tail
	full := len(t.eps) == tailEpisodes || len(t.eps) > 0 && t.bytes+size > tailBytes
	if full {
		var err error
		if t, err = r.beginTail(ctx, t.next); err != nil {
			return err
		}
	}
	added := tailEpisode{EpisodeData: ep, size: size, recording: native}
	if native != nil {
		added.recordingName = native.name
	}
	t.eps, t.bytes = append(slices.Clone(t.eps), added), t.bytes+size
	old := r.tail.eps
	if err := r.rewriteTail(ctx, t, wholeName); err != nil {
		return err
	}
	if full {
		if err := r.forget(old, t.eps); err != nil {
			return err
		}
	}
	r.count.Episodes, r.count.Frames = r.count.Episodes+1, r.count.Frames+int64(ep.Length)
	return nil
}

// DeleteLastEpisode removes the episode that was saved last. Rows of the episode under way are
// kept. Only episodes in the files that this recorder is still writing can be deleted.
func (r *Recorder) DeleteLastEpisode(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.closed(); err != nil {
		return err
	}
	defer robocache.LocateIn(&err, "dataset", r.dir)
	if err := r.apply(ctx); err != nil {
		return err
	} // Completes an earlier save that failed.
	t := r.tail
	last := len(t.eps) - 1
	if r.count.Episodes == 0 {
		return robocache.Misuse(opRecord, nil, "delete_last_episode: the dataset has no episodes").
			WithHint("discard_episode() drops the rows of an episode that is not saved yet")
	}
	if last < 0 {
		return robocache.Misuse(opRecord, robocache.Where{"episode": r.nextEpisode() - 1}, "delete_last_episode: the last episode is in a file that this Writer has finished, or was saved by an earlier Writer").
			WithHint("close the Writer, then run: %s", robocache.Command("edit delete %s --episodes=%d --in-place", r.dir, r.nextEpisode()-1))
	}
	ep := t.eps[last]
	t.eps, t.bytes = slices.Clone(t.eps[:last]), t.bytes-ep.size
	if err := r.rewriteTail(ctx, t, shrunkName); err != nil {
		return err
	}
	r.count.Episodes, r.count.Frames = r.count.Episodes-1, r.count.Frames-int64(ep.Length)
	if err := r.forget([]tailEpisode{ep}, t.eps); err != nil {
		return err
	}
	if err := r.apply(ctx); err != nil {
		return err
	}
	return nil
}

// rewriteTail writes the episodes of t, and the files above all episodes, into a staging directory.
// One rename to name then makes it complete: apply puts complete directories in place, also after a
// kill.
func (r *Recorder) rewriteTail(ctx context.Context, t tail, name string) error {
	stage, err := os.MkdirTemp(r.own, "stage-")
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
	before := r.tail.files
	t.files, t.next = nil, t.file
	if len(t.eps) == 0 {
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
		last := &t.eps[len(t.eps)-1]
		if err := r.writeRecording(ctx, stage, *last); err != nil {
			return err
		}
		last.recording = nil
	}
	if name == shrunkName {
		gone := slices.DeleteFunc(
			slices.Clone(before),
			func(file string) bool { return slices.Contains(t.files, file) },
		)
		for _, ep := range r.tail.eps[len(t.eps):] {
			if ep.recordingName != "" {
				gone = append(gone, ep.recordingName)
			}
		}
		encoded, err := json.Marshal(gone)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, dst, goneName, encoded); err != nil {
			return err
		}
	}
	if err := os.Rename(stage, filepath.Join(r.own, name)); err != nil {
		return err
	}
	syncDir(r.own)
	r.whole, r.tail, r.cfg.Tasks = next, t, tasks
	return nil
}

// writeTail writes the episodes of t into dst, and returns the statistics and tasks of the dataset
// with them.
func (r *Recorder) writeTail(
	ctx context.Context,
	dst *store.Local,
	t *tail,
) (next recorded, tasks []string, err error) {
	cfg := r.cfg
	cfg.Encoders, cfg.Frames = 2, stats.AllFrames // the robot's loop wants the other cores
	cfg.Shard = &shardPlace{
		firstEpisode: t.first,
		firstRow:     t.row,
		firstFile:    t.file,
		files:        cfg.ChunksSize*(maxFileNumber+1) - t.file,
	}
	recordingInfo, err := r.recordingInfo()
	if err != nil {
		return next, tasks, err
	}
	cfg.Tasks, cfg.Info = t.tasks, recordingInfo
	for _, ep := range t.eps {
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
	for _, ep := range t.eps {
		if err := w.AddEpisode(ctx, *ep.EpisodeData); err != nil {
			return next, tasks, err
		}
	}
	if last := &t.eps[len(t.eps)-1]; last.own == nil {
		last.own = w.pending[len(w.pending)-1].stats
	}
	if err := w.Close(ctx); err != nil {
		return next, tasks, err
	}
	number := func(chunk, file int) { t.next = max(t.next, chunk*cfg.ChunksSize+file+1) }
	number(w.data.chunk, w.data.file)
	number(w.index.chunk, w.index.file)
	for _, c := range w.cams {
		number(c.chunk, c.file)
	}
	next = recorded{
		Recorded: r.whole.Recorded,
		exact:    t.first+len(t.eps) == 1+r.unusedNumbers().firstEpisode,
		looks:    maps.Clone(t.base.looks),
		totals:   maps.Clone(t.base.totals),
		card:     r.whole.card,
	}
	for _, ep := range t.eps {
		next.add(ep)
	}
	if err := r.above(ctx, w, &next); err != nil {
		return next, tasks, err
	}
	t.files = slices.Clone(w.files)
	return next, cfg.Tasks, nil
}

// add counts the statistics of an episode.
func (n *recorded) add(ep tailEpisode) {
	for key, fs := range ep.own {
		if p := ep.FrameStats[key]; p == nil {
			n.totals[key] = together(n.totals[key], fs, false)
		} else if have := n.looks[key]; have == nil {
			n.looks[key] = p
		} else {
			all := p.Empty()
			all.Merge(have)
			all.Merge(p)
			n.looks[key] = all
		}
	}
}

// forget removes the encoded files of episodes that are not written again. Episodes of kept move to
// the new library.
func (r *Recorder) forget(old, kept []tailEpisode) error {
	_ = r.lib.Close() // else its open files would keep their space
	for _, ep := range old {
		for _, v := range ep.Videos {
			_ = os.Remove(filepath.Join(r.parts, v.Path))
		}
	}
	if err := r.openParts(); err != nil {
		return err
	}
	for _, ep := range kept {
		for key, v := range ep.Videos {
			v.Library = r.lib
			ep.Videos[key] = v
		}
	}
	return nil
}

// above writes what stands over the episodes.
func (r *Recorder) above(ctx context.Context, w *Writer, next *recorded) error {
	unused := r.unusedNumbers()
	w.cfg.Shard = &unused // from here on all episodes count
	if err := w.writeTasks(ctx); err != nil {
		return err
	}
	if next.card {
		if err := w.put(ctx, "README.md", w.card()); err != nil {
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
	if err := w.put(ctx, "meta/stats.json", encoded); err != nil {
		return err
	}
	counts, err := next.counts(w.episodes())
	if err != nil {
		return err
	}
	if err := w.put(ctx, countsName, counts); err != nil {
		return err
	}
	info, err := r.info(w)
	if err != nil {
		return err
	}
	return w.put(ctx, "meta/info.json", info)
}

func (n *recorded) counts(episodes int) ([]byte, error) {
	return json.Marshal(recordingCounts{episodes, n.exact, n.looks})
}

// info is info.json; of a dataset that was there, its own with the new totals.
func (r *Recorder) info(w *Writer) ([]byte, error) {
	text, err := w.info()
	if err != nil {
		return nil, err
	}
	if r.whole.Info == nil {
		return text, nil
	}
	var have, now map[string]json.RawMessage
	if err := decode("info.json", r.whole.Info, &have); err != nil {
		return nil, err
	}
	if err := decode("info.json", text, &now); err != nil {
		return nil, err
	}
	isWhole := func(split string) bool {
		claimed := fmt.Sprintf("0:%s", have["total_episodes"])
		return split == claimed || split == fmt.Sprintf("0:%d", r.whole.Episodes)
	}
	var splits map[string]string
	err = json.Unmarshal(have["splits"], &splits)
	if err == nil && (len(splits) == 0 || len(splits) == 1 && isWhole(splits["train"])) {
		have["splits"] = now["splits"]
	}
	keys := []string{"total_episodes", "total_frames", "total_tasks"}
	if r.whole.Episodes == 0 { // the first episode decides the encoding of videos
		keys = append(keys, "features")
	}
	for _, key := range keys {
		have[key] = now[key]
	}
	var o jsonObject
	for _, key := range append(slices.Clone(infoKeys), slices.Sorted(maps.Keys(have))...) {
		if v, ok := have[key]; ok {
			o = append(o, jsonField{key, v})
			delete(have, key)
		}
	}
	return indented(o)
}

// order is that in which files come into place: a reader who comes in between has the old
// info.json, and all that it speaks of. Every file begins with what the one before held.
var order = []string{
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

const infoName = "meta/info.json"

// apply moves the staged files of a save or deletion into place, also those of a recorder that was
// killed. Files in place already are no longer in the staging directory.
func (r *Recorder) apply(ctx context.Context) error {
	if err := r.applyFrom(ctx, wholeName); err != nil {
		return err
	}
	return r.applyFrom(ctx, shrunkName)
}

// applyFrom moves the files of a complete staging directory into the dataset. A save ends with
// info.json. A deletion takes the opposite order and begins with info.json. In both, info.json
// never names a row that is not in place.
func (r *Recorder) applyFrom(ctx context.Context, name string) error {
	from := filepath.Join(r.own, name)
	var files, gone []string
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			p, err = filepath.Rel(from, p)
			files = append(files, filepath.ToSlash(p))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if i := slices.Index(files, goneName); i >= 0 {
		files = slices.Delete(files, i, i+1)
		content, err := os.ReadFile(filepath.Join(from, goneName))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(content, &gone); err != nil {
			return err
		}
		files = append(files, gone...)
	}
	rank := func(name string) int {
		return slices.IndexFunc(
			order,
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
	for _, name := range files { // folders first: nothing then lies between the renames
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o777); err != nil {
			return err
		}
	}
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == infoName {
			r.syncFolders(files)
		}
		to := filepath.Join(r.dir, name)
		if slices.Contains(gone, name) {
			err = os.Remove(to)
		} else {
			err = os.Rename(filepath.Join(from, name), to)
		}
		if !errors.Is(err, fs.ErrNotExist) || !slices.Contains(gone, name) {
			if err != nil {
				return err
			}
		}
		if name == infoName {
			r.syncFolders(files)
		}
	}
	r.syncFolders(files)
	if err := os.RemoveAll(from); err != nil {
		return err
	}
	for _, name := range gone { // folders that are empty now
		for dir := filepath.Dir(name); dir != "." && os.Remove(filepath.Join(r.dir, dir)) == nil; dir = filepath.Dir(dir) {
		}
	}
	return nil
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

// syncDir makes names in a folder durable. Some network file systems cannot; the bytes are.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
