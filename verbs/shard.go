package verbs

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache/shard"
)

// RunRequest holds the options of Run.
type RunRequest struct {
	// Manifest is the file or URI that Plan wrote.
	Manifest string `json:"manifest"`
	// Shard is the number of the shard, from 0. The default is SLURM_ARRAY_TASK_ID of the
	// environment, else JOB_COMPLETION_INDEX.
	Shard *int `json:"shard"`
	// Threads is the number of episodes that are read and encoded at once; 0: the number of CPUs.
	Threads int `json:"threads"`
	// Tool names the program that makes the shard, with its version.
	Tool string `json:"-"`
	// Begin is called before the shard is made, if it is not nil. Its error ends the run.
	Begin func(m *shard.Manifest, number int) error `json:"-"`
}

// ShardRun is the result of Run.
type ShardRun struct{ *shard.Receipt }

// HasFindings reports whether this run left out episodes.
func (r *ShardRun) HasFindings() bool { return len(r.Skipped) > 0 && !r.Already }

// Run makes one shard of a plan. A shard that is done already is left as it is.
func Run(ctx context.Context, r *RunRequest, o Observer) (*ShardRun, error) {
	number, err := r.number()
	if err != nil {
		return nil, err
	}
	m, err := shard.Read(ctx, r.Manifest)
	if err != nil {
		return nil, err
	}
	if r.Begin != nil {
		if err := r.Begin(m, number); err != nil {
			return nil, err
		}
	}
	opt := shard.RunOptions{Tool: r.Tool, Threads: r.Threads, Progress: o.progress}
	receipt, err := shard.Run(ctx, m, number, opt)
	if err != nil {
		return nil, err
	}
	return &ShardRun{receipt}, nil
}

// number returns the number of the shard to make.
func (r *RunRequest) number() (int, error) {
	number := valueOr(r.Shard, -1)
	for _, name := range []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} {
		if text := os.Getenv(name); text != "" && r.Shard == nil && number < 0 {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return 0, misuse("%s=%q is no number of a shard", name, text)
			}
			number = n
		}
	}
	if number < 0 {
		return 0, misuse("which shard? %s, SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX",
			optionName("shard"))
	}
	return number, nil
}

// CommitRequest holds the options of Commit.
type CommitRequest struct {
	// Manifest is the file or URI that Plan wrote.
	Manifest string `json:"manifest"`
	// Partial makes a result of the shards that are there.
	Partial bool `json:"partial"`
	// Verify reads every file of the shards first, and compares its checksum.
	Verify bool `json:"verify"`
}

// Committed is the result of Commit.
type Committed struct{ *shard.Committed }

// HasFindings reports whether the job in one process would: it found something wrong, or episodes
// are missing.
func (c *Committed) HasFindings() bool {
	return len(c.Skipped)+len(c.Missing) > 0 || AnyWrong(c.Findings)
}

// Commit makes the result of all shards of a plan.
func Commit(ctx context.Context, r *CommitRequest, _ Observer) (*Committed, error) {
	m, err := shard.Read(ctx, r.Manifest)
	if err != nil {
		return nil, err
	}
	c, err := shard.Commit(ctx, m, shard.CommitOptions{Partial: r.Partial, Verify: r.Verify})
	if err != nil {
		return nil, err
	}
	return &Committed{c}, nil
}

// StatusRequest holds the options of Status.
type StatusRequest struct {
	// Manifest is the file or URI that Plan wrote.
	Manifest string `json:"manifest"`
}

// ShardStatus is the result of Status.
type ShardStatus struct{ *shard.Status }

// HasFindings reports whether all shards are done and Commit will have findings.
func (s *ShardStatus) HasFindings() bool { return s.Done == s.Total && s.Skipped+s.Findings > 0 }

// Status reports how far the shards of a plan are.
func Status(ctx context.Context, r *StatusRequest, _ Observer) (*ShardStatus, error) {
	m, err := shard.Read(ctx, r.Manifest)
	if err != nil {
		return nil, err
	}
	s, err := shard.StatusOf(ctx, m)
	if err != nil {
		return nil, err
	}
	return &ShardStatus{s}, nil
}

// DefaultAttemptAge is how long an attempt must have been silent for GC to remove its files.
const DefaultAttemptAge = 10 * time.Minute

// GCRequest holds the options of GC.
type GCRequest struct {
	// Manifest is the file or URI that Plan wrote.
	Manifest string `json:"manifest"`
	// Age is how long an attempt must have been silent. The default is DefaultAttemptAge.
	Age *time.Duration `json:"age"`
}

// GC removes the files of attempts that no receipt names.
func GC(ctx context.Context, r *GCRequest, _ Observer) (*shard.Collected, error) {
	m, err := shard.Read(ctx, r.Manifest)
	if err != nil {
		return nil, err
	}
	return shard.GC(ctx, m, valueOr(r.Age, DefaultAttemptAge))
}
