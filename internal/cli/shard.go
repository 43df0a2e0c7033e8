package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/metrics"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/verbs"
)

func newPlan() *cobra.Command {
	r := verbs.PlanRequest{Tool: "robocache " + fullVersion()}
	c := &cobra.Command{
		Use:   "plan JOB SRC DST --shards N --manifest M",
		Short: "cut work on a whole dataset into independent shards, for a cluster",
		Long: `plan examines a source and writes a manifest: the job, its options, and the episodes of each
shard. The same source and options give the same manifest, byte for byte. 'run' makes one shard,
on any machine, and 'commit' combines the shards.

--estimate runs a few episodes through the job into a temporary store, and reports what the whole
would take. It writes a manifest only if --manifest is given.

Jobs: ` + strings.Join(
			shard.Jobs(),
			", ",
		) + `. The options of convert are those of 'robocache convert'; resample is convert with --hz, reencode with --video-codec.`,
		Example: `  robocache plan convert ./recordings ./set --hz 50 --shards 64 --manifest set.json
  robocache run --manifest set.json --shard 0
  robocache status --manifest set.json
  robocache commit --manifest set.json
  robocache plan convert s3://lab/recordings s3://lab/set --hz 50 --shards 640 --estimate --workers 64 --price-per-core-hour 0.04`,
		Args: cobra.ExactArgs(3),
	}
	addConversion(c, &r.Conversion)
	optionalInt(c, &r.Shards, "shards", 1, "how many shards")
	c.Flags().
		StringVar(
			&r.Balance,
			"balance",
			"bytes",
			"what shards have alike: "+strings.Join(shard.Balances, ", "),
		)
	c.Flags().StringVar(&r.Manifest, "manifest", "", "the file to write")
	c.Flags().BoolVar(&r.Decode, "decode", false, "doctor: also decode every image (slow)")
	c.Flags().BoolVar(&r.Deep, "deep", false, "doctor: also read every column to its last page")
	c.Flags().
		BoolVar(
			&r.Estimate,
			"estimate",
			false,
			"measure a few episodes, and say what the whole would take and cost",
		)
	c.Flags().
		IntVar(
			&r.Trajectories,
			"trajectories",
			0,
			"estimate: for as many trajectories as this, alike (default: the source's)",
		)
	optionalInt(c, &r.Workers, "workers", 1, "estimate: shards at once, a core each")
	c.Flags().
		Float64Var(
			&r.Retried,
			"retried",
			0,
			"estimate: the share of shards that is run a second time, such as 0.02",
		)
	c.Flags().
		Float64Var(
			&r.PricePerCoreHour,
			"price-per-core-hour",
			0,
			"estimate: what an hour of a worker costs",
		)
	c.Flags().
		Float64Var(
			&r.PricePerGB,
			"price-per-gb",
			0,
			"estimate: what reading or writing 10⁹ bytes costs",
		)
	c.Flags().
		StringVar(&r.EstimateIn, "estimate-in", "", "estimate: the folder or URI in which the "+
			"sample is written and removed again, such as one next to DST (default: this "+
			"machine's temporary folder)")
	rejectEmpty(c, "balance")
	plan := func(ctx context.Context, r *verbs.PlanRequest, o verbs.Observer) (
		*verbs.Planned,
		error,
	) {
		// the process reads much and keeps little, so fewer collections save time
		debug.SetGCPercent(400)
		return verbs.Plan(ctx, r, o)
	}
	return addRun(c, &r, plan, func(w io.Writer, p *verbs.Planned) {
		if e := p.Estimate; e != nil {
			fmt.Fprintf(
				w,
				"%s: %d episodes, about %d frames, in %d shards; reckoned from %d episodes, "+
					"which took %.1f s on one thread\n",
				p.Job,
				e.Episodes,
				e.Frames,
				e.Shards,
				e.Sample.Episodes,
				e.Sample.Seconds,
			)
			rows := [][]string{
				{"stage", "bytes a shard", "seconds a shard", "bytes in all", "core hours in all"},
			}
			for _, s := range e.Stages {
				rows = append(
					rows,
					[]string{
						s.Name,
						bytesText(s.ShardBytes),
						fmt.Sprintf("%.3g", s.ShardSeconds),
						bytesText(s.Bytes),
						fmt.Sprintf("%.3g", s.Seconds/3600),
					},
				)
			}
			printTable(w, rows)
			fmt.Fprintf(
				w,
				"on %d workers: %s, %.3g core hours with retries, cost %.2f\n",
				e.Workers,
				time.Duration(e.Elapsed*1e9).Round(time.Second),
				e.Seconds/3600,
				e.Cost,
			)
		}
		if p.Manifest == "" {
			return
		}
		fmt.Fprintf(
			w,
			"wrote %s: %s, %d episodes, %d frames, %s in %d shards of at most %s\n",
			p.Manifest,
			p.Job,
			p.Episodes,
			p.Frames,
			bytesText(p.Bytes),
			p.Shards,
			bytesText(p.Heaviest),
		)
		printFindings(w, p.Findings)
	})
}

