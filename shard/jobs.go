package shard

import (
	"context"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/store"
)

// kind is what a job does at each stage.
type kind struct {
	about string
	plan  func(ctx context.Context, m *Manifest, src robocache.Dataset) (*work, error)
	run   func(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error
	// merge writes what stands above the shards; nil: the format that is written does.
	merge func(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) error
}

var jobs = map[string]kind{
	"convert": conversion("convert a dataset", func(*Job) error {
		return nil
	}),
	"resample": conversion("bring all streams onto one grid", onGrid),
	"reencode": conversion("encode all video again", encoded),
}

// Jobs lists the names of jobs.
func Jobs() []string { return slices.Sorted(maps.Keys(jobs)) }

func jobOf(name string) (kind, error) {
	k, ok := jobs[name]
	if !ok {
		return kind{}, robocache.Misuse("plan", nil, "no job %q", name).
			WithHint("%s", robocache.Nearest(name, Jobs()))
	}
	return k, nil
}

func onGrid(j *Job) error {
	if j.Convert.Align == nil || j.Convert.Align.HZ.Zero() {
		return robocache.Misuse("plan", nil, "resample to which rate?").WithHint("--hz 50")
	}
	return nil
}

func encoded(j *Job) error {
	if c := j.Convert.Options["video_codec"]; c == "" || c == "copy" {
		return robocache.Misuse("plan", nil, "reencode with which codec?").
			WithHint("--video-codec h264")
	}
	return nil
}

// conversion is a job that convert.Write does, shard by shard.
func conversion(about string, check func(*Job) error) kind {
	return kind{
		about: about,
		plan: func(ctx context.Context, m *Manifest, src robocache.Dataset) (*work, error) {
			if err := check(&m.Job); err != nil {
				return nil, err
			}
			if err := convert.Apart(m.Job.Destination, m.Job.Source); err != nil {
				return nil, err
			}
			opt := m.Job.Convert
			var err error
			if opt.Episodes, err = src.Info().EpisodePositions(opt.Episodes); err != nil {
				return nil, err
			}
			opt.Findings = mapping.RoleFindings(src.Info(), m.Job.To, opt.Keys)
			p, err := convert.PlanShards(ctx, src, m.Job.To, opt)
			if err != nil {
				return nil, err
			}
			m.Schema, m.Findings = p.Schema, p.Findings
			var row int64
			for _, f := range p.Rows.Info().Features {
				if m.Job.Convert.Wants(&f) {
					m.Features = append(m.Features, f)
				}
				row += int64(f.RowBytes()) + int64(f.Width)*int64(f.Height)
			}
			return &work{
				made:        p.Made,
				rowBytes:    row,
				leavesEmpty: p.Format.Sharding.LeavesEmpty,
			}, nil
		},
		run: func(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error {
			s := &a.m.Shards[a.shard]
			opt := a.m.Job.Convert
			positions, err := a.positions(src)
			if err != nil {
				return err
			}
			opt.Episodes, opt.Threads, opt.Progress = positions, a.opt.Threads, a.progress
			opt.Shard = &robocache.WriteShard{
				Index:        a.shard,
				Count:        len(a.m.Shards),
				FirstEpisode: s.FirstEpisode,
				FirstRow:     s.FirstRow,
				Schema:       a.m.Schema,
			}
			w, err := convert.Write(ctx, src, a.m.Job.To, a.uri, opt)
			if err != nil {
				return err
			}
			r.Report = robocache.ShardReport{
				Episodes: w.Episodes,
				Frames:   w.Frames,
				Summary:  w.Summary,
			}
			// The report leaves out findings of the source, which the plan has, except those that
			// this shard read first.
			for _, f := range mergeFindings(w.Findings, robocache.Findings(src)) {
				if e, ok := f.Where["episode"].(int64); ok &&
					(f.Code == "episode-skipped" || f.Code == "episode-left-out") {
					r.Skipped = append(r.Skipped, Skipped{int(e), f.Message})
				} else {
					r.Findings = append(r.Findings, f)
				}
			}
			return nil
		},
	}
}

// mergeFindings appends the findings that are not in all yet. Every shard repeats the findings of
// the whole dataset.
func mergeFindings(all []robocache.Finding, more []robocache.Finding) []robocache.Finding {
	name := func(f *robocache.Finding) string { return f.Code + "\x00" + f.Where.String() + "\x00" + f.Message }
	seen := map[string]bool{}
	for i := range all {
		seen[name(&all[i])] = true
	}
	for _, f := range more {
		if id := name(&f); !seen[id] {
			seen[id] = true
			all = append(all, f)
		}
	}
	return all
}

// found returns the findings of the plan and of all receipts, each once.
func (m *Manifest) found(receipts []*Receipt) []robocache.Finding {
	all := slices.Clip(m.Findings)
	for _, r := range receipts {
		all = mergeFindings(all, r.Findings)
	}
	return all
}

// positions are those of the shard's episodes in the source.
func (a *attempt) positions(src robocache.Dataset) ([]int, error) {
	return src.Info().EpisodePositions(a.m.Shards[a.shard].Episodes)
}

// sharding is that of the format that is written; of a job that writes none it keeps no file.
func (m *Manifest) sharding() (*robocache.Sharding, error) {
	jobOfValue, err := jobOf(m.Job.Name)
	if err != nil {
		return nil, err
	}
	if jobOfValue.merge != nil {
		return &robocache.Sharding{Kept: func(string) bool { return false }}, nil
	}
	return convert.Sharding(m.Job.To)
}

func reports(receipts []*Receipt) (out []robocache.ShardReport) {
	for _, r := range receipts {
		r.Report.Dir = attemptDir(r.Shard, r.Attempt)
		out = append(out, r.Report)
	}
	return out
}
