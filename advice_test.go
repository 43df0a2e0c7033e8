package robocache

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		finding Finding
		want    string
	}{
		{
			Finding{Code: "unreadable-image"},
			`Fetch the file again, or leave the episode out with OnBadEpisode: "skip"`,
		},
		{Finding{Code: "unreadable-image", Hint: "its own"}, "its own"},
		{Finding{Code: "unreadable-image", Message: "cut; hint: fetch it"}, ""},
		{Finding{Code: "latency"}, ""},
	} {
		if got := c.finding.Advice(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.finding, got, c.want)
		}
		b, err := json.Marshal(c.finding)
		var out struct{ Hint string }
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil || out.Hint != c.want {
			t.Errorf("%s: %v, want %q", b, err, c.want)
		}
	}
}

// Each code with an advice is the code of a finding.
func TestAdvisedCodesExist(t *testing.T) {
	if _, err := exec.LookPath("grep"); err != nil {
		t.Skip("no program grep")
	}
	for code := range adviceByCode {
		out, err := exec.Command("grep", "-rlF", "--include=*.go", "--exclude=advice*", `"`+code+
			`"`, ".").
			Output()
		if err != nil || len(strings.TrimSpace(string(out))) == 0 {
			t.Errorf("no finding has the code %s: %v", code, err)
		}
	}
	if _, err := os.Stat("go.mod"); err != nil {
		t.Fatal(err)
	}
}