// addManifest adds --manifest.
func addManifest(c *cobra.Command, manifest *string) {
	c.Flags().StringVar(manifest, "manifest", "", "what plan wrote: a file or a URI")
	mustConfigure(c.MarkFlagRequired("manifest"))
}

func newRun() *cobra.Command {
	r := verbs.RunRequest{Tool: "robocache " + fullVersion()}
	var address string
	c := &cobra.Command{
		Use:   "run --manifest M --shard I",
		Short: "make one shard of a plan",
		Long: `run makes one shard: the one of --shard, else of SLURM_ARRAY_TASK_ID, else of
JOB_COMPLETION_INDEX. If the shard is done already, the exit code is 0 at once. Several attempts
at one shard do no harm: one of them wins. On SIGTERM and SIGUSR1 it ends with exit code 75, and
can be run again. Exit code 42 means that the shard can never succeed: the source changed, cannot
be read, or cannot be written in the format.`,
		Example: "  robocache run --manifest set.json --shard 3\n" +
			"  srun robocache run --manifest s3://bucket/set.json",
		Args: cobra.NoArgs,
	}
	addManifest(c, &r.Manifest)
	optionalInt(c, &r.Shard, "shard", -1, "its number, from 0")
	metricsFlag(c, &address)
	c.Flags().
		IntVar(
			&r.Threads,
			"threads",
			0,
			"episodes that are read and encoded at once (0: the number of CPUs)",
		)
	verb := func(ctx context.Context, r *verbs.RunRequest, o verbs.Observer) (
		*verbs.ShardRun,
		error,
	) {
		return runShard(ctx, r, o, address)
	}
	return addRun(c, &r, verb, func(w io.Writer, r *verbs.ShardRun) {
		if r.Already {
			fmt.Fprintf(w, "shard %d is done already, by attempt %s\n", r.Shard, r.Attempt)
			return
		}
		fmt.Fprintf(
			w,
			"shard %d: %d episodes, %d frames, %s in %.1f s\n",
			r.Shard,
			r.Report.Episodes,
			r.Report.Frames,
			bytesText(r.Bytes),
			r.Seconds,
		)
		for _, s := range r.Skipped {
			fmt.Fprintf(w, "  episode %d was left out: %s\n", s.Episode, s.Reason)
		}
	})
}

// runShard writes a shard until it is done or a scheduler stops the process. It logs the start and
// the end. If address is not empty, it serves metrics.
func runShard(
	parent context.Context, r *verbs.RunRequest, o verbs.Observer, address string,
) (*verbs.ShardRun, error) {
	ctx, stop := withStopSignals(parent)
	defer stop()
	var running *metrics.Running // nil until the run has started
	log, start := slog.Default(), time.Now()
	r.Begin = func(m *shard.Manifest, number int) (err error) {
		if running, err = runMetrics(o, address, number); err != nil {
			return err
		}
		log = slog.With("run", m.Run(), "shard", number)
		log.Info("a shard begins", "shards", len(m.Shards), "threads", r.Threads)
		if number < len(m.Shards) {
			running.Episodes(0, len(m.Shards[number].Episodes))
		}
		return nil
	}
	show := o.Progress
	o.Progress = func(p robocache.Progress) {
		if p.TotalEpisodes > 0 {
			running.Episodes(p.Episodes, p.TotalEpisodes)
		}
		show(p)
	}
	made, err := verbs.Run(ctx, r, o)
	if running == nil {
		return nil, err
	}
	defer running.Close()
	code := exitCode(ctx, err)
	if err == nil && made.HasFindings() {
		code = exitFindings
	}
	log.Info("a shard ended", "exit_code", code, "seconds", time.Since(start).Seconds())
	return made, err
}

