package lerobot

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// wantTypes is testdata/make_types.py's want.json.
type wantTypes struct {
	Lengths []int `json:"lengths"`
	Numeric map[string]struct {
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Hex   string `json:"hex"`
	} `json:"numeric"`
	Say        []string `json:"say"`
	RGB        []string `json:"rgb"`
	Depth      []string `json:"depth"`
	Task       []string `json:"task"`
	Persistent []any    `json:"language_persistent"`
	Events     []any    `json:"language_events"`
}

var typesOnce struct {
	sync.Once
	dir, skip string
	want      wantTypes
}

// repoRoot returns the folder that holds go.mod.
func repoRoot() string {
	dir, _ := os.Getwd()
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return ""
}

// python returns the interpreter that has lerobot, or "" if there is none.
func python() string {
	p := filepath.Join(repoRoot(), ".venv", "bin", "python")
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// madeByLeRobot runs testdata/make_types.py once, or skips.
func madeByLeRobot(t *testing.T) (string, *wantTypes) {
	t.Helper()
	typesOnce.Do(func() {
		if typesOnce.skip = os.Getenv("ROBOCACHE_SKIP_ORACLES"); typesOnce.skip != "" {
			return
		}
		if testing.Short() {
			typesOnce.skip = "starts LeRobot: some 8 s"
			return
		}
		if python() == "" {
			typesOnce.skip = "no Python with lerobot in .venv"
			return
		}
		dir, err := os.MkdirTemp("", "lerobot-types")
		if err != nil {
			typesOnce.skip = err.Error()
			return
		}
		typesOnce.dir = dir
		if out, err := exec.Command(python(), filepath.Join("testdata", "make_types.py"), dir).
			CombinedOutput(); err != nil {
			typesOnce.skip = "lerobot could not write: " + err.Error() + ": " + string(
				out[max(0, len(out)-300):],
			)
			return
		}
		b, err := os.ReadFile(filepath.Join(dir, "want.json"))
		if err == nil {
			err = json.Unmarshal(b, &typesOnce.want)
		}
		if err != nil {
			typesOnce.skip = err.Error()
		}
	})
	if typesOnce.skip != "" {
		t.Skip("skipped:", typesOnce.skip)
	}
	return typesOnce.dir, &typesOnce.want
}

func TestMain(m *testing.M) {
	code := m.Run()
	if typesOnce.dir != "" {
		os.RemoveAll(typesOnce.dir)
	}
	os.Exit(code)
}

// TestTypes reads every kind of column that lerobot writes, in every encoding and compression, and
// compares the bits (lerobot.L3).
func TestTypes(t *testing.T) {
	t.Parallel()
	dir, want := madeByLeRobot(t)
	for _, kind := range []string{"rec", "big", "gzip", "none", "lz4", "delta"} {
		t.Run(kind, func(t *testing.T) {
			d := mustOpen(t, filepath.Join(dir, kind))
			for _, f := range d.Info().Findings {
				t.Error(f.Code, f.Where, f.Message)
			}
			ctx := context.Background()
			var rows []robocache.Row
			for e, n := range want.Lengths {
				if d.Len(e) != n {
					t.Fatalf("episode %d has %d rows", e, d.Len(e))
				}
				rows = append(rows, rowsOf(d, e)...)
			}
			for key, w := range want.Numeric {
				f := d.Info().Feature(key)
				if f == nil || f.DType.String() != w.DType || !reflect.DeepEqual(f.Shape, w.Shape) {
					t.Errorf("%s: %+v", key, f)
					continue
				}
				if got := hex.EncodeToString(gather(t, d, key, rows)); got != w.Hex {
					t.Errorf("%s: other bytes\n got %.80s\nwant %.80s", key, got, w.Hex)
				}
			}
			texts := func(key string) []string {
				out, err := d.Text(ctx, key, rows)
				if err != nil {
					t.Fatal(key, err)
				}
				return out
			}
			if got := texts("say"); !reflect.DeepEqual(got, want.Say) {
				t.Errorf("say: %.200q", got)
			}
			if got := texts("task"); !reflect.DeepEqual(got, want.Task) {
				t.Errorf("task: %.200q, want %.200q", got, want.Task)
			}
			for key, w := range map[string][]any{
				"language_persistent": want.Persistent,
				"language_events":     want.Events,
			} {
				for i, s := range texts(key) {
					var v any
					if err := json.Unmarshal([]byte(s), &v); err != nil {
						t.Fatal(key, err, s)
					}
					if !reflect.DeepEqual(v, w[i]) {
						t.Fatalf("%s row %d: %s, want %v", key, i, s, w[i])
					}
				}
			}
			for key, w := range map[string][]string{"rgb": want.RGB, "depth": want.Depth} {
				out := make([]robocache.FrameRef, len(rows))
				if err := d.Frames(ctx, key, rows, out); err != nil {
					t.Fatal(key, err)
				}
				for i, r := range out {
					if hex.EncodeToString(r.Encoded) != w[i] {
						t.Fatalf("%s row %d: other bytes", key, i)
					}
				}
			}
			times, err := d.Times(ctx, 2, "")
			if err != nil || len(times) != 12 || times[0] != 0 || times[1] != 100000000 {
				t.Error(times, err) // float32(0.1) is 0.10000000149 (lerobot.L8)
			}
			st, err := d.Stats(ctx)
			if err != nil || st["v32"] == nil || len(st["v32"].Mean) != 7 ||
				st["v32"].Quantiles["q01"] == nil ||
				st["rgb"] == nil ||
				!reflect.DeepEqual(st["rgb"].Shape, []int{3, 1, 1}) {
				t.Errorf("%v %+v", err, st["rgb"])
			}
		})
	}
}
