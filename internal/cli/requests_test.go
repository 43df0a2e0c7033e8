package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/verbs"
)

// requests maps commands to the requests of package verbs that their flags fill.
var requests = map[string]any{
	"inspect":           &verbs.InspectRequest{},
	"doctor":            &verbs.DoctorRequest{},
	"causality":         &verbs.CausalityRequest{},
	"find":              &verbs.FindRequest{},
	"quality":           &verbs.QualityRequest{},
	"index":             &verbs.IndexRequest{},
	"diff":              &verbs.DiffRequest{},
	"embed":             &verbs.EmbedRequest{},
	"stats":             &verbs.StatsRequest{},
	"plot":              &verbs.PlotRequest{},
	"convert":           &verbs.ConvertRequest{},
	"synth":             &verbs.SynthRequest{},
	"plan":              &verbs.PlanRequest{},
	"run":               &verbs.RunRequest{},
	"commit":            &verbs.CommitRequest{},
	"status":            &verbs.StatusRequest{},
	"gc":                &verbs.GCRequest{},
	"pull":              &verbs.PullRequest{},
	"push":              &verbs.PushRequest{},
	"cache ls":          &verbs.CacheListRequest{},
	"cache prune":       &verbs.CachePruneRequest{},
	"cache verify":      &verbs.CacheVerifyRequest{},
	"submit local":      &verbs.SubmitLocalRequest{},
	"submit slurm":      &verbs.SubmitSlurmRequest{},
	"submit kubernetes": &verbs.SubmitKubernetesRequest{},
	"live":              &verbs.LiveRequest{},
	"live replay":       &verbs.LiveReplayRequest{},
	"live verify":       &verbs.LiveVerifyRequest{},
	"live check":        &verbs.LiveCheckRequest{},
	"edit undo":         &verbs.EditedRequest{},
	"edit recover":      &verbs.EditedRequest{},
}

// TestRequestsHaveOptionsOfFlags is verbs.C1.
func TestRequestsHaveOptionsOfFlags(t *testing.T) {
	for verb, request := range requests {
		c, _, err := newRoot().Find(strings.Fields(verb))
		if err != nil {
			t.Fatal(err)
		}
		var flags []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "json" && f.Name != "help" && f.Name != "metrics" {
				flags = append(flags, strings.ReplaceAll(f.Name, "-", "_"))
			}
		})
		slices.Sort(flags)
		unknown := map[string]json.RawMessage{"no_such_option": json.RawMessage("1")}
		err = verbs.Decode(verb, []string{"a", "b", "c"}[:arguments(c.Use)], unknown, request)
		var e *robocache.Error
		if !errors.As(err, &e) || e.Where["known"] == nil {
			t.Errorf("%s: %v", verb, err)
		} else if known := e.Where["known"].([]string); !slices.Equal(known, flags) {
			t.Errorf("%s: options %q, flags %q", verb, known, flags)
		}
	}
}

// arguments returns the number of required arguments in a usage line.
func arguments(use string) (n int) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		if !strings.HasPrefix(word, "[") {
			n++
		}
	}
	return n
}

// Flags with a default reject an empty value, which usually comes from a shell variable that is not
// set.
func TestEmptyValues(t *testing.T) {
	for _, text := range []string{
		"inspect set --memory-budget=", "stats set --frames=", "convert a b --to=", "synth a " +
			"--rates=",
		"synth a --size=", "synth a --format=", "plan convert a b --balance=",
	} {
		args := strings.Fields(text)
		flag := strings.TrimSuffix(args[len(args)-1], "=")
		code, _, errs := call(t, args...)
		if code != exitMisuse || !strings.Contains(errs, flag+" is empty") {
			t.Errorf("%s: exit %d: %s", text, code, errs)
		}
	}
}
