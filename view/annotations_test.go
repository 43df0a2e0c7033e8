package view

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/synth"
)

// TestAnnotationFile: annotations are written as CSV, read again by the next server, and removed by
// an empty text. Ranges outside the episode are rejected and change nothing.
func TestAnnotationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.csv")
	set := made(t, "lerobot", synth.Options{Codec: "png", Episodes: 2, Seconds: 1, Cameras: 1})
	s := serve(t, Options{Annotations: path}, set)
	post := func(s *site, body string) int {
		a, _ := s.do("POST", "/api/annotations", strings.NewReader(body), nil)
		return a.StatusCode
	}
	for body, status := range map[string]int{
		`{"episode": 1, "from": 3, "to": 9, "text": "grasp, \"slow\"\nthen lift"}`: 200,
		`{"episode": 0, "from": 0, "to": 5, "text": "reach"}`:                      200,
		`{"episode": 0, "from": 0, "to": 5000, "text": "x"}`:                       400,
		`{"episode": 0, "from": 4, "to": 4, "text": "x"}`:                          400,
		`{"episode": 0, "from": 0.5, "to": 4, "text": "x"}`:                        400,
		`{"episode": 7, "from": 0, "to": 4, "text": "x"}`:                          404,
		`{"episode": 0, "from": `:                                                  400,
	} {
		if got := post(s, body); got != status {
			t.Errorf("%s: status %d, want %d", body, got, status)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(content))).ReadAll()
	want := [][]string{
		{"episode", "from", "to", "text"},
		{"0", "0", "5", "reach"},
		{"1", "3", "9", "grasp, \"slow\"\nthen lift"},
	}
	if err != nil || !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("%q %v", rows, err)
	}
	again := serve(t, Options{Annotations: path}, set)
	if got := post(again, `{"episode": 0, "from": 0, "to": 5, "text": ""}`); got != 200 {
		t.Error(got)
	}
	var out struct{ Annotations []annotation }
	if again.get("/api/annotations", &out); len(out.Annotations) != 1 ||
		out.Annotations[0].Episode != 1 {
		t.Errorf("%+v", out)
	}
}

// FuzzAnnotations: a file that parses is written to a file with the same annotations.
func FuzzAnnotations(f *testing.F) {
	f.Add("episode,from,to,text\n0,1,2,reach\n", false)
	f.Add("style,text,to_s,from_s,episode\nsubtask,\"a,b\",2.5,0.1,3\n", true)
	f.Add("episode,from,to,text\n0,1,1,x\n", false)
	f.Fuzz(func(t *testing.T, content string, inSeconds bool) {
		a := annotations{inSeconds: inSeconds}
		if a.parse([]byte(content)) != nil {
			return
		}
		b, err := a.bytes()
		if err != nil {
			t.Fatal(err)
		}
		again := annotations{inSeconds: inSeconds}
		if err := again.parse(b); err != nil || !slices.Equal(a.list, again.list) {
			t.Fatalf("%q: %v\n%+v\n%+v", b, err, a.list, again.list)
		}
	})
}