// withStopSignals returns a context that is canceled with the cause shard.ErrStopped by the signals
// that schedulers send.
func withStopSignals(parent context.Context) (context.Context, func()) {
	// SIGTERM also cancels the parent, so the signal is checked first.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	go func() {
		select {
		case <-signals:
			cancel(shard.ErrStopped)
		case <-ctx.Done():
		case <-parent.Done():
			select {
			case <-signals:
				cancel(shard.ErrStopped)
			case <-time.After(20 * time.Millisecond):
				cancel(parent.Err())
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

func newCommit() *cobra.Command {
	var r verbs.CommitRequest
	c := &cobra.Command{
		Use:   "commit --manifest M",
		Short: "put the shards of a plan together",
		Long: `commit combines all shards into the result. If shards are missing, it fails with exit code 75,
unless --partial accepts the shards that are done. It can be killed and run again at any time. A
second run does nothing. Its report and its exit code equal those of the job in one process: 3 if
a finding is a warning or an error, or if episodes were left out.`,
		Example: "  robocache commit --manifest set.json",
		Args:    cobra.NoArgs,
	}
	addManifest(c, &r.Manifest)
	c.Flags().BoolVar(&r.Partial, "partial", false, "make a result of the shards that are there")
	c.Flags().
		BoolVar(
			&r.Verify,
			"verify",
			false,
			"read every file of the shards first, and compare its checksum; sizes are always "+
				"compared",
		)
	return addRun(c, &r, verbs.Commit, func(w io.Writer, r *verbs.Committed) {
		fmt.Fprintf(
			w,
			"committed %s: %d shards, %d episodes, %d frames, %s\n",
			r.Destination,
			r.Shards,
			r.Episodes,
			r.Frames,
			bytesText(r.Bytes),
		)
		for _, s := range r.Skipped {
			fmt.Fprintf(w, "  episode %d was left out: %s\n", s.Episode, s.Reason)
		}
		printFindings(w, r.Findings)
	})
}

func newStatus() *cobra.Command {
	var r verbs.StatusRequest
	c := &cobra.Command{
		Use:   "status --manifest M",
		Short: "how far the shards of a plan are",
		Long: "status reads what the shards wrote at the destination, so that it works for " +
			"any scheduler. It prints the shards that are missing as an option of sbatch. When " +
			"all are done its exit code is that of commit.",
		Example: "  robocache status --manifest set.json --json",
		Args:    cobra.NoArgs,
	}
	addManifest(c, &r.Manifest)
	return addRun(c, &r, verbs.Status, func(w io.Writer, s *verbs.ShardStatus) {
		fmt.Fprintf(
			w,
			"%d of %d shards done, %d running, %d failed, %d lost; %d episodes, %d frames, %s\n",
			s.Done,
			s.Total,
			s.Running,
			s.Failed,
			s.Lost,
			s.Episodes,
			s.Frames,
			bytesText(s.Bytes),
		)
		for _, e := range s.Errors {
			fmt.Fprintf(w, "  failed: %s\n", e)
		}
		if s.ETASeconds > 0 {
			fmt.Fprintf(w, "  about %s left\n", time.Duration(s.ETASeconds*1e9).Round(time.Second))
		}
		if s.Array != "" {
			fmt.Fprintf(w, "  missing: %s\n", s.Array)
		}
		if s.Findings > 0 {
			fmt.Fprintf(w, "  %d warnings and errors: commit lists them\n", s.Findings)
		}
		if s.Committed {
			fmt.Fprintln(w, "  committed")
		}
	})
}

func newGC() *cobra.Command {
	var r verbs.GCRequest
	c := &cobra.Command{
		Use:   "gc --manifest M",
		Short: "remove what attempts left that no receipt names",
		Long: "gc removes the staged files of attempts that lost, failed or died. An attempt " +
			"that was heard of within --age, at a shard that is not done, is left alone.",
		Example: "  robocache gc --manifest set.json",
		Args:    cobra.NoArgs,
	}
	addManifest(c, &r.Manifest)
	const age = verbs.DefaultAttemptAge
	optional(
		c,
		"age",
		&r.Age,
		c.Flags().Duration("age", age, "how long an attempt must have been silent"),
	)
	return addRun(c, &r, verbs.GC, func(w io.Writer, r *shard.Collected) {
		fmt.Fprintf(
			w,
			"removed %d files of %d attempts, %s; %d attempts may be running\n",
			r.Files,
			r.Attempts,
			bytesText(r.Bytes),
			r.Kept,
		)
	})
}
