package view

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

// panics is a dataset whose parser panics in one method for one episode.
type panics struct {
	robocache.Dataset
	method  string
	episode int // an episode that the fingerprint of flags does not read
}

func (p *panics) hit(method string, episode int) {
	if p.method == method && episode == p.episode {
		var index []int
		_ = index[episode]
	}
}

func (p *panics) Episode(ctx context.Context, e int) (robocache.Episode, error) {
	p.hit("Episode", e)
	return p.Dataset.Episode(ctx, e)
}

func (p *panics) Times(ctx context.Context, e int, clock string) ([]int64, error) {
	p.hit("Times", e)
	return p.Dataset.Times(ctx, e, clock)
}

func (p *panics) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	p.hit("Gather", rows[0].Episode)
	return p.Dataset.Gather(ctx, key, rows, dst)
}

func (p *panics) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []robocache.FrameRef,
) error {
	p.hit("Frames", rows[0].Episode)
	return p.Dataset.Frames(ctx, key, rows, dst)
}

func (p *panics) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	p.hit("Text", rows[0].Episode)
	return p.Dataset.Text(ctx, key, rows)
}

// TestInternalErrors makes each method of a dataset panic. Affected requests and background work
// answer 500 with the class and the text of the error. Other requests still work.
func TestInternalErrors(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // discards the expected stack traces
	t.Cleanup(func() { slog.SetDefault(log) })
	set := made(t, "zarr", synth.Options{Episodes: 5, Seconds: 0.5, Cameras: 1, Codec: "png"})
	for method, paths := range map[string][]string{
		"Episode": {"/api/episodes", "/api/e/1"},
		"Times": {
			"/api/e/1",
			"/api/e/1/series?key=observation.state",
			"/api/e/1/at?t=0",
			"/api/findings?run=1",
			"/api/quality?run=1",
			"/api/e/1/findings", "/api/e/1?hz=7",
		},
		"Gather": {
			"/api/e/1/series?key=observation.state",
			"/api/e/1/at?t=0",
			"/api/findings?run=1",
			"/api/quality?run=1",
			"/api/e/1/findings", "/api/e/1/series?key=observation.state&hz=7",
		},
		"Frames": {
			"/api/e/1/frame/CAMERA/0",
			"/api/e/1/frame/CAMERA/3?hz=7",
			"/api/findings?run=1",
			"/api/e/1/findings",
		},
		"Text": {"/api/e/1/text/task"},
	} {
		t.Run(method, func(t *testing.T) {
			ds, err := robocache.Open(t.Context(), set)
			if err != nil {
				t.Fatal(err)
			}
			defer ds.Close()
			camera := ""
			for _, f := range ds.Info().Features {
				if f.Kind == robocache.KindImage {
					camera = f.Key
				}
			}
			s := serveSets(t, Options{}, &panics{ds, method, 1})
			for _, path := range paths {
				path = strings.ReplaceAll(path, "CAMERA", camera)
				s.internal(path)
				var about map[string]any
				s.get("/api/info", &about)
				if path := strings.Replace(path, "/e/1", "/e/2", 1); strings.Contains(path,
					"/e/2") {
					if a, b := s.do("GET", path, nil, nil); a.StatusCode != 200 {
						t.Errorf("%s: %s %s", path, a.Status, b)
					}
				}
			}
		})
	}
}

// internal fails the test unless a request is answered with an internal error. It waits for work in
// the background.
func (s *site) internal(path string) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a, b := s.do("GET", path, nil, nil)
		if a.StatusCode == 200 && strings.Contains(string(b), `"state":"running"`) &&
			time.Now().Before(deadline) {
			path = strings.Replace(path, "run=1", "", 1)
			continue
		}
		var answer struct{ Class, Message string }
		err := json.Unmarshal(b, &answer)
		if a.StatusCode != 500 || err != nil || answer.Class != "internal" ||
			!strings.Contains(answer.Message, "index out of range") {
			s.Errorf("%s: %s %.300q, want 500, internal, index out of range", path, a.Status, b)
		}
		return
	}
}
