package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/bench"
)

func newSoak() *cobra.Command {
	var s bench.Soak
	var f sharedFlags
	c := &cobra.Command{
		Use: "soak DIR",
		Short: "pools, caches, http with faults, kills and resumes for a long time: every image " +
			"checked, memory flat",
		Long: `Runs seeded rounds over a local dataset until the time is over. A round picks an order, a cache, a store, windows, sizes, threads and a rank,
takes batches, stops at random places and goes on from the state with other threads. Every image must be bit for bit that of a plain
pass, some of which is compared with a sequential decode by the ffmpeg program first; every sample must be the order's. Every eighth round a process
that works on the same cache is killed with SIGKILL. Between rounds everything is closed: memory, open files and goroutines must not grow.
Exit code 1 with the reason where something is wrong, and with the round, which --seed does again.`,
		Example: `  robocache-bench soak ./my_dataset --duration 30m`,
		Args:    cobra.ExactArgs(1),
		RunE: f.verb(func(cmd *cobra.Command, args []string) error {
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
	c.Flags().DurationVar(&s.Duration, "duration", 30*time.Minute, "how long")
	c.Flags().Uint64Var(&s.Seed, "seed", 0, "of the rounds")
	c.Flags().StringVar(&s.Dir, "dir", "", "scratch folder, which stays (default: a temporary one)")
	c.Flags().BoolVar(&f.json, "json", true, "print JSON: it always does")
	return c
}
