package shard_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// sameReport checks that shards wrote the same meta/conversion.json as one conversion. Other tests
// compare findings and results for the whole dataset, which may be in another order.
func sameReport(t testing.TB, want, got string) {
	t.Helper()
	read := func(dir string) map[string]any {
		b, err := os.ReadFile(filepath.Join(dir, "meta", "conversion.json"))
		if err != nil {
			t.Fatal(err)
		}
		var report map[string]any
		if err := json.Unmarshal(b, &report); err != nil {
			t.Fatal(err)
		}
		delete(report, "findings")
		return report
	}
	w, g := read(want), read(got)
	if list, _ := w["episodes"].([]any); len(list) == 0 {
		t.Fatalf("the report of one conversion has no episodes: %v", w)
	}
	for key := range w {
		if !reflect.DeepEqual(w[key], g[key]) {
			t.Errorf("conversion.json, %s:\n%v, want\n%v", key, g[key], w[key])
		}
	}
	if len(w) != len(g) {
		t.Errorf("conversion.json has %d keys, want %d", len(g), len(w))
	}
	if _, err := os.Stat(filepath.Join(got, "meta", "conversion")); err == nil {
		t.Error("reports of shards are left")
	}
}
