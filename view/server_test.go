package view

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"image/jpeg"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/video"
)

type episodeAnswer struct {
	Start    string          `json:"start_ns"`
	Duration int64           `json:"duration_ns"`
	Streams  []episodeStream `json:"streams"`
	Problem  string          `json:"problem"`
}

// TestEveryFormat makes all requests of the page for every fixture.
func TestEveryFormat(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Options{}, name)
			info := s.server.sets[0].info
			var about struct {
				Datasets []struct {
					Episodes int             `json:"num_episodes"`
					Features []streamFeature `json:"features"`
				} `json:"datasets"`
			}
			s.get("/api/info", &about)
			if about.Datasets[0].Episodes != info.Episodes ||
				len(about.Datasets[0].Features) != len(info.Features) {
				t.Errorf("%+v", about)
			}
			var ep episodeAnswer
			last := info.Episodes - 1
			base := fmt.Sprintf("/api/e/%d", last)
			s.columns(base, &ep)
			curves, images := 0, 0
			for i, st := range ep.Streams {
				f := &info.Features[i]
				if st.Problem != "" {
					t.Errorf("%s: %s", st.Key, st.Problem)
				}
				if st.Rows == 0 {
					continue
				}
				key := url.PathEscape(st.Key)
				switch f.Kind {
				case robocache.KindNumeric:
					if f.Ragged() || f.RowBytes() == 0 {
						continue
					}
					var p inspect.Series
					cols := s.columns(base+"/series?key="+url.QueryEscape(st.Key), &p)
					if len(cols) != 1+min(f.Elements(), inspect.MaxChannels) ||
						p.Rows != [2]int{0, st.Rows} {
						t.Errorf("%s: %d columns, %+v", st.Key, len(cols), p)
					}
					curves++
				case robocache.KindVideo, robocache.KindImage:
					if _, err := video.ActiveBackend(); err != nil &&
						f.Kind == robocache.KindVideo {
						t.Skip(err)
					}
					for _, row := range []int{0, st.Rows - 1} {
						a, b := s.do(
							"GET",
							fmt.Sprintf("%s/frame/%s/%d?w=96", base, key, row),
							nil,
							nil,
						)
						if a.StatusCode != 200 {
							t.Fatalf("%s row %d: %s %s", st.Key, row, a.Status, b)
						}
						c, err := jpeg.DecodeConfig(bytes.NewReader(b))
						if err != nil || c.Width > 96 || c.Height < 8 {
							t.Errorf("%s: %v %v", st.Key, c, err)
						}
					}
					images++
				case robocache.KindPointCloud:
					var h struct{ Points, Of int }
					if cols := s.columns(base+"/cloud/"+key+"/0", &h); h.Points == 0 ||
						len(cols) != 2 {
						t.Errorf("%s: %+v", st.Key, h)
					}
				case robocache.KindText, robocache.KindEvent:
					var texts struct{ Rows []struct{ Text string } }
					s.get(base+"/text/"+key, &texts)
				}
			}
			var at []rowValue
			s.get(fmt.Sprintf("%s/at?t=%d", base, ep.Duration/2), &at)
			var marks []placedFinding
			s.get(base+"/findings", &marks)
			t.Logf(
				"%d streams, %d with curves, %d cameras, %d values, %d findings",
				len(ep.Streams),
				curves,
				images,
				len(at),
				len(marks),
			)
		})
	}
}

