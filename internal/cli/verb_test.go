package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// A verb called in the process answers what --json prints, takes options by name and gives its error as it is.
func TestVerb(t *testing.T) {
	set := filepath.Join(t.TempDir(), "set")
	opt := func(text string) (m map[string]json.RawMessage) {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	verb := func(name, options string, args ...string) (*Outcome, error) {
		return Verb(t.Context(), name, args, opt(options), false)
	}
	if _, err := verb("synth", `{"codec": "png", "episodes": 2, "seconds": 0.5, "task": ["reach, slowly", "push"], "depth": false, "gop": null}`, set); err != nil {
		t.Fatal(err)
	}
	out, err := verb("inspect", `{}`, set)
	if err != nil || out.Findings {
		t.Fatal(out, err)
	}
	_, printed, _ := call(t, "inspect", set, "--json")
	if strings.TrimSpace(printed) != strings.TrimSpace(string(out.Result)) || !strings.Contains(printed, "reach, slowly") {
		t.Errorf("not what --json prints: %s", out.Result)
	}
	if out, err = verb("inspect", `{"suggest_map": true}`, set); err != nil || !strings.HasPrefix(string(out.Result), `"# A mapping`) {
		t.Errorf("text: %s, %v", out.Result, err)
	}
	if out, err = verb("stats", `{"out": `+string(must(json.Marshal(filepath.Join(set, "..", "s.json"))))+`, "frames": "none", "keys": ["action"]}`, set); err != nil || len(out.Notes) != 1 {
		t.Errorf("notes: %v, %v", out, err)
	}
	info := filepath.Join(set, "meta", "info.json")
	text, err := os.ReadFile(info)
	if err == nil {
		err = os.WriteFile(info, bytes.Replace(text, []byte(`"total_frames": 30`), []byte(`"total_frames": 37`), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err = verb("doctor", `{"episodes": [0, 1]}`, set); err != nil || !out.Findings || !json.Valid(out.Result) {
		t.Errorf("findings: %v, %v", out, err)
	}
	for _, c := range []struct {
		verb, options string
		args          []string
		class         error
		says          string
	}{
		{"doctor", `{"decod": true}`, []string{set}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"json": true}`, []string{set}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"memory-budget": 1}`, []string{set}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"log_level": "debug"}`, []string{set}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"decode": "yes"}`, []string{set}, robocache.ErrMisuse, "true or false"},
		{"doctor", `{"episodes": ["x"]}`, []string{set}, robocache.ErrMisuse, "episodes"},
		{"convert", `{"episodes": []}`, []string{set, set + "y"}, robocache.ErrMisuse, "at least one"},
		{"doctor", `{}`, nil, robocache.ErrMisuse, "arg(s)"},
		{"doctor", `{}`, []string{"--help"}, robocache.ErrNotFound, "--help"},
		{"nonsense", `{}`, nil, robocache.ErrMisuse, "unknown verb"},
		{"submit", `{}`, nil, robocache.ErrMisuse, "no result"},
		{"inspect", `{}`, []string{set + "x"}, robocache.ErrNotFound, "setx"},
	} {
		if _, err := verb(c.verb, c.options, c.args...); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s %v: %v", c.verb, c.options, c.args, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verb(ctx, "doctor", []string{set}, nil, false); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
