package view

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/video"
)

//go:embed assets
var assets embed.FS

// Options say who may look, and what is shown beside the dataset.
type Options struct {
	Token      string   // what a request must bring; "" = anybody may look
	AllowHosts []string // host names beside those of loopback that a request may be sent to
	Flags      string   // the file of flagged episodes; "" = the page gives a download
	// of the rows that an alignment would make; its HZ is what the page begins with
	Align *align.Config
}

// Server shows datasets. They stay the caller's to close, after Close.
type Server struct {
	opt     Options
	sets    []*set
	cookie  string
	pool    *video.Pool
	frames  *lru.Cache[frameKey, []byte]
	cameras *lru.Cache[cameraKey, *camera]
	slots   chan struct{} // of decoding
	waiting atomic.Int32  // requests that want to decode
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // goroutines that outlive a request

	flagsMu sync.Mutex
	flags   *flags.File
}

// New makes a server of one dataset, or of two to compare.
func New(ctx context.Context, datasets []robocache.Dataset, opt Options) (_ *Server, err error) {
	defer crash.Recover("view", &err)
	s := &Server{
		opt:    opt,
		cookie: cookieName(opt.Token),
		pool:   video.NewPool(decoderBudget),
		frames: lru.New[frameKey, []byte](frameBudget),
		cameras: lru.New[cameraKey, *camera](
			maxCameras,
		),
		slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.flags, err = flags.New(ctx, datasets[0]); err != nil {
		return nil, err
	}
	if opt.Flags != "" {
		f, err := flags.Read(ctx, opt.Flags)
		if err == nil {
			if err := f.Check(ctx, datasets[0]); err != nil {
				return nil, err
			}
			s.flags.Flags = append(s.flags.Flags, f.Flags...)
		} else if !errors.Is(err, robocache.ErrNotFound) {
			return nil, err
		}
	}
	for i, ds := range datasets {
		s.sets = append(s.sets, newSet(i, ds))
		s.sets[i].align = opt.Align
	}
	for _, x := range s.sets {
		s.background(x.list)
		if x.small() {
			s.background(
				func(ctx context.Context) error { return errors.Join(x.diagnose(ctx), x.measure(ctx)) },
			)
		}
	}
	return s, nil
}

// background runs work that ends with the server.
func (s *Server) background(fn func(ctx context.Context) error) {
	s.work.Go(func() {
		if err := crash.Func(
			"view",
			func() error { return fn(s.ctx) },
		)(); err != nil &&
			s.ctx.Err() == nil {
			slog.Warn("view", "error", err)
		}
	})
}

// Close ends all work.
func (s *Server) Close() {
	s.stop()
	s.work.Wait()
	_ = s.pool.Close()
}

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return robocache.At(err, robocache.Where{"listen": l.Addr().String()})
	case <-ctx.Done():
		err := srv.Close()
		<-done
		return err
	}
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", page)
	mux.HandleFunc("GET /assets/{version}/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=31536000, immutable")
		http.StripPrefix("/assets/"+r.PathValue("version"), http.FileServerFS(files())).
			ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /login", s.login)
	// What is asked of an episode or a stream is read from the path first.
	episode := func(fn func(*request) error) func(*request) error {
		return func(q *request) error {
			if err := q.inEpisode(); err != nil {
				return err
			}
			return fn(q)
		}
	}
	stream := func(fn func(*request) error) func(*request) error {
		return episode(func(q *request) error {
			if err := q.inStream(); err != nil {
				return err
			}
			return fn(q)
		})
	}
	for path, fn := range map[string]func(*request) error{
		"GET /api/info": s.info, "GET /api/episodes": s.episodes, "GET /api/measures": s.measures, "GET /api/findings": s.findings, "GET /api/flags": s.readFlags, "POST /api/flags": s.writeFlag,
		"GET /api/e/{episode}": episode(s.episode), "GET /api/e/{episode}/at": episode(s.at), "GET /api/e/{episode}/findings": episode(s.episodeFindings),
		"GET /api/e/{episode}/series": stream(s.series), "GET /api/e/{episode}/text/{key}": stream(s.text), "GET /api/e/{episode}/frame/{key}/{row}": stream(s.frame),
		"GET /api/e/{episode}/video/{key}": stream(s.video), "GET /api/e/{episode}/pts/{key}": stream(s.pts), "GET /api/e/{episode}/cloud/{key}/{row}": stream(s.cloud),
	} {
		mux.Handle(path, s.api(fn))
	}
	mux.Handle("/api/", s.api(func(*request) error { return notFound("no such address") }))
	return s.guarded(mux)
}

// files returns the embedded files of the page. A fault here is a defect of the build.
func files() fs.FS {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err)
	}
	return sub
}