// TestAccess is view.W2 and W3: acceptance case 8.
func TestAccess(t *testing.T) {
	s := serve(t, Options{AllowHosts: []string{"robot.lab"}}, "g1_h264_v30")
	no := func(r *http.Request) { r.Header.Del("Authorization") }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for _, c := range []struct {
		method, path, body string
		change             func(*http.Request)
		status             int
	}{
		{"GET", "/", "", no, 200},
		{"GET", "/api/info", "", nil, 200},
		{"HEAD", "/api/info", "", nil, 200},
		{"GET", "/api/info", "", no, 401},
		{"GET", "/api/e/0/frame/observation.images.cam_left_high/0", "", no, 401},
		{"GET", "/api/nothing", "", no, 401},
		{"GET", "/api/info", "", header("Authorization", "Bearer wrong"), 401},
		// the token is required
		{"GET", "/api/info", "", header("Cookie", s.server.cookie+"=wrong"), 200},
		{"GET", "/", "", host("evil.test"), 421},
		{"GET", "/api/info", "", host("evil.test:80"), 421},
		{"GET", "/api/info", "", host("127.0.0.1.evil.test"), 421},
		{"GET", "/api/info", "", host("robot.lab:8080"), 200},
		{"GET", "/api/info", "", host("localhost:1"), 200},
		{"GET", "/api/info", "", host("[::1]:99"), 200},
		{"GET", "/api/info", "", header("Origin", "http://evil.test"), 403},
		{"GET", "/api/info", "", header("Origin", "null"), 403},
		{"GET", "/api/info", "", header("Sec-Fetch-Site", "same-site"), 403},
		{"GET", "/api/info", "", header("Sec-Fetch-Site", "same-origin"), 200},
		{"POST", "/api/flags", `{"episode": 0}`, header("Sec-Fetch-Site", "cross-site"), 403},
		{"POST", "/api/flags", `{"episode": 0}`, header("Origin", "http://evil.test"), 403},
		{"POST", "/api/flags", `{"episode": 0}`, no, 401},
		{"POST", "/login", `{"token": "wrong"}`, no, 401},
		{"POST", "/login", `{"token": "` + testToken + `"}`, no, 204},
		{"DELETE", "/api/flags", "", nil, 405},
		{"POST", "/api/info", "", nil, 405},
		{"GET", "/api/e/0/frame/..%2f..%2fmeta%2finfo.json/0", "", nil, 404},
		{"GET", "/..%2f..%2fetc%2fpasswd", "", nil, 404},
		{"GET", "/assets/..%2f..%2fetc%2fpasswd", "", nil, 404},
		{"GET", "/assets/x/..%2f..%2fetc%2fpasswd", "", nil, 404},
		{"GET", "/assets/x/", "", nil, 404},
		{"GET", "/api/e/0/video/%2fetc%2fpasswd", "", nil, 404},
		{"GET", "/api/e/9999", "", nil, 404},
		{"GET", "/api/e/-1", "", nil, 404},
		{"GET", "/api/e/0?s=1", "", nil, 404},
		{"GET", "/api/e/0/series?key=action&px=1000000", "", nil, 404},
		{"GET", "/api/e/0/frame/observation.images.cam_left_high/100000", "", nil, 404},
		{"GET", "/api/e/0/frame/action/0", "", nil, 415},
		{"GET", "/api/e/0?hz=wrong", "", nil, 422},
	} {
		a, b := s.do(c.method, c.path, strings.NewReader(c.body), c.change)
		if a.StatusCode != c.status && !(c.status == 405 && a.StatusCode == 404) {
			t.Errorf("%s %s: %s %.200s, expected %d", c.method, c.path, a.Status, b, c.status)
		}
		if a.StatusCode != 200 && a.StatusCode != 204 && bytes.Contains(b, []byte("cam_left")) &&
			!strings.Contains(c.path, "cam_left") &&
			c.status != 404 {
			t.Errorf("%s %s tells of the dataset: %s", c.method, c.path, b)
		}
		if p := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p,
			"default-src 'none'") || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %v", c.method, c.path, a.Header)
		}
	}
	a, _ := s.do("POST", "/login", strings.NewReader(`{"token": "`+testToken+`"}`), nil)
	cookie := a.Header.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") {
		t.Error(cookie)
	}
	if a, _ := s.do(
		"GET",
		"/api/info",
		nil,
		func(r *http.Request) { no(r); r.Header.Set("Cookie", cookie) },
	); a.StatusCode != 200 {
		t.Error(a.Status)
	}
}

// TestThinning is view.W6 for a stream of a million rows: a single high row is visible when zoomed
// out, and so are gaps.
func TestThinning(t *testing.T) {
	const n = 1_000_000
	times := make([]int64, n)
	for i := range times {
		times[i] = int64(i) * 1e6
		if i >= n/2 {
			times[i] += 1e9
		}
	}
	ds := &wave{times: times}
	f := &robocache.Feature{
		Key:   "x",
		Kind:  robocache.KindNumeric,
		DType: robocache.Float64,
		Shape: []int{2},
	}
	l := &inspect.Timeline{Rows: n, Times: times}
	p, err := inspect.SeriesOf(t.Context(), ds, f, l, 0, inspect.Whole(0))
	if err != nil {
		t.Fatal(err)
	}
	holes := 0
	for i, v := range p.Y[0] {
		if v != v {
			holes++
		}
		if i > 0 && p.X[i] < p.X[i-1] {
			t.Fatalf("point %d goes back", i)
		}
	}
	if !p.Thinned || len(p.X) > 5*1001+2 || holes != 1 || p.Missing != 1 {
		t.Errorf("%d points, %d holes, %d missing", len(p.X), holes, p.Missing)
	}
	seen := map[float64]bool{}
	for _, v := range p.Y[0] {
		seen[v] = true
	}
	if !seen[100] || !seen[-50] {
		t.Error("a spike of one row is lost")
	}
	// When zoomed in, the rows are those of the stream.
	q, err := inspect.SeriesOf(t.Context(), ds, f, l, 0, inspect.Range{From: 1000e6, To: 1010e6})
	if err != nil || q.Thinned || q.Rows != [2]int{999, 1012} || q.Y[0][1] != math.Sin(1000) {
		t.Errorf("%+v %v", q, err)
	}
}

