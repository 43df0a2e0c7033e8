package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"os"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// EstimateOptions configures NewEstimate.
type EstimateOptions struct {
	// estimate for this number of similar episodes; 0 means those of the source
	Trajectories     int
	Workers          int     // concurrent shards, one core each
	Retried          float64 // share of shards that run a second time
	PricePerCoreHour float64 // of a worker
	PricePerGB       float64 // per 10⁹ bytes read or written
	// Destination of the sample. "" means a temporary local folder.
	Scratch string
	Sample  time.Duration // the sample grows until it takes this long; 0 means 2 s
}

// Estimate is the estimated cost of a plan. A sample of episodes was processed, and the other
// episodes are assumed to be similar.
type Estimate struct {
	Episodes int          `json:"num_episodes"`
	Frames   int64        `json:"num_frames"`
	Shards   int          `json:"shards"`
	Workers  int          `json:"workers"`
	Sample   Sample       `json:"sample"`
	Stages   []StageTotal `json:"stages"`  // open, read, compute, write
	Seconds  float64      `json:"seconds"` // sum over all workers, including retries
	Elapsed  float64      `json:"elapsed_seconds"`
	Cost     float64      `json:"cost"`
}

// Sample is the measured sample.
type Sample struct {
	Episodes int     `json:"num_episodes"`
	Frames   int64   `json:"num_frames"`
	Read     int64   `json:"bytes_read"` // the sample's share of the source
	Written  int64   `json:"bytes_written"`
	Seconds  float64 `json:"seconds"`
}

// StageTotal is the estimate of one stage. open lists the source, compares it with the plan and
// opens it once per shard. read and write transfer bytes from and to the stores. compute is the
// rest.
type StageTotal struct {
	Name         string  `json:"name"`
	Bytes        int64   `json:"bytes"`
	Seconds      float64 `json:"seconds"`
	ShardBytes   int64   `json:"bytes_per_shard"`
	ShardSeconds float64 `json:"seconds_per_shard"`
}

// NewEstimate runs a few episodes of a job in a temporary store and extrapolates the cost of the
// whole job in shards. It removes the temporary store. It does not plan the whole job.
func NewEstimate(
	ctx context.Context,
	job Job,
	plan PlanOptions,
	opt EstimateOptions,
) (_ *Estimate, err error) {
	defer crash.Recover("plan", &err)
	if opt.Workers < 1 || opt.Trajectories < 0 ||
		!(opt.Retried >= 0 && opt.PricePerCoreHour >= 0 && opt.PricePerGB >= 0) {
		return nil, robocache.Misuse(
			"plan",
			nil,
			"an estimate for no worker, or at a rate or price below nothing",
		)
	}
	opt.Scratch, opt.Sample = cmp.Or(opt.Scratch, os.TempDir()), cmp.Or(opt.Sample, 2*time.Second)
	job.Source = absolutePath(job.Source)
	src, err := openSource(ctx, &job)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	episodes, err := src.Info().EpisodePositions(job.Convert.Episodes)
	if err != nil {
		return nil, err
	}
	if episodes == nil {
		for e := range src.Info().Episodes {
			episodes = append(episodes, e)
		}
	}
	var rows float64 // rows of the source, from which the sample's share is computed
	for _, e := range episodes {
		rows += float64(src.Len(e))
	}
	for n := min(8, len(episodes)); ; n = min(4*n, len(episodes)) {
		var share float64
		job.Convert.Episodes = make([]int, n) // evenly spaced over the source
		for i := range n {
			e := episodes[(2*i+1)*len(episodes)/(2*n)]
			job.Convert.Episodes[i] = int(src.Info().EpisodeIndex(e))
			share += float64(src.Len(e)) / max(1, rows)
		}
		if share == 0 {
			share = float64(n) / float64(max(1, len(episodes)))
		}
		plan.Shards = max(1, min(plan.Shards, cmp.Or(opt.Trajectories, len(episodes))))
		e := &Estimate{
			Episodes: len(episodes),
			Shards:   plan.Shards,
			Workers:  opt.Workers,
			Sample:   Sample{Episodes: n},
		}
		seconds, err := e.runSample(ctx, job, plan, opt.Scratch, share)
		if err != nil {
			return nil, err
		}
		if n == len(episodes) || e.Sample.Seconds >= opt.Sample.Seconds() {
			e.extrapolate(seconds, share, opt)
			return e, nil
		}
	}
}

