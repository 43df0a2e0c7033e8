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

// Scenario is one row of the benchmark that LeRobot users know
// (examples/scaling/benchmark_dataloading.py). All five scenarios run on one set.
type Scenario struct {
	Name    string
	Loader  string // map_style | streaming
	Store   string // "" (local copy) | hub | bucket
	Nodes   int
	Workers int // 0 means the number of cores
	Shuffle string

	// Resources of the Slurm job.
	Memory string
	Hours  int
	CPUs   int
}

// ScenariosByName returns the named scenarios. The name "all" selects all five.
func ScenariosByName(names []string) ([]Scenario, error) {
	if slices.Contains(names, "all") {
		return caseTables().Scenarios, nil
	}
	return report.Pick(
		"scenario",
		caseTables().Scenarios,
		func(s Scenario) string { return s.Name },
		names,
	)
}

// rankWorkload returns the workload of one rank: w with the defaults of the scenario.
func (s Scenario) rankWorkload(w Workload, batch int) Workload {
	w.BatchSize, w.Epochs, w.Shuffle = batch, 1, cmp.Or(w.Shuffle, s.Shuffle)
	if cores := runtime.GOMAXPROCS(0); w.Workers <= 0 {
		// More decoder threads than cores would only wait.
		w.Workers = min(cmp.Or(s.Workers, cores), cores)
	}
	if s.Nodes > 1 {
		w.World = s.Nodes
	}
	return w
}

// rankFileStem returns the file name, without extension, of the results of a rank.
func rankFileStem(scenario string, batch, workers int, rank string, world int) string {
	if rank == "merged" {
		return fmt.Sprintf("%s_bs%d_w%d_merged%d", scenario, batch, workers, world)
	}
	return fmt.Sprintf("%s_bs%d_w%d_r%sof%d", scenario, batch, workers, rank, world)
}

// Link describes a simulated network: a delay before each response, and a bandwidth that all
// responses of one node share.
type Link struct {
	Latency time.Duration `json:"latency"`
	MBps    float64       `json:"megabytes_per_s"` // 0 means unlimited
}

func (l Link) String() string {
	rate := "no limit of bandwidth"
	if l.MBps > 0 {
		rate = strconv.FormatFloat(l.MBps, 'g', -1, 64) + " MB/s"
	}
	return l.Latency.String() + " a request, " + rate
}

// serveFolder starts a server for one node. Each server has its own bandwidth limit.
func (l Link) serveFolder(dir string) (*loopback.Server, error) {
	return loopback.Serve(
		dir,
		loopback.Options{Latency: l.Latency, BytesPerSecond: int64(l.MBps * 1e6)},
	)
}

// DefaultLinks returns the simulated networks. The hub resembles a distant public host, the bucket
// an object store in the same region.
func DefaultLinks() map[string]Link {
	return map[string]Link{
		"hub":    {40 * time.Millisecond, 100},
		"bucket": {5 * time.Millisecond, 500},
	}
}

// Slurm describes a chain of jobs, one per scenario. The jobs run one after the other, so that they
// do not disturb each other.
type Slurm struct {
	Program   []string // the robocache-bench command on the nodes
	URI       string   // the dataset
	Options   []string // options of `robocache-bench load`, without --scenario
	Scenarios []Scenario
	Workers   int // 0 means the scenario's default

	Account, Partition, QOS string // empty: the cluster's default
}

// CPUs returns the number of CPUs that the job requests.
func (s *Slurm) CPUs(sc Scenario) int {
	if s.Workers > 0 {
		return s.Workers + 4
	}
	return sc.CPUs
}

// Line returns the command of a job, as an option of sbatch.
func (s *Slurm) Line(sc Scenario) string {
	words := slices.Concat(s.Program, []string{"load", s.URI, "--scenario", sc.Name}, s.Options)
	for i, w := range words {
		if strings.HasPrefix(w, "--out=") {
			words[i] += "/" + sc.Name // each job writes its own report
		}
	}
	line := submit.Words(words)
	if sc.Nodes > 1 {
		// srun starts one task per node; each task is one rank. The command is quoted again because
		// srun starts a shell on each node.
		line = "srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c " + submit.Word(
			"RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "+line,
		)
	}
	return submit.Word("--wrap=" + line)
}

// Script returns the chain as a shell script, which people can read and Submit runs.
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

// Submit submits the chain with sbatch and returns the job ids.
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
