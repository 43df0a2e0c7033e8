package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
)

// newSoak returns the verb soak.
func newSoak() *cobra.Command {
	var s bench.Soak
	var f sharedFlags
	c := &cobra.Command{
		Use: "soak DIR",
		Short: "run pools, caches, http with faults, kills and resumes for a long time; check " +
			"every image and the memory",
		Long: `Runs seeded rounds over a local dataset until the time is over. A round chooses an order, a cache,
a store, windows, sizes, threads and a rank. It takes batches, stops at random positions, and resumes
from the state with other threads. In every eighth round, a process with the same cache is killed
with SIGKILL.

Every image must be identical to that of a plain pass; some images of that pass are compared with a
sequential decode by ffmpeg first. Every sample must follow the order. Everything is closed between
rounds: memory, open files and goroutines must not grow. Exit code 1 reports the reason and the
round, which the same --seed repeats.`,
		Example: `  robocache-bench soak ./my_dataset --duration 30m`,
		Args:    cobra.ExactArgs(1),
		RunE: f.withCleanup(func(cmd *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			s.URI, s.Self, s.Log = args[0], []string{self}, logTo(cmd)
			r, err := s.Run(cmd.Context())
			if err != nil {
				return err
			}
			if err := printJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			if r.Failed != "" {
				return errors.New("soak: " + r.Failed)
			}
			return nil
		}),
	}
	c.Flags().DurationVar(&s.Duration, "duration", 30*time.Minute, "duration of the run")
	c.Flags().Uint64Var(&s.Seed, "seed", 0, "seed of the rounds")
	c.Flags().
		StringVar(&s.Dir, "dir", "", "scratch folder, which is kept (default: a temporary one)")
	c.Flags().BoolVar(&f.json, "json", true, "print JSON; always on")
	return c
}
