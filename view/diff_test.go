package view

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/synth"
)

// editedPair returns a dataset of three episodes, and one without the first of them, in which the
// last is cut at the head.
func editedPair(t *testing.T) (before, after string) {
	before = made(t, "lerobot", synth.Options{Episodes: 3, Seconds: 1, Cameras: -1})
	after = filepath.Join(t.TempDir(), "after")
	_, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{before}, DST: after, Verbs: []edit.Verb{
			{Verb: "trim", From: "5r", Choice: edit.Choice{Episodes: "2"}},
			{Verb: "delete", Choice: edit.Choice{Episodes: "0"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return before, after
}

// TestDiffOfPair: an episode is shown with its match in the other dataset, which has another number,
// and with what differs.
func TestDiffOfPair(t *testing.T) {
	before, after := editedPair(t)
	s := serve(t, Options{}, before, after)
	type answer struct {
		State string
		Match *struct{ A, B int64 }
		Lines []string
	}
	ask := func(path string) (out answer) {
		for range 500 {
			if s.get(path, &out); out.State == "done" {
				return out
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s: %+v", path, out)
		return out
	}
	if got := ask("/api/diff?episode=0"); got.Match != nil || len(got.Lines) > 0 {
		t.Errorf("a removed episode: %+v", got)
	}
	if got := ask("/api/diff?episode=1"); got.Match == nil || got.Match.B != 0 ||
		len(got.Lines) > 0 {
		t.Errorf("an equal episode: %+v", got)
	}
	for _, path := range []string{"/api/diff?episode=2", "/api/diff?s=1&episode=1"} {
		got := ask(path)
		if got.Match == nil || got.Match.A != 2 || got.Match.B != 1 ||
			!slices.Contains(got.Lines, "5 rows removed at the head") {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if a, _ := s.do("GET", "/api/diff?episode=3", nil, nil); a.StatusCode != 404 {
		t.Errorf("an unknown episode: %s", a.Status)
	}
	if a, _ := serve(
		t,
		Options{},
		before,
	).do("GET", "/api/diff?episode=0", nil, nil); a.StatusCode !=
		404 {
		t.Errorf("one dataset: %s", a.Status)
	}
}

// TestDiffOnThePage: the page names the match, and shows it after a click.
func TestDiffOnThePage(t *testing.T) {
	before, after := editedPair(t)
	p := serve(t, Options{}, before, after).browse("e=2")
	p.wait(
		"document.querySelector('#diff-title').textContent.includes('episode 2 of A is changed " +
			"in episode 1 of B')",
	)
	p.wait("document.querySelector('#diff').textContent.includes('5 rows removed at the head')")
	if !eval[bool](p, "document.querySelector('#diff-box').open") {
		t.Error("the differences are folded")
	}
	eval[bool](p, "(document.querySelector('#diff button')?.click(), true)")
	p.wait("document.querySelector('#compare').value === '1:1'")
	p.wait("!document.querySelector('#diff button')")
	p.clean()
}
