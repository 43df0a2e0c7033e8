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
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// wholeName is the folder of what was saved and is not in place yet.
const wholeName = "whole"

// save writes the tail and the new episode, with all that stands over them, into a folder of its own. In one step the folder then gets the name by which apply
// knows that it is whole.
func (r *Recorder) save(ctx context.Context, ep *EpisodeData, size int64) {
	t := r.tail
	full := len(t.eps) == tailEpisodes || len(t.eps) > 0 && t.bytes+size > tailBytes
	if full {
		t = tail{first: r.count.Episodes, row: r.count.Frames, file: t.next}
	}
	t.eps, t.bytes = append(slices.Clone(t.eps), ep), t.bytes+size
	cfg := r.cfg
	cfg.Encoders, cfg.Frames = 2, stats.AllFrames // the robot's loop wants the other cores
	cfg.Shard = &shardPlace{firstEpisode: t.first, firstRow: t.row, firstFile: t.file, files: cfg.ChunksSize*(maxFileNumber+1) - t.file}
	for _, text := range ep.Tasks {
		if !slices.Contains(cfg.Tasks, text) {
			cfg.Tasks = append(slices.Clip(cfg.Tasks), text)
		}
	}
	stage := guard.Must(os.MkdirTemp(r.own, "stage-"))
	defer os.RemoveAll(stage)
	dst := guard.Must(store.OpenLocal(stage))
	defer dst.Close()
	w := guard.Must(NewWriter(ctx, dst, cfg))
	defer w.Abort()
	for _, e := range t.eps {
		guard.Check(w.AddEpisode(ctx, *e))
	}
	own := w.pending[len(w.pending)-1].stats
	guard.Check(w.Close(ctx))
	number := func(chunk, file int) { t.next = max(t.next, chunk*cfg.ChunksSize+file+1) }
	number(w.data.chunk, w.data.file)
	number(w.index.chunk, w.index.file)
	for _, c := range w.cams {
		number(c.chunk, c.file)
	}
	next := recorded{Recorded: r.whole.Recorded, exact: r.count.Episodes == 0, looks: maps.Clone(r.whole.looks), totals: maps.Clone(r.whole.totals), card: r.whole.card}
	for key, fs := range own {
		if p := ep.FrameStats[key]; p == nil {
			next.totals[key] = together(next.totals[key], fs, false)
		} else if have := next.looks[key]; have == nil {
			next.looks[key] = p
		} else {
			all := p.Empty()
			all.Merge(have)
			all.Merge(p)
			next.looks[key] = all
		}
	}
	r.above(ctx, w, &next)
	guard.Check(os.Rename(stage, filepath.Join(r.own, wholeName)))
	syncDir(r.own)
	if full {
		r.forget(r.tail.eps, ep)
	}
	r.whole, r.tail, r.cfg.Tasks = next, t, cfg.Tasks
	r.count.Episodes, r.count.Frames = r.count.Episodes+1, r.count.Frames+int64(ep.Length)
}

// forget removes the encoded files of episodes that are not written again.
func (r *Recorder) forget(old []*EpisodeData, now *EpisodeData) {
	_ = r.lib.Close() // else its open files would keep their space
	for _, ep := range old {
		for _, v := range ep.Videos {
			_ = os.Remove(filepath.Join(r.parts, v.Path))
		}
	}
	r.openParts()
	for key, v := range now.Videos {
		v.Library = r.lib
		now.Videos[key] = v
	}
}

// above writes what stands over the episodes.
func (r *Recorder) above(ctx context.Context, w *Writer, next *recorded) {
	w.cfg.Shard = nil // from here on all episodes count
	w.writeTasks(ctx)
	if next.card {
		w.put(ctx, "README.md", w.card())
	}
	all := robocache.Stats{}
	for key, fs := range next.totals {
		all[key] = fs
	}
	maps.Copy(all, r.frameStats(next))
	w.put(ctx, "meta/stats.json", guard.Must(stats.Marshal(all)))
	w.put(ctx, countsName, next.counts(w.episodes()))
	w.put(ctx, "meta/info.json", r.info(w))
}

func (n *recorded) counts(episodes int) []byte {
	return guard.Must(json.Marshal(recordingCounts{episodes, n.exact, n.looks}))
}

// info is info.json; of a dataset that was there, its own with the new totals.
func (r *Recorder) info(w *Writer) []byte {
	text := w.info()
	if r.whole.Info == nil {
		return text
	}
	var have, now map[string]json.RawMessage
	decode("info.json", r.whole.Info, &have)
	decode("info.json", text, &now)
	for _, key := range []string{"total_episodes", "total_frames", "total_tasks"} {
		have[key] = now[key]
	}
	var splits map[string]string
	if json.Unmarshal(have["splits"], &splits) == nil && len(splits) == 1 && splits["train"] == fmt.Sprintf("0:%d", r.whole.Episodes) {
		have["splits"] = now["splits"]
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

// order is that in which files come into place: a reader who comes in between has the old info.json, and all that it speaks of. Every file begins with
// what the one before held.
var order = []string{"videos/", "data/", "meta/episodes/", "meta/tasks.parquet", "README.md", "meta/stats.json", countsName, infoName}

const infoName = "meta/info.json"

// apply puts in place what was saved, also by a recorder that was killed meanwhile: what is in place already is not there any more.
func (r *Recorder) apply(ctx context.Context) {
	from := filepath.Join(r.own, wholeName)
	var files []string
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			p, err = filepath.Rel(from, p)
			files = append(files, filepath.ToSlash(p))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	guard.Check(err)
	rank := func(name string) int {
		return slices.IndexFunc(order, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for _, name := range files { // folders first: nothing then lies between the renames
		guard.Check(os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o777))
	}
	for _, name := range files {
		guard.Check(ctx.Err())
		if name == infoName {
			r.syncFolders(files)
		}
		guard.Check(os.Rename(filepath.Join(from, name), filepath.Join(r.dir, name)))
	}
	r.syncFolders(files)
	guard.Check(os.RemoveAll(from))
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
