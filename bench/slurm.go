package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
)

// Slurm is a chain of jobs: a scenario each, one after the other, so that they do not disturb each other.
type Slurm struct {
	Program   string   // this robocache, as the nodes see it
	URI       string   // of the set
	Options   []string // of `bench load`, without --scenario
	Scenarios []Scenario
	Workers   int // 0: the scenario's

	Account, Partition, QOS string // "" leaves them to the cluster
}

// job is the arguments of one sbatch.
func (s *Slurm) job(sc Scenario, after string) []string {
	cpus := sc.CPUs
	if s.Workers > 0 {
		cpus = s.Workers + 4
	}
	a := []string{"--parsable", "--job-name=dlbench_" + sc.Name, "--nodes=" + strconv.Itoa(sc.Nodes), "--ntasks-per-node=1", "--gpus-per-node=1", "--cpus-per-task=" + strconv.Itoa(cpus),
		"--mem=" + sc.Memory, fmt.Sprintf("--time=%02d:00:00", sc.Hours), "--output=%x-%j.out"}
	for _, o := range [][2]string{{"account", s.Account}, {"partition", s.Partition}, {"qos", s.QOS}} {
		if o[1] != "" {
			a = append(a, "--"+o[0]+"="+o[1])
		}
	}
	if after != "" {
		a = append(a, "--dependency=afterany:"+after)
	}
	return append(a, "--wrap="+s.wrap(sc))
}

// wrap is what the job runs: a line of sh.
func (s *Slurm) wrap(sc Scenario) string {
	words := append([]string{s.Program, "bench", "load", s.URI, "--scenario", sc.Name}, s.Options...)
	for i, w := range words {
		if strings.HasPrefix(w, "--out=") {
			w += "/" + sc.Name // each job writes a report of its own
		}
		words[i] = quote(w)
	}
	line := strings.Join(words, " ")
	if sc.Nodes < 2 {
		return line
	}
	// One task a node; each is a rank. Quoted once more: srun starts a shell on each node.
	return "srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c " + quote("RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "+line)
}

// Script is the chain as a shell script, for people to read and to run.
func (s *Slurm) Script() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nset -eu\n")
	after := ""
	for _, sc := range s.Scenarios {
		name := "job_" + sc.Name
		fmt.Fprintf(&b, "%s=$(sbatch", name)
		for _, a := range s.job(sc, after) {
			if dep, ok := strings.CutPrefix(a, "--dependency=afterany:"); ok {
				fmt.Fprintf(&b, " \\\n  --dependency=afterany:\"%s\"", dep) // a variable: not quoted away
				continue
			}
			b.WriteString(" \\\n  " + quote(a))
		}
		b.WriteString(")\n")
		after = "$" + name
	}
	fmt.Fprintf(&b, "echo \"last job: %s\"\n", after)
	return b.String()
}

// Submit hands the chain to sbatch, and gives the jobs' numbers.
func (s *Slurm) Submit(ctx context.Context) ([]string, error) {
	var jobs []string
	after := ""
	for _, sc := range s.Scenarios {
		cmd := exec.CommandContext(ctx, "sbatch", s.job(sc, after)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return jobs, &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench load --submit", Msg: "sbatch: " + runners.LastLine(errs.String()), Err: err, Hint: "--dry-run prints what would be submitted"}
		}
		id, _, _ := strings.Cut(strings.TrimSpace(string(out)), ";") // "job;cluster"
		if id == "" {
			return jobs, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load --submit", Msg: "sbatch gave no job number", Got: string(out)}
		}
		jobs, after = append(jobs, id), id
	}
	return jobs, nil
}

// quote makes one word of sh of any text.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%_+=:,./-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
