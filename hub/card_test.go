package hub

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

func report() *inspect.Report {
	return &inspect.Report{
		Info: robocache.Info{
			Format:   "lerobot",
			Version:  "v3.0",
			Episodes: 2,
			Frames:   60,
			FPS:      robocache.Rate{Num: 30, Den: 1},
			Tasks:    []robocache.Task{{Text: "a\n# <img src=x onerror=y> | `z`"}},
		},
		Streams: []inspect.Stream{
			{Key: "a|b", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{3, 2}},
		},
	}
}

// TestCard checks that a README keeps its content, that the generated part appears once, and that
// only the caller sets a license (hub.U4).
func TestCard(t *testing.T) {
	for name, c := range map[string]struct {
		old, license string
		want, not    []string
	}{
		"none": {"", "", []string{
			"# arm\n",
			"- LeRobot",
			"data_files: data/*/*.parquet",
			"2 episodes, 60 frames at 30 Hz",
			`a\|b`,
			"3×2",
			"![",
			`- a \# \<img src=x onerror=y\> \| \` + "`z\\`",
		}, []string{"license"}},
		"licence": {"", "mit", []string{"license: mit"}, nil},
		"other": {"---\nlicense: apache-2.0\n---\nx", "mit", []string{
			"license: mit",
			"\nx\n",
		}, []string{"apache"}},
		"keys and text": {"---\ntags: [mine]\nlicense: cc0-1.0\nconfigs:\n- config_name: " +
			"own\n---\n\n# Title\n\nWords.\n", "", []string{
			"mine",
			"license: cc0-1.0",
			"config_name: own",
			"# Title\n\nWords.\n",
		}, []string{"LeRobot", "# arm"}},
		"no keys": {"# Title\n\n---\nline\n", "", []string{"# Title\n\n---\nline\n"}, nil},
		"made before": {
			"---\na: 1\n---\n\nfront\n\n" + generatedBegin + "\nold table\n" +
				generatedEnd + "\n\nback\n",
			"",
			[]string{
				"a: 1",
				"front\n\n" + generatedBegin,
				generatedEnd + "\n\nback\n",
			},
			[]string{"old table"},
		},
		"windows": {"---\r\na: 1\r\n---\r\ntext\r\n", "", []string{
			"a: 1\n",
			"\ntext\n",
		}, []string{"\r"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Card(report(), "arm", c.license, "assets/preview.png", []byte(c.old))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !bytes.Contains(got, []byte(w)) {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
			for _, w := range c.not {
				if bytes.Contains(got, []byte(w)) {
					t.Errorf("%q in\n%s", w, got)
				}
			}
			again, err := Card(report(), "arm", "", "assets/preview.png", got)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("made again: %v\n%s\n%s", err, got, again)
			}
		})
	}
	var e *robocache.Error
	if _, err := Card(report(), "arm", "", "", []byte("---\n- a\n: [\n---\n")); !errors.Is(err,
		robocache.ErrMalformed) || !errors.As(err, &e) || e.Where["file"] != "README.md" {
		t.Error(err)
	}
}

// FuzzCard checks that any README yields a card with valid YAML keys, or a typed error.
func FuzzCard(f *testing.F) {
	for _, s := range []string{
		"",
		"---\n",
		"---\n---\n",
		"---\na: &x [*x]\n---\n",
		"---\n? a\n---\nb",
		generatedBegin,
		generatedEnd + generatedBegin,
		"---\na: 1\n---",
		"---\na: 1\na: 2\n---\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, old []byte) {
		got, err := Card(report(), "arm", "mit", "", old)
		var e *robocache.Error
		if err != nil {
			if !errors.As(err, &e) || e.Class == nil {
				t.Fatal("untyped", err)
			}
			return
		}
		head, _, ok := strings.Cut(strings.TrimPrefix(string(got), "---\n"), "\n---\n")
		var keys yaml.Node
		if err := yaml.Unmarshal([]byte(head), &keys); !ok || err != nil {
			t.Fatalf("%v: %q", err, got)
		}
	})
}
