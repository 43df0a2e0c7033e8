package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/submit"
)

// clock returns statistics that grow with every call.
func clock() (func() loader.Stats, func() submit.States, *atomic.Int64) {
	var n atomic.Int64
	stats := func() loader.Stats {
		k := n.Add(1)
		return loader.Stats{
			Samples:     64 * k,
			Batches:     k,
			WaitData:    float64(k) / 10,
			Decode:      float64(k) / 2,
			BytesRead:   1000 * k,
			Frames:      64 * k,
			Memory:      loader.MemoryStats{Budget: 1 << 30},
			BufferBytes: 1 << 20,
			DecodeQueue: 3,
			InFlight:    2,
			Cache: &loader.CacheStats{
				Hits:   3 * k,
				Misses: k,
				Bytes:  1 << 10,
				Where:  "/home/someone/secret",
			},
			Errors: map[string]int64{"malformed": k / 3},
			BadEpisodes: []loader.BadEpisode{
				{Error: "https://user:secret@host/x"},
			},
			Warnings: []string{"secret"},
		}
	}
	states := func() submit.States {
		return submit.States{
			Total:   10,
			Done:    4,
			Running: 2,
			Waiting: 3,
			Failed:  1,
			Retries: 5,
			Codes:   map[string]int{"75": 4, "signal": 1},
		}
	}
	return stats, states, &n
}

func serve(t *testing.T, addr string) (*Server, *atomic.Int64) {
	t.Helper()
	stats, states, n := clock()
	s, err := Serve(addr, Loader(stats), Shards(states))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, n
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	r, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestServe(t *testing.T) {
	s, n := serve(t, ":0")
	if !strings.HasPrefix(s.Addr(), "127.0.0.1:") || n.Load() != 0 {
		t.Errorf("%s, %d looks", s.Addr(), n.Load())
	}
	if code, body := get(t, "http://"+s.Addr()+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, "http://"+s.Addr()+"/debug/pprof/"); code != 404 {
		t.Error(code)
	}
	_, text := get(t, "http://"+s.Addr()+"/metrics")
	for _, want := range []string{
		"robocache_loader_samples_total 64\n",
		`robocache_loader_wait_seconds_total{for="data"} 0.1` + "\n",
		`robocache_loader_cache_total{result="hit"} 3` + "\n",
		`robocache_loader_errors_total{class="malformed"} 0` + "\n",
		"robocache_loader_memory_budget_bytes 1.073741824e+09\n",
		`robocache_shards{state="failed"} 1` + "\n",
		`robocache_shard_failed_tries_total{code="75"} 4` + "\n",
		"robocache_loader_decode_queue 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") || n.Load() != 1 {
		t.Errorf("M1 or M3: %d looks\n%s", n.Load(), text)
	}
	for _, addr := range []string{s.Addr(), "9400", "127.0.0.1:99999", "256.1.1.1:0"} {
		if _, err := Serve(addr); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.DialTimeout("tcp", s.Addr(), time.Second); err == nil {
		t.Error("it listens behind Close")
	}
	var none *Server
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

func TestRunning(t *testing.T) {
	r := NewRunning(7)
	r.Episodes(2, 5)
	s, err := Serve(":0", r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, text := get(t, "http://"+s.Addr()+"/metrics")
	for _, want := range []string{
		"robocache_run_shard 7\n",
		`robocache_run_episodes{what="all"} 5` + "\n",
		`robocache_run_episodes{what="done"} 2` + "\n",
		"robocache_run_seconds 0.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The dashboard is JSON that Grafana accepts. Each of its queries has a result from a real
// Prometheus that scrapes this package. promtool accepts the names.
func TestDashboard(t *testing.T) {
	var d struct {
		Title, UID    string
		SchemaVersion int
		Panels        []struct {
			ID          int
			Title, Type string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ RefID, Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	b, err := os.ReadFile("../deploy/grafana/robocache.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil || d.Title == "" || d.UID == "" ||
		d.SchemaVersion < 30 || len(d.Panels) < 10 || len(d.Templating.List) != 2 {
		t.Fatalf("%v %+v", err, d)
	}
	ids, shown := map[int]bool{}, string(b)
	var exprs []string
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || len(p.Targets) == 0 {
			t.Errorf("panel %+v", p)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			exprs = append(exprs, q.Expr)
		}
	}
	for _, name := range families() {
		if !strings.Contains(shown, name) && name != "robocache_loader_batches_total" &&
			name != "robocache_loader_reads_total" &&
			name != "robocache_loader_cache_bytes" {
			t.Errorf("%s is on no panel", name)
		}
	}
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no Prometheus ('make engines' installs it): ", err)
	}
	s, _ := serve(t, ":0")
	_, text := get(t, "http://"+s.Addr()+"/metrics")
	if promtool, err := exec.LookPath("promtool"); err == nil {
		c := exec.Command(promtool, "check", "metrics")
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
	dir := t.TempDir()
	conf := fmt.Sprintf(
		"global: {scrape_interval: 500ms}\n"+
			"scrape_configs: [{job_name: robocache, static_configs: [{targets: [%q]}]}]\n",
		s.Addr(),
	)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	c := exec.Command(
		prometheus,
		"--config.file="+dir+"/prometheus.yml",
		"--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+at,
		"--log.level=error",
	)
	var errs strings.Builder
	c.Stdout, c.Stderr = &errs, &errs
	if err := servers.Begin(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	ask := func(expr string) (answers int, fault string) {
		r, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(expr))
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		var a struct {
			Error string
			Data  struct {
				Result []struct{ Value [2]any }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			return 0, err.Error()
		}
		for _, v := range a.Data.Result {
			if v.Value[1] != "NaN" {
				answers++
			}
		}
		return answers, a.Error
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if n, fault := ask("rate(robocache_loader_samples_total[10s]) > 0"); n > 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("Prometheus has no samples of ours: %s\n%s", fault, &errs)
		}
	}
	for _, e := range exprs {
		e = strings.NewReplacer("$__rate_interval", "10s", "$__range", "10s", "$instance", ".*").
			Replace(e)
		if n, fault := ask(e); n == 0 {
			t.Errorf("%s has no answer: %s", e, fault)
		}
	}
	if _, fault := ask("sum by (instance (x)"); fault == "" {
		t.Error("a query that is none passes")
	}
}

var word = regexp.MustCompile(`^[a-z_]+$`)

func families() (names []string) {
	for _, f := range loaderTable {
		names = append(names, "robocache_"+f.Name)
	}
	for _, f := range shardTable {
		names = append(names, "robocache_"+f.Name)
	}
	return names
}

func TestNames(t *testing.T) {
	for _, n := range families() {
		if !word.MatchString(n) {
			t.Error(n)
		}
	}
}
