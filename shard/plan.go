package shard

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/store"
)

// maxShards is the largest number of shards for which a result can number its files.
const maxShards = 100_000

// Balances lists the quantities by which shards can be balanced.
var Balances = []string{"bytes", "frames", "rows"}

// PlanOptions configures NewPlan.
type PlanOptions struct {
	Shards  int
	Balance string // one of Balances; "" means bytes
	Tool    string // tool that makes the plan
}

// NewPlan reads the source's metadata and divides the job into shards.
func NewPlan(ctx context.Context, job Job, opt PlanOptions) (_ *Manifest, err error) {
	switch {
	case opt.Shards < 1 || opt.Shards > maxShards:
		return nil, robocache.Misuse("plan", nil, "").
			Expected("1 to "+strconv.Itoa(maxShards)+" shards", strconv.Itoa(opt.Shards))
	case opt.Balance != "" && !slices.Contains(Balances, opt.Balance):
		return nil, robocache.Misuse("plan", nil, "no balance %q", opt.Balance).
			WithHint("%s", robocache.Nearest(opt.Balance, Balances))
	}
	job.Source, job.Destination = absolutePath(job.Source), absolutePath(job.Destination)
	if err := job.checkJob(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(&job)
	if err != nil {
		return nil, err
	}
	job = Job{}
	if err := json.Unmarshal(text, &job); err != nil {
		return nil, err
	}
	m := &Manifest{Version: manifestVersion, Tool: opt.Tool, Job: job}
	if m.Inputs, err = listInputs(ctx, &job); err != nil {
		return nil, err
	}
	src, err := openSource(ctx, &job)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	kind, err := findJob(job.Name)
	if err != nil {
		return nil, err
	}
	w, err := kind.plan(ctx, m, src)
	if err != nil {
		return nil, err
	}
	// The plan of a job removes the options that it does not have.
	if m.JobHash, err = m.Job.jobHash(); err != nil {
		return nil, err
	}
	episodes, err := src.Info().EpisodePositions(m.Job.Convert.Episodes)
	if err != nil {
		return nil, err
	}
	if episodes == nil {
		for e := range src.Info().Episodes {
			episodes = append(episodes, e)
		}
	}
	if len(episodes) == 0 {
		return nil, robocache.Misuse(
			"plan",
			robocache.Where{"dataset": robocache.Redact(job.Source)},
			"the dataset has no episodes",
		)
	}
	if !slices.IsSorted(episodes) || len(slices.Compact(slices.Clone(episodes))) < len(episodes) {
		return nil, robocache.Misuse("plan", nil, "episodes that are not in ascending order").
			WithHint("shards keep the order of the source: name each episode once, ascending")
	}
	bytes := w.episodeBytes(m.Inputs.Bytes, episodes)
	weights := bytes
	if opt.Balance == "frames" || opt.Balance == "rows" {
		weights = make([]int64, len(episodes))
		for i, e := range episodes {
			weights[i] = int64(w.resultRows(e))
			if opt.Balance == "rows" {
				if weights[i], err = countRows(ctx, src, e); err != nil {
					return nil, err
				}
			}
		}
	}
	number := 0
	for _, list := range balanceShards(weights, min(opt.Shards, len(episodes))) {
		s := Shard{FirstEpisode: number, FirstRow: m.Frames}
		for _, i := range list {
			made, n := w.made(episodes[i])
			s.Episodes = append(s.Episodes, int(src.Info().EpisodeIndex(episodes[i])))
			s.Frames, s.Bytes = s.Frames+int64(n), s.Bytes+bytes[i]
			if n > 0 || !w.leavesEmpty {
				number += made
			}
		}
		m.Frames, m.Bytes = m.Frames+s.Frames, m.Bytes+s.Bytes
		m.Shards = append(m.Shards, s)
	}
	m.Episodes = number
	return m, nil
}

// absolutePath makes a local path independent of the working folder of a shard.
func absolutePath(uri string) string {
	if _, local := store.LocalPath(uri); local && uri != "" && !filepath.IsAbs(uri) {
		if abs, err := filepath.Abs(uri); err == nil && uri[:min(len(uri), 5)] != "file:" {
			return abs
		}
	}
	return uri
}

func openSource(ctx context.Context, job *Job) (robocache.Dataset, error) {
	return mapping.Open(ctx, job.Source, job.Open)
}

// countRows returns the number of rows of all streams of an episode.
func countRows(ctx context.Context, src robocache.Dataset, e int) (n int64, err error) {
	info := src.Info()
	for i := range info.Features {
		rows, err := robocache.RowsIn(ctx, src, e, &info.Features[i])
		if err != nil {
			return 0, robocache.At(err, robocache.Where{"episode": info.EpisodeIndex(e)})
		}
		n += int64(rows)
	}
	return n, nil
}

// plannedWork is the result of planning a job.
type plannedWork struct {
	made        func(e int) (episodes, rows int) // numbers in the result for a source episode
	rowBytes    int64                            // bytes per row of the source
	leavesEmpty bool                             // episodes without rows are not numbered
}

// resultRows returns the number of rows in the result for an episode of the source.
func (w *plannedWork) resultRows(e int) int {
	_, n := w.made(e)
	return n
}

// episodeBytes distributes the source's bytes among episodes by their rows, because files hold many
// episodes and their sizes per episode are unknown.
func (w *plannedWork) episodeBytes(total int64, episodes []int) []int64 {
	var rows int64
	for _, e := range episodes {
		rows += int64(w.resultRows(e))
	}
	out := make([]int64, len(episodes))
	for i, e := range episodes {
		n := int64(w.resultRows(e))
		if out[i] = n * w.rowBytes; total > 0 && rows > 0 {
			out[i] = int64(float64(total) * (float64(n) / float64(rows)))
		}
	}
	return out
}
