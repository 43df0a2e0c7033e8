package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/verbs"
)

// causalityOf runs the verb and returns its report. The exit code must be want.
func causalityOf(t *testing.T, want int, args ...string) (r verbs.Causality, text string) {
	t.Helper()
	code, out, errs := call(t, append([]string{"causality", "--json"}, args...)...)
	if code != want {
		t.Fatalf("%v: exit %d, want %d: %s%s", args, code, want, out, errs)
	}
	if out != "" {
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %v in %s", args, err, out)
		}
	}
	return r, errs
}

// TestCausality checks the verb: its report, its exit codes, and that its hint removes the finding.
func TestCausality(t *testing.T) {
	bag := realdata.Path(t, "mcap_robot/recording_zstd.mcap")
	joints := "joint_states.position"
	keys := []string{bag, "--keys", joints + ",points"}
	free, _ := causalityOf(t, exitDone, append(keys, "--hz", "50")...)
	if s := free.Streams[0]; free.Episodes != 1 || s.Key != joints || s.Mode != "linear" ||
		s.FutureShare != 1 || s.NotArrivedShare != 1 || s.Arrivals != "recorded" {
		t.Errorf("%+v", free)
	}
	i := slices.IndexFunc(free.Findings, func(f robocache.Finding) bool {
		return f.Code == "look-ahead"
	})
	if i < 0 || !strings.Contains(free.Findings[i].Hint, "--align causal ") {
		t.Fatalf("%+v", free.Findings)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "align.yaml")
	if err := os.WriteFile(file, []byte("causal: true\nhz: 50\nmax_age: {points: 80ms}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--hz", "50", "--align", "causal"},
		{"--align", file},
		{"--align", "causal"},
		{"--align", `align={"causal": true}`, "--hz", "30000/1001"},
	} {
		r, _ := causalityOf(t, exitDone, append(keys, args...)...)
		for _, s := range r.Streams {
			if s.FutureShare+s.NotArrivedShare+s.MaxLookAhead != 0 {
				t.Errorf("%v: %+v", args, s)
			}
		}
		hasStale := r.Streams[1].MaskedShare > 0
		if len(r.Findings) != 1 || hasStale != (len(args) == 2 && args[1] == file) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitMisuse, "time-budget", append(keys, "--time-budget", "soon")},
		{exitMisuse, "give one", append(keys, "--hz", "30", "--align", file)},
		{exitMisuse, "needs a delay", append(keys, "--hz", "30", "--align",
			`{"causal": true, "modes": {"`+joints+`": "linear"}}`)},
		{exitMisuse, `object, or "causal"`, append(keys, "--align", `"casual"`)},
		{10, "casual", append(keys, "--align", "casual")},
		{10, "no-such", []string{"no-such-recording.mcap"}},
	} {
		if _, errs := causalityOf(t, c.code, c.args...); !strings.Contains(errs, c.want) {
			t.Errorf("%v: %s, want %s", c.args, errs, c.want)
		}
	}
	_, out, _ := call(t, "causality", bag, "--hz", "50", "--keys", joints, "--time-budget", "0")
	if !strings.Contains(out, "1 of 1 episodes at 50 Hz\n") ||
		!strings.Contains(out, "recorded") || !strings.Contains(out, "100.0 %") {
		t.Errorf("%s", out)
	}
	// Two recordings with different streams.
	mixed := filepath.Join(dir, "mixed")
	for _, stream := range []string{"joints", "force"} {
		one := filepath.Join(dir, stream)
		code, _, errs := call(t, "synth", one, "--format", "mcap", "--episodes", "1", "--seconds",
			"1", "--cameras", "0", "--rates", "camera=30,"+stream+"=100")
		if code != exitDone {
			t.Fatal(errs)
		}
		file := filepath.Join(one, "episode_000000.mcap")
		if err := os.MkdirAll(mixed, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file, filepath.Join(mixed, stream+".mcap")); err != nil {
			t.Fatal(err)
		}
	}
	bad, _ := causalityOf(t, exitFindings, mixed, "--hz", "20", "--keys",
		"observation.joints,observation.state")
	if f := bad.Findings[0]; f.Code != "episode-not-aligned" ||
		!strings.Contains(f.Message, "--keys") {
		t.Errorf("%+v", bad)
	}
	set := filepath.Join(dir, "set")
	if code, _, errs := call(t, "synth", set, "--episodes", "2", "--seconds", "1", "--cameras",
		"0"); code != exitDone {
		t.Fatal(errs)
	}
	assumed, _ := causalityOf(t, exitDone, set, "--hz", "50", "--align", "causal")
	if note := assumed.Findings[len(assumed.Findings)-1]; note.Code != "arrival-times" ||
		!strings.Contains(note.Message, "observation.state are assumed to arrive") ||
		assumed.Episodes != 2 {
		t.Errorf("%+v", assumed)
	}
}

// TestConvertCausal checks that a conversion writes causal rows and states the assumption about
// arrivals in meta/conversion.json.
func TestConvertCausal(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if code, _, errs := call(t, "synth", src, "--episodes", "1", "--seconds", "2", "--cameras",
		"0"); code != exitDone {
		t.Fatal(errs)
	}
	bag := realdata.Path(t, "mcap_robot/recording_zstd.mcap")
	for source, want := range map[string]string{
		src: "samples of observation.state",
		bag: "observations with recorded arrival times: ",
	} {
		dst := filepath.Join(dir, "lerobot-"+filepath.Base(source))
		code, out, errs := call(t, "convert", source, dst, "--hz", "40", "--causal",
			"--frames", "none")
		if code != exitDone && code != exitFindings ||
			strings.Contains(out+errs, "use samples from after the tick") {
			t.Fatalf("%s: exit %d: %s%s", source, code, out, errs)
		}
		b, err := os.ReadFile(filepath.Join(dst, "meta", "conversion.json"))
		if err != nil || !strings.Contains(string(b), want) ||
			!strings.Contains(string(b), `"arrival-times"`) {
			t.Errorf("%s: %v, %s", source, err, b)
		}
	}
	for _, to := range []string{"mcap", "zarr", "rlds"} {
		code, out, errs := call(t, "convert", bag, filepath.Join(dir, to), "--to", to, "--hz", "40",
			"--causal", "--keys", "joint_states.position,imu.data.orientation", "--json")
		if code != exitDone && code != exitFindings || !strings.Contains(out, "arrival-times") {
			t.Errorf("%s: exit %d: %s%s", to, code, out, errs)
		}
	}
}
