package lerobot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestLinesOfMetadata reads hand-edited .jsonl files. Unambiguous values are read, and errors name
// the file.
func TestLinesOfMetadata(t *testing.T) {
	const one = `{"task_index": 0, "task": "pick"}`
	for name, c := range map[string]struct{ text, words string }{
		"blank lines":  {one + "\n\n  \n", ""},
		"order mark":   {"\ufeff" + one, ""},
		"CRLF":         {one + "\r\n", ""},
		"whole number": {`{"task_index": 0.0, "task": "pick"}`, ""},
		"pretty": {
			"{\n    \"task_index\": 0,\n    \"task\": \"pick\"\n}",
			"line 1: expected one JSON object per line, found a value that continues on the " +
				"next line",
		},
		"one line": {one + one, "found text after the object"},
		"comma":    {one + ",\n", "found text after the object"},
		"array":    {"[" + one + "]", "found a line that is a list"},
		"text":     {`"pick"`, "found a line that is another value"},
		"float": {
			`{"task_index": 0.5, "task": "pick"}`,
			"pointer /task_index, line 1: expected an integer, found 0.5",
		},
		"number": {
			`{"task_index": 0, "task": 3}`,
			"pointer /task, line 1: expected a text, found 3",
		},
		"quotes": {`{'task_index': 0}`, "expected a key in double quotes"},
	} {
		tasks, err := parseTasksJSONL([]byte(c.text))
		if c.words == "" {
			if err != nil || len(tasks) != 1 || tasks[0].Text != "pick" {
				t.Errorf("%s: %v, %v", name, tasks, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantError(t, err, robocache.ErrMalformed, tasksJSONL, c.words)
		if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "int64") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, _, err := parseEpisodesV2(
		[]byte(`{"episode_index": 0, "length": "5", "tasks": []}`),
		false,
	)
	wantError(
		t,
		err,
		robocache.ErrMalformed,
		`pointer /length, line 1: expected an integer, found the text "5"`,
	)
	e, _, _, err := parseEpisodesV2(
		[]byte(`{"episode_index": 0.0, "length": 5.0, "tasks": []}`),
		false,
	)
	if err != nil || e.length[0] != 5 {
		t.Error(e, err)
	}
}

// TestWordsOfInfo checks the errors about values of the wrong type in info.json.
func TestWordsOfInfo(t *testing.T) {
	for _, c := range []struct{ old, new, words string }{
		{
			`"dtype": "float32", "shape": [3]`,
			`"dtype": 32, "shape": [3]`,
			"pointer /features/observation.state/dtype: expected a text, found 32",
		},
		{
			`"shape": [3]`,
			`"shape": [3], "info": [1]`,
			"pointer /features/observation.state/info: expected an object, found the list [1]",
		},
		{`"fps": 10`, `"fps": 10 10`, "not valid JSON: expected ',' or '}', found '1'"},
		{`"fps": 10`, `"fps": "ten"`, `expected a number above 0, found the text "ten"`},
	} {
		dir := newSynth(3).write(t)
		edit(t, filepath.Join(dir, infoPath), c.old, c.new)
		_, err := tryOpen(t, dir)
		if err == nil {
			t.Errorf("%s: no error", c.new)
			continue
		}
		wantError(t, err, robocache.ErrMalformed, infoPath, c.words)
	}
	dir := newSynth(3).write(t)
	writeText(t, filepath.Join(dir, modalityPath), `{"state": {"arm": {"start": "0", "end": 3}}}`)
	d := mustOpen(t, dir)
	f := pick(d.Info().Findings, "modality")
	if f == nil || !strings.Contains(f.Message,
		`pointer /state/arm/start: expected an integer, found the text "0"`) {
		t.Error(f)
	}
	if err := os.Remove(filepath.Join(dir, modalityPath)); err != nil {
		t.Fatal(err)
	}
}
