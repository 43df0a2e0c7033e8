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

// Options set who may view the datasets, and how.
type Options struct {
	Token      string   // token that a request must have; "" allows everyone
	AllowHosts []string // accepted host names in addition to loopback names
	Flags      string   // file of flagged episodes; "" = the page offers a download
	// Annotations is the CSV file of annotations; "" = the page offers a download.
	Annotations string
	// Align configures the rows of an alignment. The page starts with its HZ.
	Align *align.Config
}

// Server shows datasets. The caller must close them after Close.
type Server struct {
	opt     Options
	sets    []*viewedSet
	cookie  string
	pool    *video.Pool
	frames  *lru.Cache[frameKey, []byte]
	cameras *lru.Cache[cameraKey, *camera]
	slots   chan struct{} // limits concurrent decoding
	waiting atomic.Int32  // number of requests that wait to decode
	ctx     context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup // goroutines that outlive a request

	flagsMu     sync.Mutex // protects flags and annotations
	flags       *flags.File
	annotations *annotations

	comparison setComparison
}

// New returns a server for one dataset, or for two to compare.
func New(ctx context.Context, datasets []robocache.Dataset, opt Options) (_ *Server, err error) {
	defer crash.Recover("view", &err)
	s := &Server{
		opt:     opt,
		cookie:  cookieName(opt.Token),
		pool:    video.NewPool(decoderBudget),
		frames:  lru.New[frameKey, []byte](frameBudget),
		cameras: lru.New[cameraKey, *camera](maxCameras),
		slots:   make(chan struct{}, runtime.GOMAXPROCS(0)),
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
	s.annotations = &annotations{inSeconds: annotatesSeconds(datasets[0].Info())}
	if opt.Annotations != "" {
		if err := readAnnotations(ctx, opt.Annotations, s.annotations); err != nil {
			return nil, err
		}
	}
	for i, ds := range datasets {
		s.sets = append(s.sets, newSet(i, ds))
		s.sets[i].align = opt.Align
	}
	s.comparison.state = "no"
	if len(s.sets) == 2 && s.sets[0].isSmall() && s.sets[1].isSmall() {
		s.runInBackground(s.compareSets)
	}
	for _, x := range s.sets {
		s.runInBackground(x.listEpisodes)
		x.quality.begin(false) // the page waits for the result
		s.runInBackground(
			func(ctx context.Context) error {
				if x.isSmall() {
					if err := x.runDoctor(ctx); err != nil {
						return errors.Join(err, x.loadQuality(ctx))
					}
				}
				return x.loadQuality(ctx)
			},
		)
	}
	return s, nil
}

// runInBackground runs fn until the server is closed.
func (s *Server) runInBackground(fn func(ctx context.Context) error) {
	s.workers.Go(func() {
		if err := crash.Func(
			"view",
			func() error { return fn(s.ctx) },
		)(); err != nil &&
			s.ctx.Err() == nil {
			slog.Warn("view", "error", err)
		}
	})
}

// Close ends all work and waits for it.
func (s *Server) Close() {
	s.stop()
	s.workers.Wait()
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

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /assets/{version}/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=31536000, immutable")
		http.StripPrefix("/assets/"+r.PathValue("version"), http.FileServerFS(assetFiles())).
			ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /login", s.login)
	// These wrappers read the episode and the stream from the path first.
	episode := func(fn func(*request) error) func(*request) error {
		return func(q *request) error {
			if err := q.readEpisode(); err != nil {
				return err
			}
			return fn(q)
		}
	}
	stream := func(fn func(*request) error) func(*request) error {
		return episode(func(q *request) error {
			if err := q.readStream(); err != nil {
				return err
			}
			return fn(q)
		})
	}
	for path, fn := range map[string]func(*request) error{
		"GET /api/info":                          s.serveInfo,
		"GET /api/dataset":                       s.serveDataset,
		"GET /api/episodes":                      s.serveEpisodes,
		"GET /api/quality":                       s.serveQuality,
		"GET /api/quality/columns":               s.serveQualityColumns,
		"GET /api/coverage":                      s.serveCoverage,
		"GET /api/where":                         s.serveWhere,
		"GET /api/findings":                      s.serveFindings,
		"GET /api/diff":                          s.serveDiff,
		"GET /api/flags":                         s.readFlags,
		"POST /api/flags":                        s.writeFlag,
		"GET /api/annotations":                   s.serveAnnotations,
		"POST /api/annotations":                  s.writeAnnotation,
		"GET /api/e/{episode}":                   episode(s.serveEpisode),
		"GET /api/e/{episode}/at":                episode(s.serveValues),
		"GET /api/e/{episode}/findings":          episode(s.serveEpisodeFindings),
		"GET /api/e/{episode}/series":            stream(s.serveSeries),
		"GET /api/e/{episode}/text/{key}":        stream(s.serveText),
		"GET /api/e/{episode}/frame/{key}/{row}": stream(s.serveFrame),
		"GET /api/e/{episode}/video/{key}":       stream(s.serveVideo),
		"GET /api/e/{episode}/pts/{key}":         stream(s.servePTS),
		"GET /api/e/{episode}/cloud/{key}/{row}": stream(s.serveCloud),
	} {
		mux.Handle(path, s.apiHandler(fn))
	}
	mux.Handle("/api/", s.apiHandler(func(*request) error { return notFound("no such address") }))
	return s.guarded(mux)
}

// assetFiles returns the embedded files of the page. It panics on errors, which can only come from
// the build.
func assetFiles() fs.FS {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err)
	}
	return sub
}

