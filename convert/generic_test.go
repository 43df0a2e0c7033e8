package convert_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// made is a dataset of another format. It has names with slashes, its own timestamps, an empty
// episode, an unreadable episode, and no tasks.
type made struct {
	info    robocache.Info
	lengths []int
	bad     int
}

func newMade() *made {
	m := &made{
		lengths: []int{4, 0, 6, 3},
		bad:     -1,
		info: robocache.Info{
			URI:      "made",
			Format:   "made",
			Episodes: 4,
			Frames:   13,
			Features: []robocache.Feature{
				{
					Key:   "obs/joint",
					Kind:  robocache.KindNumeric,
					DType: robocache.Float64,
					Shape: []int{2},
				},
				{
					Key:   "timestamp",
					Kind:  robocache.KindNumeric,
					DType: robocache.Float64,
					Shape: []int{1},
				},
				{
					Key:   "half",
					Kind:  robocache.KindNumeric,
					DType: robocache.BFloat16,
					Shape: []int{1},
				},
				{Key: "note", Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}},
			},
		},
	}
	m.info.NumberEpisodes([]int64{0, 10, 20, 30})
	return m
}

func (m *made) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{}
}

func (m *made) Info() *robocache.Info { return &m.info }
func (m *made) Len(e int) int         { return m.lengths[e] }
func (m *made) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{Position: e, Index: int64(10 * e), Length: m.lengths[e]}, nil
}

func (m *made) Times(_ context.Context, e int, _ string) ([]int64, error) {
	out := make([]int64, m.lengths[e])
	for k := range out {
		out[k] = int64(k)*50_000_000 + 7
	}
	return out, nil
}

func (m *made) value(r robocache.Row, i int) float64 {
	return float64(r.Episode*100+r.Index) + float64(i)/7
}

func (m *made) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	if rows[0].Episode == m.bad {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "torn"}
	}
	n := 2
	if key != "obs/joint" {
		n = 1
	}
	for k, r := range rows {
		for i := range n {
			v := m.value(r, i)
			if key == "timestamp" {
				v = float64(r.Index)*0.05 + 0.007
			}
			binary.LittleEndian.PutUint64(dst[8*(k*n+i):], math.Float64bits(v))
		}
	}
	return nil
}

func (m *made) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	if key == "task" {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Msg: "no tasks"}
	}
	out := make([]string, len(rows))
	for k, r := range rows {
		out[k] = fmt.Sprint(r)
	}
	return out, nil
}

func (m *made) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return &robocache.Error{Class: robocache.ErrNotFound}
}
func (m *made) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (m *made) Close() error                                   { return nil }

