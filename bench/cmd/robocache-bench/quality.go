package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench/defects"
)

// newQuality returns the verb quality.
func newQuality(line string) *cobra.Command {
	f := sharedFlags{commandLine: line}
	var opt defects.Options
	var policy bool
	trial := defects.PolicyOptions{Good: 60, Bad: 40, Steps: 1500, Trials: 200}
	c := &cobra.Command{
		Use: "quality",
		Short: "plant defects of known size into a synthetic set and count what robocache quality " +
			"finds, in five formats",
		Long: `quality writes a synthetic set with two cameras, in which some episodes have a defect of a known
size, in each format. It measures them as robocache quality does, and counts the planted episodes
with a finding (recall) and the clean ones (false alarms). Exit code 3: a bar is missed.

--policy trains policies by behaviour cloning instead: on all demonstrations of a planar task, of which
some have faults, on a random subset, and on those without findings. It prints how often each solves
the task.`,
		Example: `  robocache-bench quality --formats lerobot --clean 60
  robocache-bench quality --out report
  robocache-bench quality --policy --seeds 5`,
		Args: cobra.NoArgs,
		RunE: f.withCleanup(func(cmd *cobra.Command, _ []string) error {
			if err := misuseUnless(opt.Clean >= 30 && opt.Repeats >= 1 && trial.Seeds >= 1,
				"--clean: at least 30; --repeats and --seeds: at least 1"); err != nil {
				return err
			}
			opt.Log, trial.Log = logTo(cmd), logTo(cmd)
			if policy {
				r, err := defects.RunPolicy(cmd.Context(), trial)
				if err != nil {
					return err
				}
				r.Command = f.commandLine
				return f.showReport(cmd, r, "quality-policy.{json,csv,md,html}")
			}
			if opt.Work == "" {
				folder, err := os.MkdirTemp("", "robocache-quality-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(folder)
				opt.Work = folder
			}
			r, err := defects.Run(cmd.Context(), opt)
			if err != nil {
				return err
			}
			r.Command = f.commandLine
			return f.showReport(cmd, r, "quality.{json,csv,md,html}")
		}),
	}
	fl := c.Flags()
	fl.IntVar(&opt.Clean, "clean", 160, "clean episodes")
	fl.IntVar(&opt.Repeats, "repeats", 1, "planted episodes of each defect and size")
	fl.Uint64Var(&opt.Seed, "seed", 1, "seed of the set")
	fl.StringSliceVar(&opt.Formats, "formats", defects.Formats(),
		"formats: "+strings.Join(defects.Formats(), ", "))
	fl.StringVar(&opt.Work, "work", "", "folder for the sets, which later runs reuse (default: a "+
		"temporary one)")
	fl.StringVar(&f.out, "out", "", "write JSON, CSV, Markdown and an HTML report into this folder")
	fl.BoolVar(
		&policy,
		"policy",
		false,
		"train policies on all, random and filtered demonstrations",
	)
	fl.IntVar(&trial.Seeds, "seeds", 5, "seeds of --policy")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}
