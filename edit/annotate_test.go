package edit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/synth"
)

// plainSet returns a small dataset without cameras.
func plainSet(t testing.TB) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "set")
	_, err := synth.Write(t.Context(), dst, synth.Options{Episodes: 3, Cameras: -1, Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

// file writes a file of annotations.
func annotationFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// spans returns the subtasks of an episode as runs of rows.
func spans(t testing.TB, path string, episode int) string {
	t.Helper()
	ds := open(t, path)
	texts, err := ds.Text(t.Context(), "subtask", robocache.RowsOf(episode, 0, ds.Len(episode)))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for from := 0; from < len(texts); {
		to := from + 1
		for to < len(texts) && texts[to] == texts[from] {
			to++
		}
		out = append(out, fmt.Sprintf("%d-%d %s", from, to, texts[from]))
		from = to
	}
	return strings.Join(out, ", ")
}

func TestAnnotate(t *testing.T) {
	set := plainSet(t)
	csv := annotationFile(t, "a.csv", "episode,from,to,text\n"+
		"0,0,10,reach\n0,10,20,\"grasp, hold\"\n2,5,,lift\n")
	first, report := run(t, set, edit.Verb{Verb: "annotate", From: csv})
	if got := spans(t, first, 0); got != "0-10 reach, 10-20 grasp, hold, 20-30 " {
		t.Error(got)
	}
	if got := spans(t, first, 1) + "; " + spans(t, first, 2); got != "0-30 ; 0-5 , 5-30 lift" {
		t.Error(got)
	}
	if f := open(t, first).Info().Feature("subtask"); f == nil || f.Kind != robocache.KindText {
		t.Errorf("%+v", f)
	}
	if report.Format != "lerobot" || len(report.Findings) > 0 {
		t.Errorf("%+v", report)
	}
	// A second annotation replaces the texts of the episodes that it names, or appends.
	again := edit.Verb{Verb: "annotate", Text: "wait", Ranges: []edit.Annotation{
		{Episode: 0, FromS: new(0.1), ToS: new(0.2)},
	}}
	replaced, _ := run(t, first, again)
	if got := spans(t, replaced, 0) + "; " + spans(t, replaced, 2); got !=
		"0-3 , 3-6 wait, 6-30 ; 0-5 , 5-30 lift" {
		t.Error(got)
	}
	again.Append = true
	appended, _ := run(t, first, again)
	if got := spans(t, appended, 0); got !=
		"0-3 reach, 3-6 wait, 6-10 reach, 10-20 grasp, hold, 20-30 " {
		t.Error(got)
	}
	// A trim moves the texts with their rows.
	trimmed, _ := run(t, first, edit.Verb{Verb: "trim", From: "4r", To: "-2r"})
	if got := spans(t, trimmed, 0) + "; " + spans(t, trimmed, 2); got !=
		"0-6 reach, 6-16 grasp, hold, 16-24 ; 0-1 , 1-24 lift" {
		t.Error(got)
	}
}

// Texts may precede and follow other edits, and other formats become LeRobot.
func TestAnnotateOtherFormats(t *testing.T) {
	set := plainSet(t)
	zarr := filepath.Join(t.TempDir(), "zarr")
	_, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{set}, DST: zarr, To: "zarr",
		Verbs: []edit.Verb{{Verb: "delete", Choice: edit.Choice{Episodes: "0"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := annotationFile(t, "found.json", `{"ranges": [{"episode": 1, "from": 3, "to": 7}]}`)
	out, report := run(t, zarr,
		edit.Verb{Verb: "annotate", From: found, Text: "close"},
		edit.Verb{Verb: "trim", From: "2r", Choice: edit.Choice{Episodes: "1"}})
	if got := spans(t, out, 1); report.Format != "lerobot" || got != "0-1 , 1-5 close, 5-28 " {
		t.Errorf("%s: %s", report.Format, got)
	}
}

// The styles of questions about images, traces and other words for the task have LeRobot's form.
func TestAnnotateStyles(t *testing.T) {
	set := filepath.Join(t.TempDir(), "set")
	opt := synth.Options{Episodes: 2, Cameras: 1, Seconds: 1, Codec: "png"}
	if _, err := synth.Write(t.Context(), set, opt); err != nil {
		t.Fatal(err)
	}
	camera := ""
	for _, f := range open(t, set).Info().Features {
		if strings.HasPrefix(f.Key, "observation.images.") {
			camera = f.Key
		}
	}
	csv := annotationFile(t, "a.csv", "episode,from,text,style,role,camera\n"+
		"0,,grab it,task_aug,,\n0,,take it,task_aug,,\n"+
		"0,4,where?,vqa,user,"+camera+"\n0,4,there,vqa,assistant,"+camera+"\n"+
		"0,4,\"[[1, 2]]\",trace,,"+camera+"\n0,4,stop,interjection,,\n"+
		"1,28,wait,interjection,,\n1,29,stop,interjection,,\n") // events have one row
	out, _ := run(t, set, edit.Verb{Verb: "annotate", From: csv})
	// A trim keeps the words for the task, and moves the events.
	out, _ = run(t, out, edit.Verb{Verb: "trim", From: "3r", Choice: edit.Choice{Episodes: "0"}})
	texts := func(key string, row int) (got []string) {
		text, err := open(t, out).Text(t.Context(), key, robocache.RowsOf(0, row, 1))
		if err != nil {
			t.Fatal(err)
		}
		var items []write.LanguageItem
		if err := json.Unmarshal([]byte(text[0]), &items); err != nil {
			t.Fatal(err)
		}
		for _, x := range items {
			about := fmt.Sprintf("%s %s %q", *x.Style, *x.Role, *x.Content)
			if x.Camera != nil {
				about += " " + *x.Camera
			}
			if x.Timestamp != nil {
				about += fmt.Sprint(" ", *x.Timestamp)
			}
			got = append(got, about)
		}
		return got
	}
	words := []string{`task_aug user "grab it" 0`, `task_aug user "take it" 0`}
	for _, row := range []int{0, 9} {
		if got := texts(write.LanguagePersistent, row); !slices.Equal(got, words) {
			t.Errorf("row %d: %q", row, got)
		}
	}
	events := []string{
		`interjection user "stop"`, `trace assistant "[[1, 2]]" ` + camera,
		`vqa assistant "there" ` + camera, `vqa user "where?" ` + camera,
	}
	if got := texts(write.LanguageEvents, 1); !slices.Equal(got, events) {
		t.Errorf("events %q", got)
	}
	if got := texts(write.LanguageEvents, 2); len(got) > 0 {
		t.Errorf("events of the next row: %q", got)
	}
	for line, want := range map[string]string{
		"0,0,a,vqa,user,\n":                                          "needs a camera",
		"0,0,a,vqa,user,observation.images.x\n":                      "no camera of this name",
		"0,0,a,vqa,user,action\n":                                    "no camera of this name",
		"0,0,a,vqa,," + camera + "\n":                                "needs a role",
		"0,0,a,vqa,robot," + camera + "\n":                           "no role",
		"0,0,a,subtask,,x\n":                                         "refer to no camera",
		"0,0,a,subtask,user,\n":                                      "have the role",
		"0,3,a,task_aug,,\n":                                         "whole episode",
		"0,1,a,trace,," + camera + "\n0,1,b,trace,," + camera + "\n": "overlaps",
	} {
		_, err := edit.Run(t.Context(), &edit.Request{
			Sources: []string{set}, DryRun: true,
			Verbs: []edit.Verb{{Verb: "annotate", From: annotationFile(t, "a.csv",
				"episode,from,text,style,role,camera\n"+line)}},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func TestAnnotateErrors(t *testing.T) {
	set := plainSet(t)
	header := "episode,from,to,text\n"
	for text, want := range map[string][]string{
		header + "0,0,10,a\n0,9,12,b\n": {"line 3", "overlaps", "of line 2", "episode 0"},
		header + "0,5,5,a\n":            {"line 2", "rows 5 to 5 of 30", "episode 0"},
		header + "1,20,31,a\n":          {"line 2", "rows 20 to 31 of 30", "episode 1"},
		header + "9,0,1,a\n":            {"line 2", "9"},
		header + "0,x,1,a\n":            {"line 2", "no number"},
		header + "0,0,1,\n":             {"line 2", "no text"},
		header + ",0,1,a\n":             {"line 2", "no episode"},
		"episode,start\n0,1\n":          {"start"},
		header + "0,0,1,\"a\n":          {"line"},
		header:                          {"without ranges"},
		header + "0,0,1,a,b\n":          {"line 2"},
		`[{"episode": 0, "from": 1, "to": 0, "text": "a"}]`: {"item 0", "rows 1 to 0"},
		`[{"episode": 0, "from": 0, "to": 1, "text": "a", "style": "subtasks"}]`: {
			"subtasks", "subtask",
		},
		`[{"episode": "x"}]`:                        {"episode"},
		`[{"from": 0, "to": 1, "text": "a"}]`:       {"item 0", "no episode"},
		`[{"episode": 0, "start": 0, "text": "a"}]`: {"item 0", "start"},
		`{"ranges": [{"from": 0, "to": 1}]}`:        {"item 0", "no episode"},
		"episode,from_s,text\n0,-1,a\n":             {"line 2", "-1 s", "before"},
	} {
		_, err := edit.Run(t.Context(), &edit.Request{
			Sources: []string{set}, DryRun: true,
			Verbs: []edit.Verb{{Verb: "annotate", From: annotationFile(t, "a.csv", text)}},
		})
		missing := func(part string) bool { return !strings.Contains(fmt.Sprint(err), part) }
		if err == nil || slices.ContainsFunc(want, missing) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// An edit in place is undone.
func TestAnnotateInPlace(t *testing.T) {
	set := plainSet(t)
	_, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{set}, InPlace: true, Verbs: []edit.Verb{{
			Verb: "annotate", Text: "a", Ranges: []edit.Annotation{{Episode: 0}},
		}},
	})
	if got := spans(t, set, 0); err != nil || got != "0-30 a" {
		t.Fatal(got, err)
	}
	if err := edit.Undo(set); err != nil || open(t, set).Info().Feature("subtask") != nil {
		t.Error(err)
	}
}
