package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Every command of docs/edit.md does what the page says, in the order of the page.
func TestEditDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "edit.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := video.CanEncode(t.Context(),
		video.EncodeConfig{Width: 128, Height: 96, Rate: robocache.Rate{Num: 30, Den: 1}}); err !=
		nil {
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	_, table, _ := strings.Cut(string(page), "```\nepisode,")
	table, _, _ = strings.Cut("episode,"+table, "```")
	if err := os.WriteFile("subtasks.csv", []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	n := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		command, ok := strings.CutPrefix(line, "robocache ")
		if !ok {
			continue
		}
		var args []string
		for _, w := range word.FindAllString(command, -1) {
			args = append(args, strings.Trim(w, `"'`))
		}
		var out, notes strings.Builder
		if code := runCommand(t.Context(), newRoot(), args, &out, &notes); code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", line, code, out.String(), notes.String())
		}
		n++
	}
	if n < 15 {
		t.Errorf("%d commands", n)
	}
}
