package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/metrics"
	"github.com/goatnote-inc/robocache/submit"
	"github.com/goatnote-inc/robocache/verbs"
)

func newSubmit() *cobra.Command {
	c := &cobra.Command{
		Use:   "submit",
		Short: "run the shards of a manifest: local processes, Slurm, Kubernetes, Ray",
		Long: `submit passes the shards of a manifest from 'robocache plan' to an engine. Each shard is one
'robocache run', followed by one 'robocache commit' for all. Receipts record the finished shards.
After an interruption or a failure, the same command continues with the missing shards, also on
another engine.`,
		Example: `  robocache submit local --manifest ./plan.json -j 8
  robocache submit slurm --manifest s3://bucket/plan.json --out ./jobs --sbatch=--partition=cpu --now
  robocache submit kubernetes --manifest s3://bucket/plan.json --image registry/robocache:1 | kubectl apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			return misuse("submit: expected local, slurm, kubernetes or ray")
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return misuse("submit: expected local, slurm, kubernetes or ray")
		},
	}
	c.AddCommand(
		newSubmitLocal(),
		newSubmitSlurm(),
		newSubmitKubernetes(),
		newSubmitRay(),
		newSubmitTask(),
	)
	return c
}

// addSubmission adds the flags of every engine.
func addSubmission(c *cobra.Command, r *verbs.Submission) {
	fl := c.Flags()
	fl.StringVar(&r.Manifest, "manifest", "", "path or URI of the manifest, as the workers see it")
	fl.StringVar(
		&r.Program,
		"program",
		"",
		"robocache as the workers call it (default: this program)",
	)
	optionalInt(
		c,
		&r.Retries,
		"retries",
		verbs.DefaultRetries,
		"further tries of a shard that ends with a temporary failure (75) or a crash",
	)
	mustConfigure(c.MarkFlagRequired("manifest"))
}

// addPartial adds --partial.
func addPartial(c *cobra.Command, partial *bool) {
	c.Flags().
		BoolVar(
			partial,
			"partial",
			false,
			"commit the shards that are done, where others have failed for good",
		)
}

func newSubmitLocal() *cobra.Command {
	var r verbs.SubmitLocalRequest
	var address string
	c := &cobra.Command{
		Use:   "local --manifest M",
		Short: "run the shards as processes of this machine, then commit",
		Long: `local runs the missing shards as processes, --jobs at a time, and commits. A shard that ends with
exit code 75, a crash or a signal is tried again after a pause. A shard that can never succeed
(42, 70, 2, 10, 11, 12) stops the others, and its code is the exit code. The stopped shards can be
resumed. Ctrl-C and SIGTERM are passed on to the processes.`,
		Example: `  robocache submit local --manifest ./plan.json -j 8
  robocache submit local --manifest ./plan.json -j 2 --partial --json`,
		Args: cobra.NoArgs,
	}
	addSubmission(c, &r.Submission)
	addPartial(c, &r.Partial)
	optional(c, "jobs", &r.Jobs, c.Flags().IntP("jobs", "j", 1, "processes at once"))
	c.Flags().
		IntVar(
			&r.Threads,
			"threads",
			0,
			"threads and cores of each (0: the cores, shared among --jobs)",
		)
	metricsFlag(c, &address)
	verb := func(ctx context.Context, r *verbs.SubmitLocalRequest, o verbs.Observer) (
		*verbs.LocalRun,
		error,
	) {
		r.Stderr = c.ErrOrStderr()
		var server *metrics.Server // a nil server may be closed
		defer func() { server.Close() }()
		r.Begin = func(states func() submit.States) (err error) {
			server, err = serveMetrics(o, address, metrics.Shards(states))
			return err
		}
		o.Progress = newProgress(c, "submit")
		return verbs.SubmitLocal(ctx, r, o)
	}
	return addRun(c, &r, verb, func(w io.Writer, s *verbs.LocalRun) {
		fmt.Fprintf(
			w,
			"%d of %d shards done, %d failed, %d retries; committed\n",
			s.Done,
			s.Total,
			s.Failed,
			s.Retries,
		)
		if s.Commit != nil {
			printFindings(w, s.Commit.Findings)
		}
	})
}

func metricsFlag(c *cobra.Command, address *string) {
	c.Flags().
		StringVar(
			address,
			"metrics",
			"",
			"serve Prometheus metrics and /healthz during the run: :9400 (on this machine only), or "+
				"0.0.0.0:9400",
		)
}

// serveMetrics serves metrics if address is not empty. Otherwise the server is nil, which may be
// closed.
func serveMetrics(
	o verbs.Observer,
	address string,
	of ...prometheus.Collector,
) (*metrics.Server, error) {
	if address == "" {
		return nil, nil
	}
	s, err := metrics.Serve(address, of...)
	if err == nil {
		o.Note(fmt.Sprintf("metrics at http://%s/metrics", s.Addr()))
	}
	return s, err
}

// runMetrics serves the metrics of a run. The caller must close the result.
func runMetrics(o verbs.Observer, address string, shard int) (*metrics.Running, error) {
	r := metrics.NewRunning(shard)
	var err error
	if r.Server, err = serveMetrics(o, address, r); err != nil {
		return nil, err
	}
	return r, nil
}

func newSubmitSlurm() *cobra.Command {
	var r verbs.SubmitSlurmRequest
	c := &cobra.Command{
		Use: "slurm --manifest M --out DIR",
		Short: "write, and with --now submit, an array job of the missing shards and the commit " +
			"behind it",
		Long: `slurm writes DIR/array.sh (one shard), commit.sh and submit.sh (the calls of sbatch). You can read
them before you run them. --now runs submit.sh. Slurm requeues a task if its node fails. A task
requeues itself after a temporary failure. Before its time limit it stops so that it can be
resumed. The commit depends on all arrays (afterok, or afterany with --partial). More shards than
MaxArraySize become several arrays.`,
		Example: `  robocache submit slurm --manifest /shared/plan.json --out ./jobs --parallel 64 --sbatch=--partition=cpu --sbatch=--time=8:00:00
  robocache submit slurm --manifest s3://bucket/plan.json --out ./jobs --sbatch=--gpus=1 --now`,
		Args: cobra.NoArgs,
	}
	addSubmission(c, &r.Submission)
	addPartial(c, &r.Partial)
	fl := c.Flags()
	fl.StringVar(&r.Out, "out", "", "the folder for the scripts")
	fl.StringVar(
		&r.Logs,
		"logs",
		verbs.DefaultLogs,
		"the folder for the jobs' output, which the nodes see; relative to --out",
	)
	fl.StringVar(&r.Name, "name", verbs.DefaultJobName, "the jobs' name")
	fl.IntVar(
		&r.Parallel,
		"parallel",
		0,
		"shards at once (0: as the cluster allows); several arrays then run one after the other",
	)
	fl.IntVar(
		&r.MaxArray,
		"max-array",
		0,
		"the cluster's MaxArraySize (0: ask it; 1001 where it does not answer)",
	)
	fl.StringArrayVar(
		&r.Sbatch,
		"sbatch",
		nil,
		"an option of sbatch for all jobs, such as --partition=cpu; may be given several times",
	)
	fl.StringArrayVar(
		&r.SbatchArray,
		"sbatch-array",
		nil,
		"an option of sbatch for the arrays alone, such as --gpus=1",
	)
	fl.BoolVar(&r.Now, "now", false, "submit the jobs")
	mustConfigure(c.MarkFlagRequired("out"))
	rejectEmpty(c, "name", "logs")
	return addRun(c, &r, verbs.SubmitSlurm, func(w io.Writer, j *verbs.SlurmJobs) {
		fmt.Fprintf(w, "%d shards; scripts in %s\n", j.Shards, j.Out)
		if len(j.Jobs) > 0 {
			fmt.Fprintf(
				w,
				"submitted: %s, commit %s\n",
				strings.Join(j.Jobs[:len(j.Jobs)-1], ", "),
				j.Jobs[len(j.Jobs)-1],
			)
		} else {
			fmt.Fprintf(w, "submit with %s, or with --now\n", filepath.Join(j.Out, "submit.sh"))
		}
	})
}