// runSample runs the sample and returns the seconds of each stage.
func (e *Estimate) runSample(
	ctx context.Context,
	job Job,
	plan PlanOptions,
	scratch string,
	share float64,
) (seconds [4]float64, err error) {
	job.Destination = joinURI(scratch, "robocache-estimate-"+rand.Text())
	plan.Shards = 1
	drawn, err := NewPlan(ctx, job, plan)
	if err != nil {
		return seconds, err
	}
	encoded, err := drawn.Marshal()
	if err != nil {
		return seconds, err
	}
	m, err := Parse(encoded)
	if err != nil {
		return seconds, err
	}
	dst, err := store.OpenWritable(m.Job.Destination)
	if err != nil {
		return seconds, err
	}
	defer store.Close(dst)
	defer func() {
		bg, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer stop()
		left, _ := dst.List(bg, "")
		for _, f := range left {
			_ = dst.Remove(bg, f.Name)
		}
		removeEmpty(m.Job.Destination)
	}()
	begun := time.Now()
	lap := func() (s float64) { s, begun = time.Since(begun).Seconds(), time.Now(); return s }
	if err := m.checkUnchanged(ctx); err != nil {
		return seconds, err
	}
	source, err := openSource(ctx, &m.Job)
	if err != nil {
		return seconds, err
	}
	if err := source.Close(); err != nil {
		return seconds, err
	}
	seconds[0] = lap()
	r, err := Run(ctx, m, 0, RunOptions{Tool: plan.Tool, Threads: 1})
	if err != nil {
		return seconds, err
	}
	whole := lap()
	e.Sample.Frames, e.Sample.Written, e.Sample.Seconds = r.Report.Frames, r.Bytes, whole
	if e.Sample.Read = m.Bytes; m.Inputs.Bytes > 0 {
		e.Sample.Read = int64(float64(m.Inputs.Bytes) * share)
		lap()
		if err := e.readShare(ctx, m, share); err != nil {
			return seconds, err
		}
		seconds[1] = lap()
	} else {
		e.Sample.Read = 0 // a generated source is not read
	}
	lap()
	for _, f := range r.Files {
		in, err := dst.Open(ctx, f.Name)
		if errors.Is(err, robocache.ErrNotFound) {
			in, err = dst.Open(ctx, attemptDir(0, r.Attempt)+"/"+f.Name)
		}
		if err != nil {
			return seconds, err
		}
		err = store.Copy(ctx, in, dst, "again/"+f.Name)
		in.Close()
		if err != nil {
			return seconds, err
		}
	}
	seconds[3] = lap()
	seconds[2] = max(0, whole-seconds[0]-seconds[1]-seconds[3])
	return seconds, nil
}

// readShare reads a share of each file of the source, together as many bytes as the sample.
func (e *Estimate) readShare(ctx context.Context, m *Manifest, share float64) error {
	st, _, err := openFiles(&m.Job)
	if err != nil {
		return err
	}
	defer store.Close(st)
	buf := make([]byte, 1<<20)
	for left, i := e.Sample.Read, 0; left > 0 && i < len(m.Inputs.Files); i++ {
		f, failed := st.Open(ctx, m.Inputs.Files[i].Name)
		if failed != nil {
			return failed
		}
		want := min(left, f.Size(), int64(math.Ceil(float64(f.Size())*share)))
		left -= want
		for at := int64(0); at < want && err == nil; at += int64(len(buf)) {
			err = f.ReadAt(ctx, buf[:min(int64(len(buf)), want-at)], at)
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// extrapolate computes the totals from the sample, which is a share of the whole.
func (e *Estimate) extrapolate(seconds [4]float64, share float64, opt EstimateOptions) {
	if opt.Trajectories > 0 {
		share *= float64(e.Episodes) / float64(opt.Trajectories)
		e.Episodes = opt.Trajectories
	}
	whole := func(n int64) int64 { return int64(math.Round(float64(n) / share)) }
	e.Frames = whole(e.Sample.Frames)
	bytes := [4]int64{1: whole(e.Sample.Read), 3: whole(e.Sample.Written)}
	shards, runs := float64(e.Shards), 1+opt.Retried
	perShard := 0.0
	for i, name := range []string{"open", "read", "compute", "write"} {
		all := seconds[i] / share
		if i == 0 {
			all = seconds[0] * shards
		}
		e.Stages = append(
			e.Stages,
			StageTotal{
				Name:         name,
				Bytes:        bytes[i],
				Seconds:      all,
				ShardBytes:   bytes[i] / int64(e.Shards),
				ShardSeconds: all / shards,
			},
		)
		perShard += all / shards
	}
	e.Seconds = perShard * shards * runs
	// Whole rounds, because workers may be idle in the last one.
	e.Elapsed = perShard * math.Ceil(shards*runs/float64(opt.Workers))
	e.Cost = e.Seconds/3600*opt.PricePerCoreHour +
		float64(bytes[1]+bytes[3])*runs/1e9*opt.PricePerGB
}