// wave is a stream of two channels: a sine with a spike up, one down, and one missing value.
type wave struct {
	robocache.Dataset
	times []int64
}

func (w *wave) Gather(_ ctx, _ string, rows []robocache.Row, dst []byte) error {
	for i, r := range rows {
		v := math.Sin(float64(r.Index))
		switch r.Index {
		case 123457:
			v = 100
		case 765432:
			v = -50
		}
		second := v
		if r.Index == 700001 {
			second = math.NaN()
		}
		putFloat(dst[16*i:], v)
		putFloat(dst[16*i+8:], second)
	}
	return nil
}

// TestFlags is view.W1. It also checks that edit can read the file.
func TestFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.json")
	s := serve(t, Options{Flags: path}, "g1_h264_v30_bigdrift")
	post := func(body string) int {
		a, _ := s.do("POST", "/api/flags", strings.NewReader(body), nil)
		return a.StatusCode
	}
	for body, status := range map[string]int{
		`{"episode": 3, "label": "bad", "note": "<script>"}`: 200,
		`{"episode": 4, "rows": [2, 9]}`:                     200,
		`{"episode": 5, "rows": [2, 900]}`:                   422,
		`{"episode": 5000}`:                                  404,
		`{`:                                                  400,
		`{"episode": 1, "note": "` + strings.Repeat("x", 2<<20) + `"}`: 413,
	} {
		if got := post(body); got != status {
			t.Errorf("%.60s: %d, expected %d", body, got, status)
		}
	}
	f, err := flags.Read(t.Context(), path)
	if err != nil || len(f.Flags) != 2 || f.Flags[0].Note != "<script>" ||
		f.Check(t.Context(), s.server.sets[0].ds) != nil {
		t.Fatalf("%+v %v", f, err)
	}
	post(`{"episode": 3, "remove": true}`)
	if f, _ = flags.Read(t.Context(), path); len(f.Flags) != 1 || f.Flags[0].Episode != 4 {
		t.Errorf("%+v", f)
	}
	// saved flags are shown when the page is opened again
	again := serve(t, Options{Flags: path}, "g1_h264_v30_bigdrift")
	var got flags.File
	if again.get("/api/flags", &got); len(got.Flags) != 1 {
		t.Error(got)
	}
	if _, err := New(t.Context(),
		[]robocache.Dataset{serve(t, Options{}, "g1_h264_v30").server.sets[0].ds},
		Options{Flags: path}); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("flags of another dataset:", err)
	}
}

// TestVideo: the MP4 file is served by ranges, and the time of a row in it is that of its frame
// number.
func TestVideo(t *testing.T) {
	s := serve(t, Options{}, "g1_h264_v30_bigdrift")
	key := "observation.images.cam_high"
	var h struct {
		Codec  string
		Points int
	}
	pts := s.columns("/api/e/7/pts/"+key, &h)[0]
	ds := s.server.sets[0].ds
	rows := robocache.RowsOf(7, 0, ds.Len(7))
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), key, rows, refs); err != nil {
		t.Fatal(err)
	}
	if h.Codec != "h264" || len(pts) != len(rows)+1 || refs[0].Ordinal == 0 {
		t.Errorf("%+v %d", h, len(pts))
	}
	for i := range rows {
		if i > 0 && pts[i] <= pts[i-1] {
			t.Errorf("row %d is shown at %v", i, pts[i])
		}
	}
	a, b := s.do(
		"GET",
		"/api/e/7/video/"+key,
		nil,
		func(r *http.Request) { r.Header.Set("Range", "bytes=4-11") },
	)
	if a.StatusCode != 206 || string(b[:4]) != "ftyp" || len(b) != 8 ||
		a.Header.Get("Content-Type") != "video/mp4" {
		t.Errorf("%s %q", a.Status, b)
	}
}