func assetBytes(name string) []byte {
	b, err := fs.ReadFile(files(), name)
	if err != nil {
		panic(err)
	}
	return b
}

// index is the page. The address of its other files holds what is in them, so that a browser keeps
// them as long as it likes.
var index = sync.OnceValue(func() []byte {
	h := sha256.New()
	entries, err := fs.ReadDir(files(), ".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		h.Write(assetBytes(e.Name()))
	}
	return bytes.ReplaceAll(
		assetBytes("index.html"),
		[]byte("\"assets/"),
		fmt.Appendf(nil, "\"assets/%x/", h.Sum(nil)[:6]),
	)
})

func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(index())
}

// request is one request for data.
type request struct {
	http.ResponseWriter
	*http.Request
	set     *set // what is asked: the dataset, or an alignment of it
	base    *set // the dataset
	e       int
	feature *robocache.Feature
}

// api makes a handler of what answers, or fails with a typed error.
func (s *Server) api(fn func(q *request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{ResponseWriter: w, Request: r}
		var err error
		func() {
			defer crash.Recover("view", &err)
			if !s.allowed(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(
					w,
					"the address of this page ends with #token=…, as 'robocache view' printed it",
					http.StatusUnauthorized,
				)
				return
			}
			if w.Header().Get("Cache-Control") == "" {
				w.Header().Set("Cache-Control", "no-store")
			}
			n, failed := q.number("s", 0, 0, int64(len(s.sets)-1))
			if failed != nil {
				err = failed
				return
			}
			q.base = s.sets[n]
			q.set = q.base
			err = fn(q)
		}()
		if err != nil && r.Context().Err() == nil {
			fail(w, err)
		}
	})
}

// fail says what went wrong.
func fail(w http.ResponseWriter, err error) {
	class, _ := robocache.ClassOf(err)
	status, ok := map[string]int{"not_found": 404, "misuse": 400, "malformed": 422, "unsupported": 415, "resource_limit": 413, "temporary": 503}[class]
	if !ok {
		status = 500
	}
	out := map[string]any{"class": class, "message": err.Error()}
	var e *robocache.Error
	if errors.As(err, &e) {
		out["where"], out["hint"] = e.Where, e.Hint
	}
	b, _ := json.Marshal(out)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func notFound(msg string) error {
	return robocache.NotFound("view", nil, "%s", msg)
}

// number reads a query parameter.
func (q *request) number(name string, otherwise, least, most int64) (int64, error) {
	text := q.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	return parse(name, text, least, most)
}

func parse(name, text string, least, most int64) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		return 0, notFound(
			name + " is " + strconv.Quote(
				text,
			) + ", expected " + strconv.FormatInt(
				least,
				10,
			) + " to " + strconv.FormatInt(
				most,
				10,
			),
		)
	}
	return v, nil
}

// inEpisode reads which episode is asked for, and whether as an alignment of it.
func (q *request) inEpisode() error {
	index, err := parse("episode", q.PathValue("episode"), 0, math.MaxInt64)
	if err != nil {
		return err
	}
	position, err := q.base.info.EpisodePosition(index)
	if err != nil {
		return notFound("no such episode")
	}
	q.e = position
	if hz := q.URL.Query().Get("hz"); hz != "" {
		if q.set, err = q.base.aligned(q.Context(), q.e, hz); err != nil {
			return err
		}
	}
	return nil
}

// inStream reads which stream is asked for.
func (q *request) inStream() error {
	key := q.PathValue("key")
	if key == "" {
		key = q.URL.Query().Get("key")
	}
	if q.feature = q.set.info.Feature(key); q.feature == nil {
		if key == "task" {
			q.feature = &robocache.Feature{Key: key, Kind: robocache.KindText}
			return nil
		}
		return robocache.NotFound("view", nil, "the dataset declares no stream %q", key).
			WithHint("%s", robocache.Nearest(key, q.set.info.Keys()))
	}
	return nil
}

// row reads which row of the stream is asked for.
func (q *request) row(ctx context.Context) (int, error) {
	l, err := q.set.timeline(ctx, q.e, q.feature)
	if err != nil {
		return 0, err
	}
	parsed, err := parse("row", q.PathValue("row"), 0, int64(l.Rows-1))
	if err != nil {
		return 0, err
	}
	return int(parsed), nil
}

func (q *request) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q.Header().Set("Content-Type", "application/json")
	_, err = q.Write(b)
	return err
}

// Header is that of the answer.
func (q *request) Header() http.Header { return q.ResponseWriter.Header() }

func (q *request) Write(b []byte) (int, error) { return q.ResponseWriter.Write(b) }