// C1, C6: the rows of another format are converted. The report lists what was renamed, dropped,
// left out or stored separately.
func TestOtherFormat(t *testing.T) {
	src := newMade()
	if _, err := ToLeRobot(t.Context(), src, filepath.Join(t.TempDir(), "x"),
		Options{}); !errors.Is(err, robocache.ErrMisuse) {
		t.Fatalf("without a rate: %v", err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	rep, err := ToLeRobot(t.Context(), src, dst, Options{FPS: robocache.Rate{Num: 20, Den: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Renamed["obs/joint"] != "obs.joint" || rep.Renamed["timestamp"] != "timestamp_source" ||
		len(rep.Dropped) != 1 ||
		rep.Dropped[0] != "half" ||
		len(rep.Added) != 1 {
		t.Errorf("%+v", rep)
	}
	if rep.NumEpisodes != 3 || rep.Episodes[1].New != -1 || rep.Episodes[2].Old != 20 ||
		rep.Episodes[2].New != 1 ||
		rep.Episodes[2].FromIndex != 4 {
		t.Errorf("%+v", rep.Episodes)
	}
	out := open(t, dst)
	rows := rowsOf(1, 6)
	raw := make([]byte, 6*16)
	if err := out.Gather(t.Context(), "obs.joint", rows, raw); err != nil {
		t.Fatal(err)
	}
	for k := range rows {
		if v := math.Float64frombits(binary.LittleEndian.Uint64(raw[16*k+8:])); v !=
			src.value(robocache.Row{Episode: 2, Index: k}, 1) {
			t.Errorf("row %d: %v", k, v)
		}
	}
	timestamps := make([]byte, 8*6)
	if err := out.Gather(t.Context(), RecordedTimestamps, rows, timestamps); err != nil {
		t.Fatal(err)
	}
	if v := math.Float64frombits(binary.LittleEndian.Uint64(timestamps[8:])); v != 0.05+0.007 {
		t.Errorf("recorded timestamp %v", v)
	}
	if text, err := out.Text(t.Context(), "note", rows); err != nil || text[5] != "{2 5}" {
		t.Errorf("%q %v", text, err)
	}

	src.bad = 2
	if _, err := ToLeRobot(t.Context(), src, filepath.Join(t.TempDir(), "y"),
		Options{FPS: robocache.Rate{Num: 20, Den: 1}}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a bad episode: %v", err)
	}
	rep, err = ToLeRobot(
		t.Context(),
		src,
		filepath.Join(t.TempDir(), "z"),
		Options{FPS: robocache.Rate{Num: 20, Den: 1}, SkipBad: true},
	)
	if err != nil || rep.NumEpisodes != 2 || rep.Episodes[2].New != -1 ||
		!strings.Contains(fmt.Sprint(rep.Findings), "episode-skipped") {
		t.Errorf("%v %+v", err, rep)
	}
}

// C2: depth is encoded without loss, and a second conversion copies it. Colour stays within the
// encoder's loss.
func TestDepth(t *testing.T) {
	if err := video.CanEncode(t.Context(), video.EncodeConfig{
		Width: 64, Height: 64,
		Rate: robocache.Rate{Num: 30, Den: 1}, Gray12: true,
	}); err != nil {
		t.Skip(err)
	}
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	const w, h = 96, 64
	depth := func(e, k int) []byte {
		b := make([]byte, 2*w*h)
		for i := range w * h {
			binary.LittleEndian.PutUint16(b[2*i:], uint16((i*7+k*13+e*501)%4096))
		}
		return b
	}
	first := filepath.Join(t.TempDir(), "first")
	s, err := store.OpenWritable(first)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	code := &robocache.Depth{Min: 0.01, Max: 10, Shift: 3.5, Log: true, Unit: "m"}
	wr, err := write.NewWriter(t.Context(), s, write.Config{
		FPS:     robocache.Rate{Num: 30, Den: 1},
		TempDir: t.TempDir(),
		Features: []robocache.Feature{
			{
				Key:      "observation.depth",
				Kind:     robocache.KindVideo,
				DType:    robocache.Uint16,
				Shape:    []int{h, w, 1},
				Height:   h,
				Width:    w,
				Channels: 1,
				Depth:    code,
			},
			{
				Key:   "action",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{1},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	lengths := []int{7, 1, 12}
	for e, n := range lengths {
		ep := write.EpisodeData{
			Length:  n,
			Tasks:   []string{"look"},
			Columns: map[string][]byte{"action": make([]byte, 4*n)},
			Videos: map[string]write.VideoPart{
				"observation.depth": {Frames: func(yield func([]byte) error) error {
					for k := range n {
						if err := yield(depth(e, k)); err != nil {
							return err
						}
					}
					return nil
				}},
			},
		}
		if err := wr.AddEpisode(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	if err := wr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(ds robocache.Dataset) {
		t.Helper()
		f := ds.Info().Feature("observation.depth")
		if f.Depth == nil || *f.Depth != *code || f.Codec != "hevc" {
			t.Fatalf("%+v", f)
		}
		pool := video.NewPool(64 << 20)
		defer pool.Close()
		lib := ds.(video.Source).Video()
		for e, n := range lengths {
			refs := make([]robocache.FrameRef, n)
			if err := ds.Frames(t.Context(), f.Key, rowsOf(e, n), refs); err != nil {
				t.Fatal(err)
			}
			for k, r := range refs {
				file, err := lib.Acquire(t.Context(), r.Path)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 2*w*h)
				for _, g := range video.Plan(file.Index, []int{r.Ordinal}) {
					err := pool.Decode(
						t.Context(),
						file,
						nil,
						[]video.Group{g},
						func(_ int, p video.Frame) error {
							return p.Convert(&video.Spec{Pixel: video.Gray16}, got)
						},
					)
					if err != nil {
						t.Fatal(err)
					}
				}
				file.Release()
				if string(got) != string(depth(e, k)) {
					t.Fatalf("episode %d row %d: other depth", e, k)
				}
			}
		}
		st, err := ds.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := st[f.Key]; d == nil || math.Abs(d.Min[0]-0.01) > 1e-9 || d.Max[0] > 10.001 ||
			d.Max[0] < 9 ||
			len(d.Shape) != 3 ||
			d.Count != 20 {
			t.Errorf("%+v", d)
		}
	}
	src := open(t, first)
	check(src)
	dst := filepath.Join(t.TempDir(), "second")
	rep, err := ToLeRobot(t.Context(), src, dst, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Copied != 3 {
		t.Errorf("%d copied", rep.Copied)
	}
	check(open(t, dst))
}
