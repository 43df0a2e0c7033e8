package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/verbs"
)

func newLive() *cobra.Command {
	var r verbs.LiveRequest
	var asJSON bool
	c := &cobra.Command{
		Use:   "live",
		Short: "observations from a running robot, equal to those of training",
		Long: `live receives the messages of a robot, makes the observations of a contract, and prints one line
per second: the ticks, and for each stream the samples received, the age of the newest one, the
ticks on which its value was masked, and the samples dropped, rejected or late. It moves nothing.
A loader with align="causal" makes the contract: loader.contract().save("policy.contract.json").`,
		Example: `  robocache live --contract policy.contract.json --source foxglove://robot:8765
  robocache live --contract policy.contract.json --source dds:// --seconds 60 --record seen.mcap
  robocache live check recording.mcap --contract policy.contract.json
  robocache live replay recording.mcap --contract policy.contract.json
  robocache live verify seen.mcap`,
		Args: cobra.NoArgs,
	}
	addContract(c, &r.Contract)
	flags := c.Flags()
	flags.StringVar(&r.Source, "source", "", "where messages come from: foxglove://HOST:PORT, "+
		"dds://, mcap://PATH of a file that is being written")
	flags.StringVar(&r.HZ, "hz", "", "the rate of the ticks (default: that of the contract)")
	flags.Float64Var(&r.Seconds, "seconds", 0, "end after this time (default: at Ctrl-C)")
	flags.StringVar(&r.Record, "record", "", "record samples and ticks to this MCAP file")
	flags.BoolVar(&asJSON, "json", false, "print one line of JSON per second")
	mustConfigure(c.MarkFlagRequired("source"))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		w := cmd.OutOrStdout()
		return verbs.WatchLive(cmd.Context(), &r, func(s *verbs.LiveSecond) error {
			if asJSON {
				return json.NewEncoder(w).Encode(s)
			}
			_, err := fmt.Fprintln(w, secondText(s))
			return err
		})
	}
	c.AddCommand(newLiveReplay(), newLiveVerify(), newLiveCheck())
	return c
}

func newLiveReplay() *cobra.Command {
	var r verbs.LiveReplayRequest
	c := &cobra.Command{
		Use:   "replay RECORDING",
		Short: "push a recording in arrival order and compare every tick with training",
		Long: `replay pushes the samples of a recording in the order of their arrival, and compares the observation
of each tick with the sample of a loader, bit by bit. The exit code is 1 if a tick differs.`,
		Example: `  robocache live replay recording.mcap --contract policy.contract.json
  robocache live replay ./my_dataset --contract policy.contract.json --episodes 0-3 --max-ticks 1000`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	addContract(c, &r.Contract)
	addEpisodes(c, &r.Episodes)
	c.Flags().IntVar(&r.MaxTicks, "max-ticks", 0, "compare only the first ticks (default: all)")
	return addRun(c, &r, failOnDifference(verbs.ReplayLive), printReplay)
}

func newLiveVerify() *cobra.Command {
	var r verbs.LiveVerifyRequest
	c := &cobra.Command{
		Use:   "verify PATH",
		Short: "replay a recording of live observations, and compare them",
		Long: `verify replays a file that live --record or Live.record() wrote, and compares the observations bit by
bit. The exit code is 1 if a tick differs.`,
		Example: `  robocache live verify seen.mcap`,
		Args:    cobra.ExactArgs(1),
	}
	return addRun(c, &r, failOnDifference(verbs.VerifyLive), printReplay)
}

func newLiveCheck() *cobra.Command {
	var r verbs.LiveCheckRequest
	c := &cobra.Command{
		Use:     "check RECORDING",
		Short:   "whether a recording can give the observations of a contract",
		Example: `  robocache live check recording.mcap --contract policy.contract.json`,
		Args:    cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	addContract(c, &r.Contract)
	return addRun(c, &r, verbs.CheckLive, func(w io.Writer, a *verbs.ContractCheck) {
		printFindings(w, a.Findings)
		if len(a.Findings) == 0 {
			fmt.Fprintln(w, "the recording fits the contract")
		}
	})
}

// addContract adds --contract.
func addContract(c *cobra.Command, text *string) {
	c.Flags().StringVar(text, "contract", "", "the file of the contract (or its JSON)")
	mustConfigure(c.MarkFlagRequired("contract"))
}

// failOnDifference makes a comparison return an error after its answer if a bit differs.
func failOnDifference[R any](
	compare func(context.Context, *R, verbs.Observer) (*live.ReplayResult, error),
) func(context.Context, *R, verbs.Observer) (*live.ReplayResult, error) {
	return func(ctx context.Context, r *R, o verbs.Observer) (*live.ReplayResult, error) {
		answer, err := compare(ctx, r, o)
		if err == nil && answer.DifferentTicks > 0 {
			err = fmt.Errorf(
				"live: %d of %d observations differ",
				answer.DifferentTicks,
				answer.Ticks,
			)
		}
		return answer, err
	}
}

func printReplay(w io.Writer, r *live.ReplayResult) {
	fmt.Fprintf(w, "%d ticks, %d differ", r.Ticks, r.DifferentTicks)
	if r.Values > 0 { // of replay
		fmt.Fprintf(w, " in %d bits, %d of %d values masked", r.DifferentBits, r.Masked, r.Values)
	}
	fmt.Fprintln(w)
	if r.DifferentTicks > 0 {
		fmt.Fprintf(w, "first difference at %d ns\n", r.FirstTick)
	}
	for _, key := range slices.Sorted(maps.Keys(r.DifferentKeys)) {
		fmt.Fprintf(w, "  %s differs on %d ticks\n", key, r.DifferentKeys[key])
	}
}

// secondText formats a second as one line.
func secondText(s *verbs.LiveSecond) string {
	parts := []string{fmt.Sprintf("%5.0f s  %d ticks", s.Time, s.Ticks)}
	if s.Failed > 0 {
		parts[0] += fmt.Sprintf(", %d failed", s.Failed)
	}
	for i := range s.Streams {
		x := &s.Streams[i]
		text := fmt.Sprintf("%s %d/s", x.Key, x.Received)
		if x.Age != nil {
			text += fmt.Sprintf(" %.0f ms", *x.Age*1e3)
		}
		for _, c := range []struct {
			what string
			n    int64
		}{
			{"masked", x.Masked},
			{"dropped", x.Dropped},
			{"rejected", x.Rejected},
			{"late", x.Late},
		} {
			if c.n > 0 {
				text += fmt.Sprintf(" %s %d", c.what, c.n)
			}
		}
		parts = append(parts, text)
	}
	if s.Error != "" {
		parts = append(parts, s.Error)
	}
	return strings.Join(parts, " | ")
}
