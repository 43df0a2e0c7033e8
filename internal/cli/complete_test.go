package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache/convert"
)

// TestComplete requests completions like the scripts of bash, zsh and fish.
func TestComplete(t *testing.T) {
	set := filepath.Join(t.TempDir(), "set")
	if code, _, errs := call(t, "synth", set, "--codec", "png", "--episodes", "1", "--seconds",
		"0.2"); code != exitDone {
		t.Fatal(errs)
	}
	for _, c := range []struct {
		args      string
		has, lack string // words; of values with a description, only the value
		directive string
	}{
		{"convert a b --to ", strings.Join(convert.Formats(), " "), "copy", ":4"},
		{"convert a b --to=le", "lerobot", "mcap", ":4"},
		{"inspect a --format rl", "rlds", "lerobot", ":4"},
		{"convert a b --video-codec ", "copy av1 h264 hevc", "png", ":4"},
		{"synth a --codec ", "av1 png jpeg raw", "copy", ":4"},
		{"edit reencode a b --codec h", "h264 hevc", "av1", ":4"},
		{"convert SET b --keys ", "action observation.state", "index=", ":6"},
		{
			"convert SET b --keys action,obs",
			"action,observation.state",
			"action observation.state",
			":6",
		},
		{"plan convert SET b --keys act", "action", "observation.state", ":6"},
		{"convert SETx b --keys ", "", "action", ":6"},
		{"convert s3://bucket/set b --keys ", "", "action", ":6"},
		{"edit merge a b c --keys ", "strict intersection union", "action", ":4"},
		{"convert a b --write-option ", "gop= video_codec=", "", ":6"},
		{"convert a b --to mcap --write-option ", "", "gop=", ":6"},
		{"stats a --frames ", "sampled all none", "", ":4"},
		{"plan ", "convert doctor stats", "", ":4"},
		{"plan convert ", "", "doctor", ":0"}, // a dataset
		{"--log-level ", "debug info warn error", "", ":4"},
		{"convert a b --align ", "", "lerobot", ":0"}, // a file
	} {
		line := strings.Split(strings.ReplaceAll(c.args, "SET", set), " ")
		code, out, errs := call(t, append([]string{cobra.ShellCompRequestCmd}, line...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		got := make([]string, len(lines))
		for i, l := range lines {
			got[i], _, _ = strings.Cut(l, "\t")
		}
		if code != exitDone || got[len(got)-1] != c.directive {
			t.Errorf(
				"%s: exit %d, %q, want %s; %s",
				c.args,
				code,
				got[len(got)-1],
				c.directive,
				errs,
			)
		}
		for _, w := range strings.Fields(c.has) {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %s is not completed: %q", c.args, w, got)
			}
		}
		for _, w := range strings.Fields(c.lack) {
			if slices.Contains(got, w) {
				t.Errorf("%s: %s is completed", c.args, w)
			}
		}
	}
}

// Each entry of the table belongs to a flag. The completions of a flag equal the words that its
// help lists.
func TestCompletedValuesAreThoseOfTheHelp(t *testing.T) {
	unused := map[string]bool{}
	for k := range flagValues {
		unused[k] = true
	}
	inHelp := []string{
		"--log-level",
		"--frames",
		"--video-codec",
		"--images",
		"--codec",
		"--balance",
		"--cut",
		"--stats",
		"--by",
		"--stratify",
		"--preset",
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		_, verb, _ := strings.Cut(c.CommandPath(), " ")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			key := verb + " --" + f.Name
			if flagValues[key] == nil {
				key = "--" + f.Name
			}
			if delete(unused, key); flagValues[key] == nil ||
				!slices.Contains(inHelp, "--"+f.Name) {
				return
			}
			help := strings.FieldsFunc(
				f.Usage,
				func(r rune) bool { return strings.ContainsRune(" ,;:()", r) },
			)
			for _, v := range flagValues[key](c, nil) {
				if !strings.Contains(v, ",") && !slices.Contains(help, v) {
					t.Errorf(
						"%s --%s completes %s, which its help does not name: %s",
						verb,
						f.Name,
						v,
						f.Usage,
					)
				}
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if len(unused) > 0 {
		t.Errorf("no flag has them: %v", unused)
	}
}
