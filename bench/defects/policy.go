package defects

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/quality"
)

// PolicyOptions configures RunPolicy.
type PolicyOptions struct {
	Seeds  int                           `json:"seeds"`
	Good   int                           `json:"good"`  // demonstrations of the script
	Bad    int                           `json:"bad"`   // demonstrations with faults
	Steps  int                           `json:"steps"` // of the optimizer
	Trials int                           `json:"trials"`
	Log    func(format string, a ...any) `json:"-"`
}

// PolicyReport is the result of RunPolicy.
type PolicyReport struct {
	Command string        `json:"command"`
	Machine any           `json:"machine"`
	Options PolicyOptions `json:"options"`
	Arms    []PolicyArm   `json:"arms"`
	// Removed and RemovedBad are, for each seed, the demonstrations that the findings removed, and
	// those of them that had a fault.
	Removed    []int `json:"removed"`
	RemovedBad []int `json:"removed_bad"`
}

// PolicyArm is the success of policies trained on one choice of demonstrations, for each seed.
type PolicyArm struct {
	Name    string    `json:"name"`
	Demos   []int     `json:"demos"`
	Success []float64 `json:"success"` // share of the trials
}

// RunPolicy trains policies by behaviour cloning on all demonstrations, on a random subset, and on
// those without a finding of package quality, and counts how often each solves the task.
func RunPolicy(ctx context.Context, opt PolicyOptions) (*PolicyReport, error) {
	r := &PolicyReport{Options: opt, Machine: report.ThisMachine("")}
	r.Arms = []PolicyArm{
		{Name: "all"}, {Name: "random subset"}, {Name: "without findings"}, {Name: "good only"},
	}
	for seed := range opt.Seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 17))
		var demos []demo
		for range opt.Good {
			demos = append(demos, makeDemo(rng, 0))
		}
		for i := range opt.Bad {
			demos = append(demos, makeDemo(rng, 1+i%demoFaults))
		}
		rng.Shuffle(len(demos), func(i, j int) { demos[i], demos[j] = demos[j], demos[i] })
		kept, removedBad, err := keepWithoutFindings(ctx, demos)
		if err != nil {
			return nil, err
		}
		r.Removed = append(r.Removed, len(demos)-len(kept))
		r.RemovedBad = append(r.RemovedBad, removedBad)
		subset := slices.Clone(demos)
		rng.Shuffle(len(subset), func(i, j int) { subset[i], subset[j] = subset[j], subset[i] })
		good := slices.DeleteFunc(slices.Clone(demos), func(d demo) bool { return d.fault != 0 })
		for k, chosen := range [][]demo{demos, subset[:len(kept)], kept, good} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			policy := trainClone(chosen, opt.Steps, rand.New(rand.NewPCG(uint64(seed), 18)))
			solved := policy.successes(opt.Trials, rand.New(rand.NewPCG(uint64(seed), 19)))
			arm := &r.Arms[k]
			arm.Demos = append(arm.Demos, len(chosen))
			arm.Success = append(arm.Success, float64(solved)/float64(opt.Trials))
			opt.Log("seed %d, %s: %d demonstrations, %d of %d trials", seed, arm.Name, len(chosen),
				solved, opt.Trials)
		}
	}
	return r, nil
}

// keepWithoutFindings returns the demonstrations without a finding, and how many with a fault are
// removed.
func keepWithoutFindings(
	ctx context.Context, demos []demo,
) (kept []demo, removedBad int, err error) {
	t, err := quality.Measure(ctx, newDemoSet(demos), quality.Options{})
	if err != nil {
		return nil, 0, err
	}
	flagged := map[int]bool{}
	for _, f := range t.Findings() {
		if e, ok := f.Where["episode"].(int64); ok {
			flagged[t.Row(e)] = true
		}
	}
	for i, d := range demos {
		switch {
		case !flagged[i]:
			kept = append(kept, d)
		case d.fault != 0:
			removedBad++
		}
	}
	return kept, removedBad, nil
}

// studentT is the 97.5th percentile of Student's t by degrees of freedom, from 1.
var studentT = []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26}

// Document returns the report for people: the mean over seeds with its 95 % interval.
func (r *PolicyReport) Document() *report.Document {
	d := &report.Document{
		Name:    "quality-policy",
		Title:   "robocache-bench quality --policy",
		Command: r.Command,
		Raw:     r,
	}
	table := &report.Table{Head: []string{
		"trained on", "demonstrations", "success, mean over seeds", "95 % interval", "by seed",
	}}
	for _, arm := range r.Arms {
		mean, spread := meanAndSpread(arm.Success)
		n := float64(len(arm.Success))
		half := math.NaN()
		if len(arm.Success) > 1 {
			t := studentT[min(len(arm.Success)-2, len(studentT)-1)]
			half = t * spread * math.Sqrt(n/(n-1)) / math.Sqrt(n)
		}
		table.Add(arm.Name, fmt.Sprint(arm.Demos), fmt.Sprintf("%.1f %%", 100*mean),
			fmt.Sprintf("± %.1f", 100*half), fmt.Sprintf("%.2f", arm.Success))
	}
	d.Sheet = table
	d.Add("", table, fmt.Sprintf("A planar task of this program (no simulator from a registry): a "+
		"gripper carries an object to a goal. %d demonstrations of a script and %d with faults (never "+
		"grasps, waits, jerky, ends early, late commands); behaviour cloning by a network of two "+
		"hidden layers of %d units on the state, %d steps of Adam; %d trials for each policy. Removed by "+
		"findings: %v, of which with a fault: %v. The random subset has the size of the filtered set.",
		r.Options.Good, r.Options.Bad, hiddenUnits, r.Options.Steps, r.Options.Trials, r.Removed,
		r.RemovedBad))
	return d.WithRaw()
}