func assetBytes(name string) []byte {
	b, err := fs.ReadFile(assetFiles(), name)
	if err != nil {
		panic(err)
	}
	return b
}

// indexPage returns the page. The URLs of its assets contain a hash of their content, so browsers
// may cache them forever.
var indexPage = sync.OnceValue(func() []byte {
	h := sha256.New()
	entries, err := fs.ReadDir(assetFiles(), ".")
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

func servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(indexPage())
}

// request is one request for data.
type request struct {
	http.ResponseWriter
	*http.Request
	set     *viewedSet // the dataset, or an alignment of it
	base    *viewedSet // the dataset
	episode int
	feature *robocache.Feature
}

// apiHandler returns a handler that calls fn and answers its error as JSON.
func (s *Server) apiHandler(fn func(q *request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{ResponseWriter: w, Request: r}
		var err error
		func() {
			defer crash.Recover("view", &err)
			if !s.isAuthorized(r) {
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
			n, failed := q.queryNumber("s", 0, 0, int64(len(s.sets)-1))
			if failed != nil {
				err = failed
				return
			}
			q.base = s.sets[n]
			q.set = q.base
			err = fn(q)
		}()
		if err != nil && r.Context().Err() == nil {
			writeError(w, err)
		}
	})
}

// writeError answers an error with its status, class, place and hint.
func writeError(w http.ResponseWriter, err error) {
	class, _ := robocache.ClassOf(err)
	status, ok := map[string]int{
		"not_found":      404,
		"misuse":         400,
		"malformed":      422,
		"unsupported":    415,
		"resource_limit": 413,
		"temporary":      503,
	}[class]
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

// queryNumber parses a query parameter.
func (q *request) queryNumber(name string, otherwise, least, most int64) (int64, error) {
	text := q.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	return parseNumber(name, text, least, most)
}

func parseNumber(name, text string, least, most int64) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		return 0, notFound(name + " is " + strconv.Quote(text) + ", expected " +
			strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
	}
	return v, nil
}

// readEpisode reads the requested episode from the path. With the parameter hz, the request is for
// an alignment of it.
func (q *request) readEpisode() error {
	index, err := parseNumber("episode", q.PathValue("episode"), 0, math.MaxInt64)
	if err != nil {
		return err
	}
	position, err := q.base.info.EpisodePosition(index)
	if err != nil {
		return notFound("no such episode")
	}
	q.episode = position
	if hz := q.URL.Query().Get("hz"); hz != "" {
		if q.set, err = q.base.aligned(q.Context(), q.episode, hz); err != nil {
			return err
		}
	}
	return nil
}

// readStream reads the requested stream from the path or the query.
func (q *request) readStream() error {
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

// rowNumber returns the requested row of the stream.
func (q *request) rowNumber(ctx context.Context) (int, error) {
	l, err := q.set.timeline(ctx, q.episode, q.feature)
	if err != nil {
		return 0, err
	}
	parsed, err := parseNumber("row", q.PathValue("row"), 0, int64(l.Rows-1))
	if err != nil {
		return 0, err
	}
	return int(parsed), nil
}

func (q *request) writeJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q.Header().Set("Content-Type", "application/json")
	_, err = q.Write(b)
	return err
}

// Header returns the header of the response, not of the request.
func (q *request) Header() http.Header { return q.ResponseWriter.Header() }

func (q *request) Write(b []byte) (int, error) { return q.ResponseWriter.Write(b) }