func newSubmitKubernetes() *cobra.Command {
	var r verbs.SubmitKubernetesRequest
	c := &cobra.Command{
		Use:   "kubernetes --manifest M --image IMAGE",
		Short: "print an Indexed Job of the shards and the Job of the commit",
		Long: `kubernetes prints two Jobs for kubectl: an Indexed Job whose index is the shard, and a commit,
which waits until all shards have receipts. It sends nothing to a cluster. --out writes a folder
for kustomize instead. The Dockerfile of a checkout builds the image. Retries are counted per
index and depend on the exit code: a code that no retry can help fails its index and ends the Job.
Drained nodes do not count. Pods run as user 65532 on a read-only root file system, and can write
to /tmp.`,
		Example: `  robocache submit kubernetes --manifest s3://bucket/plan.json --image registry/robocache:1 --parallel 50 --env-from s3-keys | kubectl apply -f -
  robocache submit kubernetes --manifest s3://bucket/plan.json --image registry/robocache:1-gpu --gpus 1 --out ./deploy`,
		Args: cobra.NoArgs,
	}
	addSubmission(c, &r.Submission)
	fl := c.Flags()
	fl.StringVar(&r.Image, "image", "", "the image that holds robocache")
	fl.StringVar(&r.Name, "name", verbs.DefaultJobName, "begin of the Jobs' names")
	fl.StringVar(&r.Namespace, "namespace", "", "of the folder's kustomization")
	fl.StringVar(
		&r.ServiceAccount,
		"service-account",
		"",
		"of the pods, for credentials by web identity",
	)
	fl.IntVar(
		&r.Shards,
		"shards",
		0,
		"shards of the manifest (0: it is asked, which needs the manifest here too)",
	)
	optionalInt(c, &r.Parallel, "parallel", verbs.DefaultPodsAtOnce, "shards at once")
	fl.StringVar(&r.CPU, "cpu", verbs.DefaultShardCPU, "cores of a shard")
	fl.StringVar(&r.Memory, "memory", verbs.DefaultShardMemory, "memory of a shard")
	fl.StringVar(
		&r.GPUs,
		"gpus",
		"",
		"GPUs of a shard: a number of nvidia.com/gpu, or RESOURCE=NUMBER",
	)
	fl.StringVar(&r.Scratch, "scratch", verbs.DefaultShardScratch, "size of /tmp")
	optional(
		c,
		"wait",
		&r.Wait,
		fl.Duration("wait", verbs.DefaultCommitWait, "how long the commit waits for the shards"),
	)
	fl.StringSliceVar(
		&r.EnvFrom,
		"env-from",
		nil,
		"secrets whose keys become environment variables",
	)
	fl.StringSliceVar(&r.Volume, "volume", nil, "volumes, as CLAIM:/path")
	fl.StringVar(&r.Out, "out", "", "write a folder for kustomize")
	mustConfigure(c.MarkFlagRequired("image"))
	rejectEmpty(c, "name", "cpu", "memory", "scratch")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		yaml, err := verbs.SubmitKubernetes(cmd.Context(), &r, observerOf(cmd))
		if err == nil {
			_, err = cmd.OutOrStdout().Write(yaml)
		}
		return err
	}
	return c
}

