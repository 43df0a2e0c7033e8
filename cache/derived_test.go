package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPruneDerived checks that derived streams count towards the budget, and that the least recently
// used of shards and derived streams are removed first.
func TestPruneDerived(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	d := mustOpen(t, dir, Options{Budget: small})
	for i := range 10 {
		mustPut(t, d, i)
	}
	d.Close()
	shards, err := filepath.Glob(filepath.Join(dir, "*.shard"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	folder := filepath.Join(dir, derivedFolder)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	old, recent := strings.Repeat("a", 24), strings.Repeat("b", 24)
	ages := map[string]time.Duration{
		old + "-" + old + ".bin":       4 * time.Hour,
		old + "-" + old + ".json":      4 * time.Hour,
		"values-" + recent + ".bin":    2 * time.Hour,
		"robocache-derive-left_0.bin":  5 * time.Hour,
		"robocache-derive-being_1.bin": time.Minute,
		"notes.json":                   9 * time.Hour,
	}
	for name, age := range ages {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(shards[0], now, now.Add(-3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	l, err := List(dir)
	if err != nil || l.Derived != 3 || l.Foreign != 0 || l.Bytes != l.Shards[0].Bytes+4*64<<10 {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, c := range []struct{ budget, shards, derived, bytes int64 }{
		{l.Bytes, 0, 0, l.Bytes},
		{l.Bytes - 1, 0, 1, l.Bytes - 64<<10}, // of a dead writer
		{l.Shards[0].Bytes + 64<<10, 0, 1, l.Shards[0].Bytes + 64<<10},
		{64 << 10, 1, 0, 64 << 10}, // older than the other stream
		{0, 0, 1, 0},
	} {
		p, err := Prune(dir, c.budget)
		if err != nil || p.Removed != c.shards || p.RemovedDerived != c.derived ||
			p.Bytes != c.bytes {
			t.Errorf("budget %d: %+v, %v", c.budget, p, err)
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
