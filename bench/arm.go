package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Arm is one contestant: a command that runs the workload once and prints one JSON object, an Outcome, as its last line.
type Arm struct {
	Name    string   `json:"name"`
	Setting string   `json:"setting"` // what was chosen for it, in words
	Argv    []string `json:"argv"`
	Env     []string `json:"env,omitempty"`
	// BudgetMB is the memory_budget that the arm was given; 0: none.
	BudgetMB float64 `json:"budget_mb,omitempty"`
}

// Outcome is what one run of an arm says of itself.
type Outcome struct {
	Samples      int64   `json:"samples"` // delivered in the window
	Seconds      float64 `json:"seconds"` // wall time of the window
	CPUSeconds   float64 `json:"cpu_seconds"`
	ImportS      float64 `json:"import_s,omitempty"`
	OpenS        float64 `json:"open_s,omitempty"`
	FirstBatchS  float64 `json:"first_batch_latency_s,omitempty"`
	PSSPeakMB    float64 `json:"pss_peak_mb,omitempty"`
	OrderSHA256  string  `json:"order_sha256,omitempty"`
	DistinctFrac float64 `json:"shuffle_randomness_frac,omitempty"` // distinct episodes a batch ÷ batch
	IdealFrac    float64 `json:"randomness_ideal,omitempty"`
	Decoded      int64   `json:"frames_decoded,omitempty"`
	Delivered    int64   `json:"frames_delivered,omitempty"`
	Error        string  `json:"error,omitempty"`
	Checks
}

// Result is an arm with the outcomes of its repeats.
type Result struct {
	Arm         Arm       `json:"arm"`
	Runs        []Outcome `json:"runs"`
	SamplesPerS Spread    `json:"samples_per_s"`
	CPUPer1000  Spread    `json:"cpu_s_per_1000_samples"`
	FirstBatchS Spread    `json:"first_batch_latency_s"`
	PSSPeakMB   Spread    `json:"pss_peak_mb"`
	Failed      string    `json:"failed,omitempty"`
}

// Run runs the arms in turn, repeats times, and gives a result an arm in the order given.
func Run(ctx context.Context, arms []Arm, repeats int, timeout time.Duration, log func(format string, a ...any)) ([]Result, error) {
	results := make([]Result, len(arms))
	for i, a := range arms {
		results[i].Arm = a
	}
	for rep := range repeats {
		for i := range results {
			r := &results[i]
			if r.Failed != "" {
				continue
			}
			o, err := runOnce(ctx, r.Arm, timeout)
			if ctx.Err() != nil {
				return results, ctx.Err()
			}
			if err != nil {
				r.Failed = err.Error()
				log("%s: failed: %v", r.Arm.Name, err)
				continue
			}
			r.Runs = append(r.Runs, o)
			log("%d/%d %-24s %8.1f /s  %7.3f CPU s per 1,000", rep+1, repeats, r.Arm.Name, float64(o.Samples)/o.Seconds, 1000*o.CPUSeconds/float64(o.Samples))
		}
	}
	for i := range results {
		results[i].summarise()
	}
	return results, nil
}

func (r *Result) summarise() {
	for _, o := range r.Runs {
		r.SamplesPerS.add(float64(o.Samples) / o.Seconds)
		r.CPUPer1000.add(1000 * o.CPUSeconds / float64(o.Samples))
		r.FirstBatchS.add(o.FirstBatchS)
		r.PSSPeakMB.add(o.PSSPeakMB)
	}
}

// runOnce starts the arm in its own process group, so that a peer's stray workers end with it.
func runOnce(ctx context.Context, a Arm, timeout time.Duration) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.Argv[0], a.Argv[1:]...)
	cmd.Env = append(os.Environ(), a.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	runErr := cmd.Run()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var o Outcome
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &o); err != nil {
		if runErr == nil {
			runErr = err
		}
		return o, fmt.Errorf("%w: %s", runErr, lastLine(errs.String()))
	}
	if o.Error != "" {
		return o, fmt.Errorf("%s", o.Error)
	}
	if runErr != nil {
		return o, fmt.Errorf("%w: %s", runErr, lastLine(errs.String()))
	}
	if o.Samples <= 0 || o.Seconds <= 0 {
		return o, fmt.Errorf("no samples were delivered")
	}
	return o, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
