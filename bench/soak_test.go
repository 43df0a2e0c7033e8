package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/internal/realdata"
)

func soakOf(t *testing.T, d time.Duration) *Soak {
	return &Soak{URI: realdata.Path(t, "g1_h264_v30"), Duration: d, Log: t.Logf}
}

func TestSoakShort(t *testing.T) {
	for d := 2 * time.Second; ; d *= 4 { // a slow machine may need longer for a round of each kind
		r, err := soakOf(t, d).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A few rounds show no trend, only that the rounds were right.
		if r.Failed != "" && !strings.Contains(r.Failed, "too few") &&
			!strings.Contains(r.Failed, "grow") {
			t.Fatalf("%+v", r)
		}
		if r.Rounds > 0 && r.Frames > 0 && r.Resumes > 0 {
			return
		}
		if d > time.Minute {
			t.Fatalf("%+v", r)
		}
	}
}

// A single wrong pixel is found on every path.
func TestSoakFindsAWrongFrame(t *testing.T) {
	s := soakOf(t, 0)
	if err := s.learnTruth(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	turn := soakTurn{
		Workload: Workload{URI: s.URI, BatchSize: 16, Workers: 2, Video: "one", Shuffle: "global"},
	}
	if err := s.runRound(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	for i := range s.truth.hashes[""] {
		s.truth.hashes[""][i]++
	}
	if err := s.runRound(t.Context(), turn); err == nil ||
		!strings.Contains(err.Error(), "other pixels") {
		t.Errorf("%v", err)
	}
}

// Every choice occurs, and a round can be repeated by its number.
func TestSoakTurns(t *testing.T) {
	s := &Soak{URI: "/set", Seed: 3}
	seen := map[string]int{}
	for n := range 300 {
		a, b := s.chooseTurn(n, "/dir"), s.chooseTurn(n, "/dir")
		if a.String() != b.String() {
			t.Fatal("a round cannot be done again")
		}
		w := a.Workload
		for _, k := range []string{
			"shuffle " + w.Shuffle,
			"cache " + w.Cache + w.CacheFormat,
			"size " + w.ImageSize,
		} {
			seen[k]++
		}
		if a.http {
			seen["http"]++
		}
		if a.World == 2 {
			seen["ranks"]++
		}
	}
	for _, k := range []string{
		"shuffle pool",
		"shuffle global",
		"shuffle file",
		"cache ram",
		"cache /dir/cache-yuvyuv",
		"cache /dir/cache-encodedencoded",
		"cache /dir/cache-rgbrgb",
		"size 96x96",
		"http",
		"ranks",
	} {
		if seen[k] == 0 {
			t.Errorf("%s never came: %v", k, seen)
		}
	}
}

// Growth of memory, files and goroutines is detected. Flat and noisy values are not growth.
func TestTrend(t *testing.T) {
	for name, c := range map[string]struct {
		look func(i int) resourceLook
		want string
	}{
		"flat": {func(i int) resourceLook { return resourceLook{0, 100, 10, 4} }, ""},
		"noisy": {func(i int) resourceLook {
			return resourceLook{0, 100 + float64(i%7), 10 + float64(i%2), 4 + float64(i%3)}
		}, ""},
		"one peak": {
			func(i int) resourceLook { return resourceLook{0, 100 + 200*float64(i/89), 10, 4} },
			"",
		},
		"warming up": {
			func(i int) resourceLook { return resourceLook{0, min(400, 20*float64(i)), 10, 4} },
			"",
		},
		"memory": {
			func(i int) resourceLook { return resourceLook{0, 100 + float64(i), 10, 4} },
			"memory grows",
		},
		"files": {
			func(i int) resourceLook { return resourceLook{0, 100, 10 + float64(i/10), 4} },
			"files grow",
		},
		"goroutines": {
			func(i int) resourceLook { return resourceLook{0, 100, 10, 4 + float64(i)} },
			"goroutines grow",
		},
	} {
		var tr resourceLooks
		for i := range 90 {
			l := c.look(i)
			l[0] = float64(10 * i)
			tr = append(tr, l)
		}
		got := tr.computeTrend().growthText()
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := resourceLooks(nil).computeTrend().growthText(); !strings.Contains(got, "too few") {
		t.Error(got)
	}
	var tr resourceLooks
	before := openFiles()
	tr.recordLook(time.Second)
	f, err := os.Open("/proc/self/stat")
	if err != nil {
		t.Skip("no /proc")
	}
	defer f.Close()
	if before == 0 || openFiles() != before+1 || tr[0][1] < 1 || tr[0][3] < 1 {
		t.Errorf("%d, %d files, %+v", before, openFiles(), tr)
	}
}
