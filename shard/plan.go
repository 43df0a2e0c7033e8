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

// maxShards is as many as a result can number files for.
const maxShards = 100_000

// Balances are what shards can be balanced by.
var Balances = []string{"bytes", "frames", "rows"}

// PlanOptions are the choices of NewPlan beside the job.
type PlanOptions struct {
	Shards  int
	Balance string // one of Balances; "" = bytes
	Tool    string // that plans
}

// NewPlan looks at the source and cuts the job into shards.
func NewPlan(ctx context.Context, job Job, opt PlanOptions) (_ *Manifest, err error) {
	switch {
	case opt.Shards < 1 || opt.Shards > maxShards:
		return nil, robocache.Misuse("plan", nil, "").
			Expected("1 to "+strconv.Itoa(maxShards)+" shards", strconv.Itoa(opt.Shards))
	case opt.Balance != "" && !slices.Contains(Balances, opt.Balance):
		return nil, robocache.Misuse("plan", nil, "no balance %q", opt.Balance).
			WithHint("%s", robocache.Nearest(opt.Balance, Balances))
	}
	job.Source, job.Destination = absolute(job.Source), absolute(job.Destination)
	if err := job.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(&job)
	if err != nil {
		return nil, err
	} // as it will be read
	job = Job{}
	if err := json.Unmarshal(text, &job); err != nil {
		return nil, err
	}
	hash, err := job.hash()
	if err != nil {
		return nil, err
	}
	m := &Manifest{Version: manifestVersion, Tool: opt.Tool, Job: job, JobHash: hash}
	if m.Inputs, err = list(ctx, &job); err != nil {
		return nil, err
	}
	src, err := openSource(ctx, &job)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	jobOfValue, err := jobOf(job.Name)
	if err != nil {
		return nil, err
	}
	w, err := jobOfValue.plan(ctx, m, src)
	if err != nil {
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
	bytes := w.bytes(m.Inputs.Bytes, episodes)
	weights := bytes
	if opt.Balance == "frames" || opt.Balance == "rows" {
		weights = make([]int64, len(episodes))
		for i, e := range episodes {
			weights[i] = int64(w.rows(e))
			if opt.Balance == "rows" {
				if weights[i], err = rowsOf(ctx, src, e); err != nil {
					return nil, err
				}
			}
		}
	}
	number := 0
	for _, list := range balance(weights, min(opt.Shards, len(episodes))) {
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

// absolute makes a path of this machine independent of where a shard runs.
func absolute(uri string) string {
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

// rowsOf counts the rows of all streams of an episode.
func rowsOf(ctx context.Context, src robocache.Dataset, e int) (n int64, err error) {
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

// work is what planning a job finds out.
type work struct {
	made        func(e int) (episodes, rows int) // numbers in the result for a source episode
	rowBytes    int64                            // bytes per row of the source
	leavesEmpty bool                             // episodes without rows have no number
}

// rows returns how many rows of the result an episode of the source becomes.
func (w *work) rows(e int) int {
	_, n := w.made(e)
	return n
}

// bytes shares the source's bytes among episodes by their rows: files hold many episodes, and say
// nothing of each.
func (w *work) bytes(total int64, episodes []int) []int64 {
	var rows int64
	for _, e := range episodes {
		rows += int64(w.rows(e))
	}
	out := make([]int64, len(episodes))
	for i, e := range episodes {
		n := int64(w.rows(e))
		if out[i] = n * w.rowBytes; total > 0 && rows > 0 {
			out[i] = int64(float64(total) * (float64(n) / float64(rows)))
		}
	}
	return out
}
