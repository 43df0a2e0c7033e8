package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/verbs"
)

// TestReplayDifferenceExitsWith1 checks that a comparison prints its result before it fails.
func TestReplayDifferenceExitsWith1(t *testing.T) {
	result := live.ReplayResult{
		Ticks: 7, DifferentTicks: 2, DifferentBits: 5, Values: 40, FirstTick: 123,
		DifferentKeys: map[string]int64{"camera": 2},
	}
	compare := func(
		context.Context, *verbs.LiveVerifyRequest, verbs.Observer,
	) (*live.ReplayResult, error) {
		return &result, nil
	}
	for _, want := range []int{exitFailed, exitDone} {
		c := addRun(&cobra.Command{Use: "verify PATH", Args: cobra.ExactArgs(1)},
			&verbs.LiveVerifyRequest{}, failOnDifference(compare), printReplay)
		root := newRoot()
		root.AddCommand(c)
		var out, errs bytes.Buffer
		code := runCommand(t.Context(), root, []string{"verify", "x"}, &out, &errs)
		if code != want || !strings.Contains(out.String(), "7 ticks") {
			t.Errorf("exit %d, want %d: %s%s", code, want, out.String(), errs.String())
		}
		differs := strings.Contains(out.String(), "camera differs on 2 ticks")
		if differs != (want == exitFailed) {
			t.Errorf("%s", out.String())
		}
		result = live.ReplayResult{Ticks: 7}
	}
}

// TestSecondText checks the line of one second.
func TestSecondText(t *testing.T) {
	age := 0.0123
	got := secondText(&verbs.LiveSecond{
		Time: 3.02, Ticks: 30, Failed: 1, Error: "no connection",
		Streams: []verbs.LiveStream{
			{Key: "state", Received: 100, Age: &age},
			{Key: "camera", Masked: 4, Dropped: 2},
		},
	})
	want := "    3 s  30 ticks, 1 failed | state 100/s 12 ms | camera 0/s masked 4 dropped 2 | no connection"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
