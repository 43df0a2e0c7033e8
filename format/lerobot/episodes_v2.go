package lerobot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

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
				err = &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Msg: err.Error()}
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
func (d *Dataset) readEpisodesV2(ctx context.Context) {
	defer guard.At(robocache.Where{"file": episodesJSONL})
	e, tasks, perm, err := parseEpisodesV2(guard.Must(store.ReadFile(ctx, d.st, episodesJSONL, maxLines)))
	guard.Check(err)
	if e.n() == 0 && d.raw.totalEpisodes > 0 {
		guard.Fail(d.noEpisodes(episodesJSONL))
	}
	e.ownFiles(d.raw.chunksSize)
	d.taskTab.Store(tasks)
	e.count()
	d.take(e, perm, episodesJSONL, "episodes are not in the order of episode_index", "sort the lines")
}

// noEpisodes is the error of a table without rows where info.json counts some.
func (d *Dataset) noEpisodes(file string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": file}, Want: fmt.Sprintf("%d episodes, as info.json says", d.raw.totalEpisodes), Got: "none", Hint: "fetch it again"}
}

// take makes e the table of the dataset. perm says how its rows were sorted; nil: they were.
func (d *Dataset) take(e *episodes, perm []int, file, unsorted, hint string) {
	if perm != nil {
		d.find(warn("episodes-unsorted", file, unsorted, hint))
	}
	d.eps, d.paths.perm = e, perm
	d.info.Episodes, d.info.Frames = e.n(), e.from[e.n()]
}

func parseEpisodesV2(b []byte) (e *episodes, tasks *episodeTasks, perm []int, err error) {
	e, tasks = &episodes{}, &episodeTasks{}
	var ids []int64
	err = lines(episodesJSONL, b, func(_ int, b []byte) error {
		var l episodeLine
		if err := json.Unmarshal(b, &l); err != nil {
			return err
		}
		if l.Index == nil || l.Length == nil {
			return fmt.Errorf("episode_index or length is missing")
		}
		n, ok := rowCount(*l.Length)
		if !ok || *l.Index < 0 {
			return fmt.Errorf("episode_index %d, length %d", *l.Index, *l.Length)
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
	if err == nil {
		perm, err = order(ids)
		err = robocache.At(err, robocache.Where{"file": episodesJSONL})
	}
	if err != nil {
		return nil, nil, nil, err
	}
	e.setIndex(permute(ids, perm))
	e.length = permute(e.length, perm)
	return e, tasks.made(perm), perm, nil
}
