package verbs

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/submit"
)

// Defaults of the requests that submit shards.
const (
	DefaultRetries      = 5
	DefaultJobName      = "robocache"
	DefaultLogs         = "logs"
	DefaultPodsAtOnce   = 8
	DefaultShardCPU     = "2"
	DefaultShardMemory  = "8Gi"
	DefaultShardScratch = "32Gi"
	DefaultCommitWait   = 7 * 24 * time.Hour
)

// Submission holds the options of every verb that submits the shards of a plan.
type Submission struct {
	// Manifest is the path or URI of the manifest, as the workers see it.
	Manifest string `json:"manifest"`
	// Program is robocache as the workers call it; empty: this program.
	Program string `json:"program"`
	// Retries is the number of further tries of a shard after a temporary failure or a crash. The
	// default is DefaultRetries.
	Retries *int `json:"retries"`
}

// plan asks the workers' program for the shards that are missing.
func (s *Submission) plan(ctx context.Context) (submit.Plan, error) {
	program := strings.Fields(s.Program)
	if len(program) == 0 {
		var err error
		if program, err = submit.Itself(); err != nil {
			return submit.Plan{}, err
		}
	}
	if s.retries() < 0 {
		return submit.Plan{}, misuse("%s: expected 0 or more", optionName("retries"))
	}
	manifest := s.Manifest
	if !strings.Contains(manifest, "://") {
		var err error
		if manifest, err = filepath.Abs(manifest); err != nil {
			return submit.Plan{}, err
		}
	}
	p, err := submit.Look(ctx, program, manifest)
	if err != nil {
		return submit.Plan{}, err
	}
	return *p, nil
}

func (s *Submission) retries() int { return valueOr(s.Retries, DefaultRetries) }

// SubmitLocalRequest holds the options of SubmitLocal.
type SubmitLocalRequest struct {
	Submission
	// Partial commits the shards that are done if others have failed for good.
	Partial bool `json:"partial"`
	// Jobs is the number of processes at once. The default is 1.
	Jobs *int `json:"jobs"`
	// Threads is the number of threads and cores of each; 0: the cores, shared among Jobs.
	Threads int `json:"threads"`
	// Stderr receives the output of the processes; it must not be nil.
	Stderr io.Writer `json:"-"`
	// Begin is called before the first process starts, if it is not nil. Its error ends the verb.
	Begin func(states func() submit.States) error `json:"-"`
}

// LocalRun is the result of SubmitLocal.
type LocalRun struct {
	submit.States
	hasFindings bool
}

// HasFindings reports whether the commit had findings.
func (r *LocalRun) HasFindings() bool { return r.hasFindings }

// SubmitLocal runs the missing shards of a plan as processes of this machine, and commits.
func SubmitLocal(ctx context.Context, r *SubmitLocalRequest, o Observer) (*LocalRun, error) {
	jobs := valueOr(r.Jobs, 1)
	if jobs < 1 {
		return nil, misuse("%s: expected 1 or more", optionName("jobs"))
	}
	plan, err := r.plan(ctx)
	if err != nil {
		return nil, err
	}
	l := &submit.Local{
		Plan: plan, Jobs: jobs, Threads: cmp.Or(r.Threads, max(runtime.NumCPU()/jobs, 1)),
		Retries: r.retries(), Pause: time.Second, Partial: r.Partial, Stderr: r.Stderr,
	}
	if r.Begin != nil {
		if err := r.Begin(l.States); err != nil {
			return nil, err
		}
	}
	show := o.countIn("shards")
	hasFindings, err := l.Run(ctx, func(s submit.States) {
		show(int64(s.Done+s.Failed), int64(s.Total))
	})
	if err != nil {
		return nil, err
	}
	return &LocalRun{l.States(), hasFindings}, nil
}

// SubmitSlurmRequest holds the options of SubmitSlurm.
type SubmitSlurmRequest struct {
	Submission
	// Partial commits the shards that are done if others have failed for good.
	Partial bool `json:"partial"`
	// Out is the folder for the scripts.
	Out string `json:"out"`
	// Logs is the folder of the jobs' output, relative to Out; empty: DefaultLogs.
	Logs string `json:"logs"`
	// Name is the jobs' name; empty: DefaultJobName.
	Name string `json:"name"`
	// Parallel is the number of shards at once; 0: as the cluster allows.
	Parallel int `json:"parallel"`
	// MaxArray is the cluster's MaxArraySize; 0: the cluster is asked.
	MaxArray int `json:"max_array"`
	// Sbatch lists options of sbatch for all jobs.
	Sbatch []string `json:"sbatch"`
	// SbatchArray lists options of sbatch for the arrays alone.
	SbatchArray []string `json:"sbatch_array"`
	// Now submits the jobs.
	Now bool `json:"now"`
}