func newSubmitRay() *cobra.Command {
	var r verbs.Submission
	var partial bool
	var python, address string
	var cpus, gpus float64
	c := &cobra.Command{
		Use:   "ray --manifest M",
		Short: "run the shards as tasks of a Ray cluster, then commit",
		Long: `ray calls robocache.ray.run(manifest) in Python, which must have ray and this package. Each shard
is a task. It is tried again depending on its exit code, and if a worker or node dies. The report
is printed as JSON. The exit code is that of the shard that failed for good.`,
		Example: `  robocache submit ray --manifest s3://bucket/plan.json --address auto --num-cpus 4`,
		Args:    cobra.NoArgs,
	}
	addSubmission(c, &r)
	addPartial(c, &partial)
	mustConfigure(c.Flags().MarkHidden("program"))
	fl := c.Flags()
	fl.StringVar(
		&python,
		"python",
		"",
		"the Python that has ray and robocache (default: the one that runs this, else python3)",
	)
	fl.StringVar(
		&address,
		"address",
		"",
		"of the cluster (default: RAY_ADDRESS, else one of this machine)",
	)
	fl.Float64Var(&cpus, "num-cpus", 1, "CPUs of a shard")
	fl.Float64Var(&gpus, "num-gpus", 0, "GPUs of a shard")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if itself, err := submit.Itself(); python == "" && err == nil && len(itself) > 1 {
			python = itself[0]
		}
		retries := verbs.DefaultRetries
		if r.Retries != nil {
			retries = *r.Retries
		}
		args := []string{
			"-m",
			"robocache.ray",
			r.Manifest,
			"--num-cpus",
			fmt.Sprint(cpus),
			"--num-gpus",
			fmt.Sprint(gpus),
			"--retries",
			strconv.Itoa(retries),
		}
		if address != "" {
			args = append(args, "--address", address)
		}
		if partial {
			args = append(args, "--partial")
		}
		err := submit.Exec(
			cmd.Context(),
			cmd.OutOrStdout(),
			cmd.ErrOrStderr(),
			cmp.Or(python, "python3"),
			args...)
		if child := (*submit.Failed)(nil); errors.As(err, &child) && child.Code == exitFindings {
			return errFindings
		}
		return err
	}
	return c
}

// newSubmitTask returns the command that a pod runs. It maps exit code 3 to 0, because schedulers
// treat every other code as a failure, and an image may have no shell.
func newSubmitTask() *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:    "task -- VERB …",
		Short:  "run a verb for a scheduler: 3 becomes 0",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for {
				code := runCommand(
					cmd.Context(),
					newRoot(),
					args,
					cmd.OutOrStdout(),
					cmd.ErrOrStderr(),
				)
				switch {
				case code == exitDone || code == exitFindings:
					return nil
				case !wait || code != 75:
					return &submit.Failed{Verb: args[0], Code: code, Last: "see above"}
				}
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(taskPause):
				}
			}
		},
	}
	c.Flags().
		BoolVar(
			&wait,
			"wait",
			false,
			"try again while it ends with 75, as commit does until all shards are done",
		)
	return c
}

// taskPause is the time between the tries of submit task --wait.
var taskPause = 30 * time.Second
