package view

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// fixtures are real datasets, at least one per format.
var fixtures = []string{
	"g1_h264_v30",
	"g1_h264_v30_bigdrift",
	"g1_v30_exact",
	"g1_v30_drift",
	"g1_v21",
	"gr00t_picknplace_v20",
	"bridge_rlds",
	"robomimic_like/latest_gzip_shuffle.hdf5",
	"aloha_like",
	"hdf5_features/latest.hdf5",
	"mcap_robot/recording_zstd.mcap",
	"mcap_robot/recording_db3",
	"calvin_like",
	"diffusion_policy_zarr/replay_buffer.zarr",
	"pointclouds/kitti",
	"pointclouds/nuscenes",
}

const testToken = "token-of-the-test"

// site is a server and a client with its token.
type site struct {
	*testing.T
	server *Server
	http   *httptest.Server
}

func serve(t *testing.T, opt Options, names ...string) *site {
	t.Helper()
	var sets []robocache.Dataset
	for _, name := range names {
		if !filepath.IsAbs(name) && !strings.Contains(name, "://") {
			top, rest, _ := strings.Cut(name, "/")
			name = filepath.Join(realdata.Path(t, top), rest)
			if _, err := os.Stat(name); err != nil {
				t.Skip(err)
			}
		}
		ds, err := robocache.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ds.Close() })
		sets = append(sets, ds)
	}
	return serveSets(t, opt, sets...)
}

func serveSets(t *testing.T, opt Options, sets ...robocache.Dataset) *site {
	t.Helper()
	opt.Token = testToken
	s, err := New(t.Context(), sets, opt)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { h.Close(); s.Close() })
	return &site{t, s, h}
}

func (s *site) do(
	method, path string,
	body io.Reader,
	change func(*http.Request),
) (*http.Response, []byte) {
	s.Helper()
	r, err := http.NewRequest(method, s.http.URL+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	if change != nil {
		change(r)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		s.Fatal(err)
	}
	return a, b
}

func (s *site) get(path string, into any) {
	s.Helper()
	a, b := s.do("GET", path, nil, nil)
	if a.StatusCode != 200 {
		s.Fatalf("%s: %s %s", path, a.Status, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		s.Fatalf("%s: %v", path, err)
	}
}

// columns parses an answer with numbers.
func (s *site) columns(path string, header any) [][]float64 {
	s.Helper()
	a, b := s.do("GET", path, nil, nil)
	if a.StatusCode != 200 {
		s.Fatalf("%s: %s %s", path, a.Status, b)
	}
	n := binary.LittleEndian.Uint32(b)
	if err := json.Unmarshal(b[4:4+n], header); err != nil {
		s.Fatal(err)
	}
	var size struct{ Points int }
	_ = json.Unmarshal(b[4:4+n], &size) // the lengths differ in the answer about an episode
	values := robocache.Float64s(nil, robocache.Float64, b[4+n:])
	var out [][]float64
	for size.Points > 0 && len(values) >= size.Points {
		out, values = append(out, values[:size.Points]), values[size.Points:]
	}
	return out
}

type ctx = context.Context

func putFloat(b []byte, v float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(v)) }
