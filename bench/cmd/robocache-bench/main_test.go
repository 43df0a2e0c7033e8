package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	exitFailed = 1
	exitMisuse = 2
)

// TestMain lets the test binary act as robocache-bench, because the harness starts its runners with
// `robocache-bench run …`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(runCommandLine(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// call runs a command line in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = runCommandLine(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelpListsTheVerbs(t *testing.T) {
	code, out, _ := call(t, "--help")
	for _, verb := range []string{
		"load",
		"decode",
		"ops",
		"peers",
		"formats",
		"clients",
		"soak",
		"train",
		"all",
		"report",
	} {
		if code != exitDone || !strings.Contains(out, "\n  "+verb) {
			t.Errorf("exit %d, --help does not list %s", code, verb)
		}
		code, help, errs := call(t, verb, "--help")
		if code != exitDone || !strings.Contains(help, "Examples:") ||
			!strings.Contains(help, "robocache-bench "+verb) {
			t.Errorf("%s --help: exit %d: %s%s", verb, code, help, errs)
		}
	}
}

func TestMisuseIsExitCode2(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"nonsense"}, "load, decode, ops, peers, formats, clients, soak, train, quality, all or report"},
		{[]string{"load"}, "accepts 1 arg(s)"},
		{[]string{"load", "a", "--nope"}, "unknown flag: --nope"},
		{[]string{"ops", "--device", "tpu"}, "--device: cpu or cuda"},
	} {
		if code, _, errs := call(
			t,
			c.args...); code != exitMisuse ||
			!strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
}

func TestClientsWithoutPackagesAreSkipped(t *testing.T) {
	t.Setenv("ROBOCACHE_CLIENT_OPENPI", "")
	code, out, errs := call(
		t, "clients", "--workload", "openpi", "--python", "false", "--json")
	if code != exitDone || !strings.Contains(out, `"openpi": "openpi: openpi is not installed`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestComplete requests completions like the scripts of bash, zsh and fish.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		line, has, lacks string // words of the command line, and of the result
		directive        string
	}{
		{"train --model d", "diffusion diffusion-lowdim", "act", ":4"},
		{"train --shuffle ", "global pool", "file", ":4"},
		{"load a --shuffle ", "global pool file", "", ":4"},
		{"load a --scenario ", "mmap_local", "all", ":6"},
		{"load a --scenarios mmap_local,", "mmap_local,all mmap_local,stream_hub", "all", ":6"},
		{"peers --workload av1", "av1-global", "", ":6"},
		{"load a --out ", "", "mmap_local", ":0"}, // a file name
	} {
		code, out, errs := call(
			t,
			append([]string{cobra.ShellCompRequestCmd}, strings.Split(c.line, " ")...)...)
		got := strings.Split(strings.TrimSpace(out), "\n")
		if code != exitDone || got[len(got)-1] != c.directive {
			t.Errorf(
				"%s: exit %d, %q, want %s; %s",
				c.line,
				code,
				got[len(got)-1],
				c.directive,
				errs,
			)
		}
		for _, w := range strings.Fields(c.has) {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %s is not completed: %q", c.line, w, got)
			}
		}
		for _, w := range strings.Fields(c.lacks) {
			if slices.Contains(got, w) {
				t.Errorf("%s: %s is completed", c.line, w)
			}
		}
	}
}

// TestCompletedValuesAreThoseOfTheHelp compares flagValues with the flags and with the words of
// their help.
func TestCompletedValuesAreThoseOfTheHelp(t *testing.T) {
	unused := map[string]bool{}
	for key := range flagValues {
		unused[key] = true
	}
	named := []string{
		"device",
		"clock",
		"pattern",
		"video",
		"cache-format",
		"shuffle",
		"cache-state",
		"model",
		"mode",
		"precision",
		"loop",
		"timing",
		"parts",
	}
	for _, c := range newRoot(nil).Commands() {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			key := c.Name() + " --" + f.Name
			if flagValues[key] == nil {
				key = "--" + f.Name
			}
			delete(unused, key)
			values := flagCompletion(c, f.Name)
			if values == nil || !slices.Contains(named, f.Name) {
				return
			}
			help := strings.FieldsFunc(
				f.Usage,
				func(r rune) bool { return strings.ContainsRune(" ,;:()", r) },
			)
			for _, v := range values() {
				if !strings.Contains(v, ",") && !slices.Contains(help, v) {
					t.Errorf(
						"%s --%s completes %s, which its help does not name: %s",
						c.Name(),
						f.Name,
						v,
						f.Usage,
					)
				}
			}
		})
	}
	if len(unused) > 0 {
		t.Errorf("no flag has the values of %v", unused)
	}
}
