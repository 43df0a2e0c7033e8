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

// jobKind holds the functions of a job for each stage.
type jobKind struct {
	about string
	plan  func(ctx context.Context, m *Manifest, src robocache.Dataset) (*plannedWork, error)
	run   func(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error
	// merge writes the files above the shards. nil means that the destination format does it.
	merge func(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) error
}

var jobKinds = map[string]jobKind{
	"convert": conversion("convert a dataset", func(*Job) error {
		return nil
	}),
	"resample": conversion("bring all streams onto one grid", checkGrid),
	"reencode": conversion("encode all video again", checkCodec),
}

// Jobs lists the names of jobs.
func Jobs() []string { return slices.Sorted(maps.Keys(jobKinds)) }

func findJob(name string) (jobKind, error) {
	k, ok := jobKinds[name]
	if !ok {
		return jobKind{}, robocache.Misuse("plan", nil, "no job %q", name).
			WithHint("%s", robocache.Nearest(name, Jobs()))
	}
	return k, nil
}

func checkGrid(j *Job) error {
	if j.Convert.Align == nil || j.Convert.Align.HZ.Zero() {
		return robocache.Misuse("plan", nil, "resample to which rate?").WithHint("--hz 50")
	}
	return nil
}

func checkCodec(j *Job) error {
	if c := j.Convert.Options["video_codec"]; c == "" || c == "copy" {
		return robocache.Misuse("plan", nil, "reencode with which codec?").
			WithHint("--video-codec h264")
	}
	return nil
}

// conversion returns a job that convert.Write performs shard by shard.
func conversion(about string, check func(*Job) error) jobKind {
	return jobKind{
		about: about,
		plan: func(ctx context.Context, m *Manifest, src robocache.Dataset) (*plannedWork, error) {
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
			return &plannedWork{
				made:        p.Made,
				rowBytes:    row,
				leavesEmpty: p.Format.Sharding.LeavesEmpty,
			}, nil
		},
		run: func(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error {
			s := &a.manifest.Shards[a.shard]
			opt := a.manifest.Job.Convert
			positions, err := a.episodePositions(src)
			if err != nil {
				return err
			}
			opt.Episodes, opt.Threads, opt.Progress = positions, a.options.Threads, a.recordProgress
			opt.Shard = &robocache.WriteShard{
				Index:        a.shard,
				Count:        len(a.manifest.Shards),
				FirstEpisode: s.FirstEpisode,
				FirstRow:     s.FirstRow,
				Schema:       a.manifest.Schema,
			}
			w, err := convert.Write(ctx, src, a.manifest.Job.To, a.uri, opt)
			if err != nil {
				return err
			}
			r.Report = robocache.ShardReport{
				Episodes: w.Episodes,
				Frames:   w.Frames,
				Summary:  w.Summary,
			}
			// The report omits the findings of the source, which the plan contains, except those
			// that this shard read first.
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
	name := func(f *robocache.Finding) string {
		return f.Code + "\x00" + f.Where.String() + "\x00" + f.Message
	}
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

// allFindings returns the findings of the plan and of all receipts, each once.
func (m *Manifest) allFindings(receipts []*Receipt) []robocache.Finding {
	all := slices.Clip(m.Findings)
	for _, r := range receipts {
		all = mergeFindings(all, r.Findings)
	}
	return all
}

// episodePositions returns the positions of the shard's episodes in the source.
func (a *attempt) episodePositions(src robocache.Dataset) ([]int, error) {
	return src.Info().EpisodePositions(a.manifest.Shards[a.shard].Episodes)
}

// outputSharding returns the sharding of the destination format. For a job that writes no dataset,
// it keeps no file.
func (m *Manifest) outputSharding() (*robocache.Sharding, error) {
	kind, err := findJob(m.Job.Name)
	if err != nil {
		return nil, err
	}
	if kind.merge != nil {
		return &robocache.Sharding{Kept: func(string) bool { return false }}, nil
	}
	return convert.Sharding(m.Job.To)
}

func shardReports(receipts []*Receipt) (out []robocache.ShardReport) {
	for _, r := range receipts {
		r.Report.Dir = attemptDir(r.Shard, r.Attempt)
		out = append(out, r.Report)
	}
	return out
}
