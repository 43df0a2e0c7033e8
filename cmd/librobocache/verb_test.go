//go:build cgo

package main

import (
	"bytes"
	stdcontext "context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// runVerb runs a verb through the library and returns its reply in JSON.
func runVerb(
	ctx context, name, options string, args ...string,
) (result string, reply *verbReply, err error) {
	a := &verbArgs{Verb: name, Args: args}
	if err := json.Unmarshal([]byte(options), &a.Options); err != nil {
		return "", nil, err
	}
	v, err := serveVerb(ctx, a)
	if err != nil {
		return "", nil, err
	}
	reply = v.(*verbReply)
	b, err := json.Marshal(reply.Result)
	return string(b), reply, err
}

// TestVerbs checks results, findings and notes of verbs in the process.
func TestVerbs(t *testing.T) {
	ctx, set := t.Context(), filepath.Join(t.TempDir(), "set")
	_, _, err := runVerb(ctx, "synth", `{"codec": "png", "episodes": 2, "seconds": 0.5,
		"task": ["reach, slowly", "push"], "depth": false, "gop": null, "seed": 3, "jitter": "2ms"}`, set)
	if err != nil {
		t.Fatal(err)
	}
	result, reply, err := runVerb(ctx, "inspect", `{}`, set)
	if err != nil || reply.Findings || !strings.Contains(result, "reach, slowly") {
		t.Errorf("%s, %+v, %v", result, reply, err)
	}
	result, _, err = runVerb(ctx, "inspect", `{"episode": 1}`, set)
	if err != nil || !strings.Contains(result, `"position":1`) {
		t.Errorf("an episode: %s, %v", result, err)
	}
	result, _, err = runVerb(ctx, "inspect", `{"suggest_map": true}`, set)
	if err != nil || !strings.HasPrefix(result, `"# A mapping`) {
		t.Errorf("text: %s, %v", result, err)
	}
	out, _ := json.Marshal(filepath.Join(set, "..", "s.json"))
	options := `{"out": ` + string(out) + `, "frames": "none", "keys": ["action"]}`
	result, reply, err = runVerb(ctx, "stats", options, set)
	if err != nil || len(reply.Notes) != 1 || !strings.HasPrefix(result, `{"action":{`) {
		t.Errorf("notes: %s, %+v, %v", result, reply, err)
	}
	result, _, err = runVerb(ctx, "doctor", `{"fix": true}`, set)
	if err != nil || !strings.Contains(result, `"fix":{`) {
		t.Errorf("fix: %s, %v", result, err)
	}
	info := filepath.Join(set, "meta", "info.json")
	text, err := os.ReadFile(info)
	if err == nil {
		text = bytes.Replace(text, []byte(`"total_frames": 30`), []byte(`"total_frames": 37`), 1)
		err = os.WriteFile(info, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	result, reply, err = runVerb(ctx, "doctor", `{"episodes": [0, 1]}`, set)
	if err != nil || !reply.Findings {
		t.Errorf("findings: %s, %+v, %v", result, reply, err)
	}
	canceled, cancel := stdcontext.WithCancel(ctx)
	cancel()
	if _, _, err := runVerb(canceled, "doctor", `{}`, set); !errors.Is(err, stdcontext.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestVerbsRejected checks the errors of requests that are refused.
func TestVerbsRejected(t *testing.T) {
	for _, c := range []struct {
		verb, options string
		args          []string
		class         error
		want          string
	}{
		{"doctor", `{"decod": true}`, []string{"set"}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"json": true}`, []string{"set"}, robocache.ErrMisuse, "unknown option"},
		{"doctor", `{"memory-budget": 1}`, []string{"set"}, robocache.ErrMisuse, "unknown option"},
		{
			"doctor",
			`{"log_level": "debug"}`,
			[]string{"set"},
			robocache.ErrMisuse,
			"unknown option",
		},
		{"doctor", `{"decode": "yes"}`, []string{"set"}, robocache.ErrMisuse, "true or false"},
		{"doctor", `{"episodes": ["x"]}`, []string{"nowhere"}, robocache.ErrNotFound, "nowhere"},
		{
			"convert",
			`{"episodes": []}`,
			[]string{"set", "sety"},
			robocache.ErrMisuse,
			"at least one",
		},
		{
			"convert",
			`{"episodes": ["x"]}`,
			[]string{"set", "sety"},
			robocache.ErrMisuse,
			"episodes",
		},
		{"doctor", `{}`, nil, robocache.ErrMisuse, "arguments"},
		{"inspect", `{}`, []string{"a", "b"}, robocache.ErrMisuse, "arguments"},
		{"doctor", `{"fix": true}`, []string{"set", ""}, robocache.ErrMisuse, "[DST] is empty"},
		{"doctor", `{}`, []string{"--help"}, robocache.ErrNotFound, "--help"},
		{"nonsense", `{}`, nil, robocache.ErrMisuse, "unknown verb"},
		{"submit", `{}`, nil, robocache.ErrMisuse, "unknown verb"},
		{"inspect", `{}`, []string{"setx"}, robocache.ErrNotFound, "setx"},
	} {
		_, _, err := runVerb(t.Context(), c.verb, c.options, c.args...)
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %q: %v", c.verb, c.options, c.args, err)
		}
	}
}
