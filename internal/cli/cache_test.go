package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/cache"
)

func TestCacheVerbs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	d, err := cache.Open(dir, cache.Options{Budget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const n, size = 20, 10_000
	for i := range n {
		if err := d.Put(cache.Key{byte(i)}, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 { // two shards
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(t, "cache", "ls", dir, "--json")
	var l cache.Listing
	if err := json.Unmarshal([]byte(out), &l); code != exitDone || err != nil || l.Entries != n ||
		l.DataBytes != n*size || len(l.Shards) != 2 || l.Shards[0].State != cache.StateSealed {
		t.Fatalf("ls: exit %d, %v: %s%s", code, err, out, errs)
	}
	if code, out, _ := call(t, "cache", "ls", dir); code != exitDone ||
		!strings.Contains(out, "20 entries of 200.0 kB") ||
		!strings.Contains(out, l.Shards[1].File) {
		t.Errorf("ls: exit %d: %s", code, out)
	}
	if code, out, _ := call(t, "cache", "verify", dir); code != exitDone ||
		!strings.Contains(out, "2 shards, 20 entries, 200.0 kB read: 0 damaged") {
		t.Errorf("verify: exit %d: %s", code, out)
	}
	path := filepath.Join(dir, l.Shards[0].File)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[5000]++
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, _ = call(t, "cache", "verify", dir, "--drop", "--json")
	var v cache.Verification
	if err := json.Unmarshal([]byte(out), &v); code != exitFindings || err != nil ||
		len(v.Damaged) != 1 || v.Damaged[0].File != l.Shards[0].File || v.Dropped != 1 {
		t.Errorf("verify after damage: exit %d: %s", code, out)
	}
	code, out, _ = call(t, "cache", "prune", dir, "--budget", "0", "--json")
	var p cache.Pruned
	if err := json.Unmarshal([]byte(out), &p); code != exitDone || err != nil || p.Removed != 1 ||
		p.Bytes != 0 {
		t.Errorf("prune: exit %d: %s", code, out)
	}
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"cache"}, exitMisuse, "ls, prune or verify"},
		{[]string{"cache", "frobnicate"}, exitMisuse, "frobnicate"},
		{[]string{"cache", "ls"}, exitMisuse, "arg(s)"},
		{[]string{"cache", "ls", filepath.Join(dir, "none")}, exitNotFound, "none"},
		{[]string{"cache", "ls", t.TempDir()}, exitNotFound, "no cache is here"},
		{[]string{"cache", "prune", dir}, exitMisuse, "budget"},
		{[]string{"cache", "prune", dir, "--budget", "much"}, exitMisuse, "much"},
		{[]string{"cache", "verify", filepath.Dir(dir)}, exitNotFound, "no cache is here"},
	} {
		if code, _, errs := call(t, c.args...); code != c.want || !strings.Contains(errs, c.says) {
			t.Errorf(
				"%v: exit %d, want %d; %q, want it to say %q",
				c.args,
				code,
				c.want,
				errs,
				c.says,
			)
		}
	}
	for _, verb := range []string{"ls", "prune", "verify"} {
		if code, help, _ := call(t, "cache", verb, "--help"); code != exitDone ||
			!strings.Contains(help, "Examples:") || !strings.Contains(help, "Exit codes:") ||
			!strings.Contains(help, "--json") {
			t.Errorf("cache %s --help: exit %d: %s", verb, code, help)
		}
	}
}
