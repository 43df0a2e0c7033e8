package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/submit"
)

// Scenario is one row of the benchmark that LeRobot's users know
// (examples/scaling/benchmark_dataloading.py). Ours run on one set, all five.
type Scenario struct {
	Name    string
	Loader  string // map_style | streaming
	Store   string // "" (the local copy), "hub", "bucket"
	Nodes   int
	Workers int // 0: as many as there are cores
	Shuffle string

	// What Slurm is asked for.
	Memory string
	Hours  int
	CPUs   int
}

// ScenariosByName finds scenarios; "all" are all five.
func ScenariosByName(names []string) ([]Scenario, error) {
	if slices.Contains(names, "all") {
		return tables().Scenarios, nil
	}
	return report.Pick(
		"scenario",
		tables().Scenarios,
		func(s Scenario) string { return s.Name },
		names,
	)
}

// workload is what a rank of the scenario does, from what the user asked for.
func (s Scenario) workload(w Workload, batch int) Workload {
	w.BatchSize, w.Epochs, w.Shuffle = batch, 1, cmp.Or(w.Shuffle, s.Shuffle)
	if cores := runtime.GOMAXPROCS(0); w.Workers <= 0 {
		// the decoders are its threads, and more than cores of them only wait
		w.Workers = min(cmp.Or(s.Workers, cores), cores)
	}
	if s.Nodes > 1 {
		w.World = s.Nodes
	}
	return w
}

// stem is the name of a rank's files.
func stem(scenario string, batch, workers int, rank string, world int) string {
	if rank == "merged" {
		return fmt.Sprintf("%s_bs%d_w%d_merged%d", scenario, batch, workers, world)
	}
	return fmt.Sprintf("%s_bs%d_w%d_r%sof%d", scenario, batch, workers, rank, world)
}

// Link is a network as the loopback servers play it: a delay before each answer, and a rate that
// all answers of a node share.
type Link struct {
	Latency time.Duration `json:"latency"`
	MBps    float64       `json:"megabytes_per_s"` // 0: as fast as it goes
}

func (l Link) String() string {
	rate := "no limit of bandwidth"
	if l.MBps > 0 {
		rate = strconv.FormatFloat(l.MBps, 'g', -1, 64) + " MB/s"
	}
	return l.Latency.String() + " a request, " + rate
}

// serve starts a server of a folder for one node: its bandwidth is its own.
func (l Link) serve(dir string) (*loopback.Server, error) {
	return loopback.Serve(
		dir,
		loopback.Options{Latency: l.Latency, BytesPerSecond: int64(l.MBps * 1e6)},
	)
}

// DefaultLinks: the hub as a far public host, the bucket as an object store of the same region.
func DefaultLinks() map[string]Link {
	return map[string]Link{
		"hub":    {40 * time.Millisecond, 100},
		"bucket": {5 * time.Millisecond, 500},
	}
}

// Slurm is a chain of jobs: a scenario each, one after the other, so that they do not disturb each
// other.
type Slurm struct {
	Program   []string // robocache-bench, as the nodes see it
	URI       string   // of the set
	Options   []string // of `robocache-bench load`, without --scenario
	Scenarios []Scenario
	Workers   int // 0: the scenario's

	Account, Partition, QOS string // "" leaves them to the cluster
}

// CPUs are those of a job.
func (s *Slurm) CPUs(sc Scenario) int {
	if s.Workers > 0 {
		return s.Workers + 4
	}
	return sc.CPUs
}

// Line is what a job runs.
func (s *Slurm) Line(sc Scenario) string {
	words := slices.Concat(s.Program, []string{"load", s.URI, "--scenario", sc.Name}, s.Options)
	for i, w := range words {
		if strings.HasPrefix(w, "--out=") {
			words[i] += "/" + sc.Name // each job writes a report of its own
		}
	}
	line := submit.Words(words)
	if sc.Nodes > 1 {
		// One task a node; each is a rank. Quoted once more: srun starts a shell on each node.
		line = "srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c " + submit.Word(
			"RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "+line,
		)
	}
	return submit.Word("--wrap=" + line)
}

// Script is the chain as a shell script, for people to read, and for Submit to run.
func (s *Slurm) Script() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nset -eu\n")
	after := ""
	for _, sc := range s.Scenarios {
		fmt.Fprintf(&b, `job_%s=$(sbatch \
  --parsable \
  --job-name=dlbench_%[1]s \
  --nodes=%d \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=%d \
  --mem=%s \
  --time=%02d:00:00 \
  --output=%%x-%%j.out \
`, sc.Name, sc.Nodes, s.CPUs(sc), sc.Memory, sc.Hours)
		for _, o := range [][2]string{
			{"--account=", s.Account},
			{"--partition=", s.Partition},
			{"--qos=", s.QOS},
		} {
			if o[1] != "" {
				fmt.Fprintf(&b, "  %s \\\n", submit.Word(o[0]+o[1]))
			}
		}
		if after != "" {
			fmt.Fprintf(&b, "  --dependency=afterany:\"$job_%s\" \\\n", after)
		}
		fmt.Fprintf(
			&b,
			"  %s)\njob_%[2]s=${job_%[2]s%%%%;*}\necho \"job: $job_%[2]s\"\n",
			s.Line(sc),
			sc.Name,
		)
		after = sc.Name
	}
	fmt.Fprintf(&b, "echo \"last job: $job_%s\"\n", after)
	return b.String()
}

// Submit hands the chain to sbatch, and gives the jobs' numbers.
func (s *Slurm) Submit(ctx context.Context) (jobs []string, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Script())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "job: "); ok {
			jobs = append(jobs, id)
		}
	}
	if err != nil || slices.Contains(jobs, "") {
		return jobs, robocache.Unsupported(
			"load --submit",
			nil,
			"sbatch: %s",
			runners.LastLine(errs.String()),
		).
			WithCause(err).
			WithHint("--dry-run prints what would be submitted")
	}
	return jobs, nil
}