// TestAligned: rows of the parameter hz, with their masks, on the time axis of the streams.
func TestAligned(t *testing.T) {
	s := serve(t, Options{}, "mcap_robot/recording_zstd.mcap")
	var own, grid episodeAnswer
	s.columns("/api/e/0", &own)
	s.columns("/api/e/0?hz=20", &grid)
	if own.Start != grid.Start || len(grid.Streams) < len(own.Streams) {
		t.Errorf("%d and %d streams", len(own.Streams), len(grid.Streams))
	}
	for _, st := range grid.Streams {
		if st.Rows != grid.Streams[0].Rows || st.Clock != 0 {
			t.Errorf("%+v", st)
		}
	}
	for i := range s.server.sets[0].info.Features {
		f := &s.server.sets[0].info.Features[i]
		if f.Kind == robocache.KindNumeric && !f.Ragged() && own.Streams[i].Rows > 1 {
			var p inspect.Series
			cols := s.columns("/api/e/0/series?hz=20&key="+url.QueryEscape(f.Key), &p)
			if step := cols[0][1] - cols[0][0]; step != 50e6 {
				t.Errorf("%s: steps of %v", f.Key, step)
			}
			return
		}
	}
	t.Error("no numeric stream")
}

// TestList: the columns fill, and the doctor runs on request.
func TestList(t *testing.T) {
	s := serve(t, Options{}, "g1_h264_v30_bigdrift", "g1_h264_v30")
	deadline := time.Now().Add(time.Minute)
	var l columns
	var d struct {
		State    string
		Findings []placedFinding
	}
	for l.Done < 66 || d.State != "done" {
		s.get("/api/episodes", &l)
		s.get("/api/findings", &d)
		if time.Now().After(deadline) {
			t.Fatalf("%d episodes, doctor %s", l.Done, d.State)
		}
	}
	if len(l.Length) != 66 || l.Length[0] != 19 || len(l.Task) != 66 || len(l.Tasks) == 0 ||
		len(d.Findings) == 0 {
		t.Errorf("%+v %d findings", l, len(d.Findings))
	}
	s.get("/api/episodes?s=1", &l)
	for {
		var m struct {
			State   string
			Metrics []struct{ Name string }
		}
		if s.get("/api/quality", &m); m.State == "done" {
			var header struct{ Points int }
			c := s.columns("/api/quality/columns?names=duration,idle", &header)
			if len(m.Metrics) == 0 || len(c) != 2 || header.Points != 66 || !(c[0][3] > 0) ||
				c[1][3] < 0 || c[1][3] > 1 {
				t.Errorf("%+v %v", m, c)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was measured")
		}
	}
}

// TestRemote: a dataset behind HTTP is shown like a local one, but the doctor does not read all of
// it without a request.
func TestRemote(t *testing.T) {
	srv, err := loopback.Serve(
		realdata.Path(t, "g1_h264_v30"),
		loopback.Options{Latency: 2 * time.Millisecond},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	s := serve(t, Options{}, srv.URL)
	var d struct{ State string }
	if s.get("/api/findings", &d); d.State != "no" {
		t.Error(d.State)
	}
	local := serve(t, Options{}, "g1_h264_v30")
	for _, path := range []string{
		"/api/e/3/frame/observation.images.cam_high/77?w=160",
		"/api/e/3/series?key=action",
		"/api/e/3/at?t=1000000000",
	} {
		a, got := s.do("GET", path, nil, nil)
		if _, want := local.do("GET", path, nil, nil); a.StatusCode != 200 ||
			!bytes.Equal(got, want) {
			t.Errorf("%s: %s, %d bytes, here %d", path, a.Status, len(got), len(want))
		}
	}
}

// TestVendored: uPlot equals the published file, and the page fits into its budget.
func TestVendored(t *testing.T) {
	total := 0
	want := map[string]string{
		// of uplot-1.6.32.tgz
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	}
	entries, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		total += len(b)
		if sum := fmt.Sprintf("%x", sha256.Sum256(b)); want[e.Name()] != "" &&
			sum != want[e.Name()] {
			t.Errorf("%s: %s", e.Name(), sum)
		}
		delete(want, e.Name())
		if bytes.Contains(b, []byte("innerHTML")) && !strings.HasPrefix(e.Name(), "uPlot") {
			t.Errorf("%s: what a dataset says is put into the page as text", e.Name())
		}
	}
	if len(want) > 0 || total > 300_000 {
		t.Errorf("%d bytes, missing %v", total, want)
	}
}
