package verbs

import (
	"cmp"
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/stats"
)

// PlanRequest holds the options of Plan.
type PlanRequest struct {
	// Job is the work, one of shard.Jobs.
	Job string `json:"-" arg:"JOB"`
	// Source is the dataset to read.
	Source string `json:"-" arg:"SRC"`
	// Destination is the folder or URI of the result.
	Destination string `json:"-" arg:"DST"`
	Conversion
	// Shards is the number of shards. The default is 1.
	Shards *int `json:"shards"`
	// Balance is the measure in which shards are equal, one of shard.Balances; empty: bytes.
	Balance string `json:"balance"`
	// Manifest is the file or URI to write.
	Manifest string `json:"manifest"`
	// Decode makes the job doctor decode every image.
	Decode bool `json:"decode"`
	// Deep makes the job doctor read every column to its last page.
	Deep bool `json:"deep"`
	// Estimate measures a few episodes, and computes the time and cost of the whole.
	Estimate bool `json:"estimate"`
	// Trajectories is the number of trajectories to estimate for; 0: those of the source.
	Trajectories int `json:"trajectories"`
	// Workers is the number of shards at once to estimate for. The default is 1.
	Workers *int `json:"workers"`
	// Retried is the share of shards that is run a second time.
	Retried float64 `json:"retried"`
	// PricePerCoreHour is the price of an hour of a worker.
	PricePerCoreHour float64 `json:"price_per_core_hour"`
	// PricePerGB is the price of reading or writing 10⁹ bytes.
	PricePerGB float64 `json:"price_per_gb"`
	// EstimateIn is the folder or URI of the sample; empty: the machine's temporary folder.
	EstimateIn string `json:"estimate_in"`
	// Tool names the program that makes the plan, with its version.
	Tool string `json:"-"`
}

// Planned is the result of Plan.
type Planned struct {
	Manifest string `json:"manifest,omitempty"` // none with Estimate alone
	Job      string `json:"job"`
	Shards   int    `json:"shards"`
	Episodes int    `json:"num_episodes"`
	Frames   int64  `json:"num_frames"`
	Bytes    int64  `json:"bytes"`
	Heaviest int64  `json:"largest_shard_bytes,omitempty"`

	Estimate *shard.Estimate `json:"estimate,omitempty"`
	// commit reports them, and has the verdict
	Findings []robocache.Finding `json:"findings,omitempty"`
}

// Plan looks at a source, and writes the manifest of a job on it.
func Plan(ctx context.Context, r *PlanRequest, o Observer) (*Planned, error) {
	if r.Manifest == "" && !r.Estimate {
		return nil, misuse("%s names the file to write; %s alone writes none",
			optionName("manifest"), optionName("estimate"))
	}
	job, err := r.job(ctx, o)
	if err != nil {
		return nil, err
	}
	opt := shard.PlanOptions{
		Shards: valueOr(r.Shards, 1), Balance: cmp.Or(r.Balance, "bytes"), Tool: r.Tool,
	}
	p := &Planned{Manifest: r.Manifest, Job: r.Job}
	if r.Estimate {
		e, err := shard.NewEstimate(ctx, job, opt, shard.EstimateOptions{
			Trajectories: r.Trajectories, Workers: valueOr(r.Workers, 1), Retried: r.Retried,
			PricePerCoreHour: r.PricePerCoreHour, PricePerGB: r.PricePerGB, Scratch: r.EstimateIn,
		})
		if err != nil {
			return nil, err
		}
		p.Estimate, p.Shards, p.Episodes, p.Frames = e, e.Shards, e.Episodes, e.Frames
		p.Bytes = e.Stages[1].Bytes
	}
	if r.Manifest == "" {
		return p, nil
	}
	m, err := shard.NewPlan(ctx, job, opt)
	if err != nil {
		return nil, err
	}
	if err := m.Write(ctx, r.Manifest); err != nil {
		return nil, err
	}
	p.Shards, p.Episodes, p.Frames, p.Bytes = len(m.Shards), m.Episodes, m.Frames, m.Bytes
	p.Findings = m.Findings
	for _, s := range m.Shards {
		p.Heaviest = max(p.Heaviest, s.Bytes)
	}
	return p, nil
}

// job opens the source and returns the job on it.
func (r *PlanRequest) job(ctx context.Context, o Observer) (shard.Job, error) {
	c, err := r.settle(o)
	if err != nil {
		return shard.Job{}, err
	}
	ds, err := c.open(ctx, r.Source)
	if err != nil {
		return shard.Job{}, err
	}
	c.opt.Episodes = ds.Info().EpisodeIndices(c.opt.Episodes) // a job names them by index
	_ = ds.Close()
	c.opt.Threads = 0
	job := shard.Job{
		Name: r.Job, Source: r.Source, Destination: r.Destination, To: c.to, Open: c.opened,
		Convert: c.opt, SkipBad: r.SkipBad,
		Doctor: robocache.DiagnoseOptions{Decode: r.Decode, Deep: r.Deep},
	}
	switch r.Job {
	case "stats":
		job.Frames = stats.FramePolicy(valueOr(r.Frames, string(stats.SampledFrames)))
	case "quality":
		job.Frames = stats.FramePolicy(valueOr(r.Frames, string(quality.AllFrames)))
	}
	return job, nil
}
