package shard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/synth"
)

// TestStrangers checks that an untrusted manifest or receipt cannot access a file outside the
// destination and is a typed error (shard.H7).
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "out")
	job := shard.Job{
		Name:        "convert",
		Source:      "synth://heterogeneous?episodes=3&cap=10",
		Destination: dst,
		To:          "mcap",
	}
	m := plan(t, job, 2)
	text, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(m map[string]any){
		"job":       func(m map[string]any) { m["job"].(map[string]any)["destination"] = "/etc" },
		"hash":      func(m map[string]any) { m["job_sha256"] = "0" },
		"version":   func(m map[string]any) { m["version"] = 99 },
		"unknown":   func(m map[string]any) { m["more"] = 1 },
		"no shards": func(m map[string]any) { m["shards"] = []any{} },
		"twice":     func(m map[string]any) { s := m["shards"].([]any); s[1] = s[0] },
		"negative": func(m map[string]any) {
			m["shards"].([]any)[1].(map[string]any)["first_row"] = -1
		},
		"beyond": func(m map[string]any) {
			m["shards"].([]any)[1].(map[string]any)["first_episode"] = 1 << 40
		},
		"billions": func(m map[string]any) {
			m["shards"].([]any)[1].(map[string]any)["episodes"] = "0-999999999999"
		},
		"many": func(m map[string]any) {
			m["shards"].([]any)[0].(map[string]any)["episodes"] = "0-19999999"
			m["shards"].([]any)[1].(map[string]any)["episodes"] = "20000000-39999999"
		},
		"backwards": func(m map[string]any) {
			m["shards"].([]any)[1].(map[string]any)["episodes"] = "5-3"
		},
		"no version": func(m map[string]any) { delete(m, "version") },
	} {
		var tree map[string]any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		change(tree)
		b, _ := json.Marshal(tree)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := shard.Parse(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d bytes of manifest took %d", what, len(b), n)
		}
		if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrUnsupported) &&
			!errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range text { // truncated at many positions
		if _, err := shard.Parse(text[:i*7%(len(text)-2)]); err == nil {
			t.Fatal("half a manifest was read")
		}
	}
	job.Convert.Options = map[string]string{"temp_dir": "/tmp/elsewhere"}
	if _, err := shard.NewPlan(t.Context(), job, shard.PlanOptions{Shards: 1}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Errorf("temp_dir: %v", err)
	}
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dst, "_receipts", "00001.json")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "victim.mcap")
	if err := os.WriteFile(outside, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(r map[string]any){
		"out": func(r map[string]any) {
			r["files"].([]any)[0].(map[string]any)["name"] = "../../../victim.mcap"
		},
		"absolute": func(r map[string]any) {
			r["files"].([]any)[0].(map[string]any)["name"] = outside
		},
		"receipts": func(r map[string]any) {
			r["files"].([]any)[0].(map[string]any)["name"] = "_receipts/00000.json"
		},
		"attempt":  func(r map[string]any) { r["attempt"] = "../../.." },
		"shard":    func(r map[string]any) { r["shard"] = 0 },
		"manifest": func(r map[string]any) { r["manifest_sha256"] = "x" },
		"too many": func(r map[string]any) { r["report"].(map[string]any)["num_episodes"] = 1000 },
		"not there": func(r map[string]any) {
			r["files"].([]any)[0].(map[string]any)["name"] = "nothing.mcap"
		},
	} {
		var tree map[string]any
		if err := json.Unmarshal(good, &tree); err != nil {
			t.Fatal(err)
		}
		change(tree)
		b, _ := json.Marshal(tree)
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); !errors.Is(err,
			robocache.ErrMalformed) && !errors.Is(err, robocache.ErrMisuse) &&
			(what != "not there" || !errors.Is(err, robocache.ErrNotFound)) {
			t.Errorf("%s: %v", what, err)
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "mine" {
			t.Fatalf("%s: a file outside the destination was touched", what)
		}
	}
	if err := os.WriteFile(name, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	if open(t, dst).Info().Episodes != 3 {
		t.Error("not all episodes are there")
	}
}

// ran runs two shards of MCAP files. With staged, a partial commit has begun, so that attempts do
// not move their files.
func ran(t *testing.T, staged bool) (dst string, m *shard.Manifest) {
	t.Helper()
	dst = filepath.Join(t.TempDir(), "out")
	m = plan(
		t,
		shard.Job{
			Name:        "convert",
			Source:      "synth://heterogeneous?episodes=3&cap=10",
			Destination: dst,
			To:          "mcap",
		},
		2,
	)
	if staged {
		if err := store.WriteFile(t.Context(), dst, "_staging/partial", nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return dst, m
}

// TestOneNameTwice checks that two receipts with different files of one name are rejected before
// any file is moved.
func TestOneNameTwice(t *testing.T) {
	dst, m := ran(t, true)
	names, _ := filepath.Glob(filepath.Join(dst, "_staging", "*", "*", "*.mcap"))
	receipt := filepath.Join(dst, "_receipts", "00001.json")
	b, err := os.ReadFile(receipt)
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	was, now := filepath.Base(names[2]), filepath.Base(names[0])
	if err := errors.Join(os.Rename(names[2], filepath.Join(filepath.Dir(names[2]), now)),
		os.WriteFile(receipt, bytes.ReplaceAll(b, []byte(was), []byte(now)), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); !errors.Is(err,
		robocache.ErrMalformed) || !strings.Contains(err.Error(), "one file of the name "+now) {
		t.Error(err)
	}
	if moved, _ := filepath.Glob(filepath.Join(dst, "*.mcap")); len(moved) > 0 {
		t.Errorf("%q", moved)
	}
}

// TestFileDiffers checks that a file that differs from its receipt is not committed, before and
// after it was moved. The size is always checked, and the content on request.
func TestFileDiffers(t *testing.T) {
	for _, staged := range []bool{true, false} {
		fileDiffers(t, staged)
	}
}

func fileDiffers(t *testing.T, staged bool) {
	dst, m := ran(t, staged)
	names, _ := filepath.Glob(
		filepath.Join(
			dst,
			map[bool]string{true: "_staging/00001/*/*.mcap", false: "episode_000002.mcap"}[staged],
		),
	)
	if len(names) == 0 {
		t.Fatal("no file")
	}
	good, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	for what, b := range map[string][]byte{
		"cut":     good[:len(good)-1],
		"longer":  append(bytes.Clone(good), 0),
		"flipped": flipped,
		"gone":    nil,
	} {
		if err := os.WriteFile(names[0], b, 0o644); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			_ = os.Remove(names[0])
		}
		_, err := shard.Commit(t.Context(), m, shard.CommitOptions{Verify: what == "flipped"})
		if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrNotFound) ||
			!strings.Contains(err.Error(), "00001.json") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.WriteFile(names[0], good, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{Verify: true}); err != nil {
		t.Fatal(err)
	}
	if open(t, dst).Info().Episodes != 3 {
		t.Error("not all episodes are there")
	}
}

// TestStatsOfStrangers checks that the values in a receipt are not trusted: no memory is allocated
// for rows that no file holds. A shard without values changes nothing.
func TestStatsOfStrangers(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "out")
	m := plan(
		t,
		shard.Job{
			Name:        "stats",
			Source:      "synth://heterogeneous?episodes=3&cap=10",
			Destination: dst,
		},
		2,
	)
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dst, "_receipts", "00001.json")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	part := func(values map[string]any) func(p map[string]any) {
		return func(p map[string]any) {
			for k, v := range values {
				p["columns"].([]any)[0].(map[string]any)[k] = v
			}
		}
	}
	changes := map[string]func(p map[string]any){
		"many values": part(
			map[string]any{"n": 1 << 40, "entries": 20},
		),
		"many entries": part(map[string]any{"n": 1 << 40, "entries": 1 << 40}),
		"no file": part(
			map[string]any{"n": 1000, "entries": 1000, "marks": strings.Repeat("AAAA", 4*251/3)},
		),
		"no columns":   func(p map[string]any) { p["columns"] = []any{} },
		"another type": func(p map[string]any) { p["dtype"] = "uint8" },
	}
	for _, what := range append(slices.Collect(maps.Keys(changes)), "nothing") {
		change := changes[what]
		var tree map[string]any
		if err := json.Unmarshal(good, &tree); err != nil {
			t.Fatal(err)
		}
		for _, c := range tree["report"].(map[string]any)["summary"].([]any) {
			if counted := c.(map[string]any); change == nil {
				delete(counted, "numbers")
			} else {
				change(counted["numbers"].([]any)[0].(map[string]any))
			}
		}
		b, _ := json.Marshal(tree)
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := shard.Commit(t.Context(), m, shard.CommitOptions{}); change != nil &&
			!errors.Is(err, robocache.ErrMalformed) || change == nil && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dst, "stats.json")); err != nil ||
		!bytes.Contains(b, []byte("mean")) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestSourceChanged checks that a changed source is rejected permanently, and that modification
// times are ignored (shard.H3).
func TestSourceChanged(t *testing.T) {
	src := source(t, 4, synth.Options{Cameras: -1})
	m := plan(
		t,
		shard.Job{
			Name:        "convert",
			Source:      src,
			Destination: filepath.Join(t.TempDir(), "out"),
			To:          "lerobot",
		},
		2,
	)
	if _, err := shard.Run(t.Context(), m, 0, shard.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(src, "data", "chunk-000", "file-000.parquet")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(b)
	changed[len(b)/2] ^= 1
	for what, do := range map[string]func() error{
		"content": func() error { return os.WriteFile(name, changed, 0o644) },
		"longer":  func() error { return os.WriteFile(name, append(bytes.Clone(b), 0), 0o644) },
		"gone":    func() error { return os.Remove(name) },
		"more":    func() error { return os.WriteFile(name+".new", b, 0o644) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if _, err := shard.Run(t.Context(), m, 1, shard.RunOptions{}); !errors.Is(err,
			shard.ErrNever) || !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), "changed since it was planned") {
			t.Errorf("%s: %v", what, err)
		}
		_ = os.Remove(name + ".new")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := shard.Run(t.Context(), m, 1, shard.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	other := plan(
		t,
		shard.Job{Name: "convert", Source: src, Destination: m.Job.Destination, To: "lerobot"},
		3,
	)
	if _, err := shard.Run(t.Context(), other, 1, shard.RunOptions{}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Errorf("shards of another manifest: %v", err)
	}
}