// SlurmJobs is the result of SubmitSlurm.
type SlurmJobs struct {
	Shards int      `json:"shards"` // to be run
	Out    string   `json:"out"`
	Jobs   []string `json:"jobs,omitempty"` // the arrays, and the commit last; with Now
}

// SubmitSlurm writes an array job of the missing shards of a plan with the commit behind it, and
// submits them if r.Now is set. It returns the jobs together with an error if not all could be
// submitted.
func SubmitSlurm(ctx context.Context, r *SubmitSlurmRequest, _ Observer) (*SlurmJobs, error) {
	plan, err := r.plan(ctx)
	if err != nil {
		return nil, err
	}
	s := &submit.Slurm{
		Plan: plan, Name: cmp.Or(r.Name, DefaultJobName), Logs: cmp.Or(r.Logs, DefaultLogs),
		Parallel: r.Parallel, Retries: r.retries(), MaxArray: r.MaxArray, Partial: r.Partial,
		Sbatch: r.Sbatch, Array: r.SbatchArray,
	}
	if s.Out, err = filepath.Abs(r.Out); err != nil {
		return nil, err
	}
	if err := s.Write(ctx); err != nil {
		return nil, err
	}
	j := &SlurmJobs{Shards: len(s.Missing), Out: s.Out}
	if r.Now {
		j.Jobs, err = s.Submit(ctx)
	}
	return j, err
}

// SubmitKubernetesRequest holds the options of SubmitKubernetes.
type SubmitKubernetesRequest struct {
	Submission
	// Image is the image that holds robocache.
	Image string `json:"image"`
	// Name is the beginning of the Jobs' names; empty: DefaultJobName.
	Name string `json:"name"`
	// Namespace is the namespace of the folder's kustomization.
	Namespace string `json:"namespace"`
	// ServiceAccount is the account of the pods.
	ServiceAccount string `json:"service_account"`
	// Shards is the number of shards of the manifest; 0: the manifest is read.
	Shards int `json:"shards"`
	// Parallel is the number of shards at once. The default is DefaultPodsAtOnce.
	Parallel *int `json:"parallel"`
	// CPU is the number of cores of a shard; empty: DefaultShardCPU.
	CPU string `json:"cpu"`
	// Memory is the memory of a shard; empty: DefaultShardMemory.
	Memory string `json:"memory"`
	// GPUs is the number of GPUs of a shard, or RESOURCE=NUMBER.
	GPUs string `json:"gpus"`
	// Scratch is the size of /tmp; empty: DefaultShardScratch.
	Scratch string `json:"scratch"`
	// Wait is the time that the commit waits for the shards. The default is DefaultCommitWait.
	Wait *time.Duration `json:"wait"`
	// EnvFrom lists secrets whose keys become environment variables.
	EnvFrom []string `json:"env_from"`
	// Volume lists volumes as CLAIM:/path.
	Volume []string `json:"volume"`
	// Out is a folder to write for kustomize.
	Out string `json:"out"`
}

// SubmitKubernetes returns the YAML of an Indexed Job of the shards of a plan and of the Job of the
// commit. If r.Out is set it writes a folder for kustomize instead.
func SubmitKubernetes(
	ctx context.Context, r *SubmitKubernetesRequest, _ Observer,
) (yaml []byte, err error) {
	k := &submit.Kubernetes{
		Name: cmp.Or(r.Name, DefaultJobName), Namespace: r.Namespace, Image: r.Image,
		ServiceAccount: r.ServiceAccount, Parallel: valueOr(r.Parallel, DefaultPodsAtOnce),
		Retries: r.retries(), Wait: valueOr(r.Wait, DefaultCommitWait),
		CPU: cmp.Or(r.CPU, DefaultShardCPU), Memory: cmp.Or(r.Memory, DefaultShardMemory),
		GPUs: r.GPUs, Scratch: cmp.Or(r.Scratch, DefaultShardScratch),
		EnvFrom: r.EnvFrom, Claims: r.Volume,
	}
	k.Total, k.Manifest = r.Shards, r.Manifest
	if r.Shards <= 0 {
		if k.Plan, err = r.plan(ctx); err != nil {
			return nil, err
		}
	}
	if r.Out != "" {
		return nil, k.Write(r.Out)
	}
	return k.YAML()
}
