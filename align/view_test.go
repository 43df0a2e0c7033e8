package align

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// several combines fakes as the episodes of one dataset, each with its own clocks, and adds a
// ragged stream.
type several struct {
	*fake
	eps []*fake
}

func newSeveral(seed uint64, n int) *several {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := &several{fake: newFake()}
	d.info.Episodes = n
	d.info.Features = append(
		d.info.Features,
		robocache.Feature{
			Key:   "points",
			Kind:  robocache.KindPointCloud,
			DType: robocache.Uint8,
			Shape: []int{-1, 2},
		},
		robocache.Feature{
			Key:   "hits",
			Kind:  robocache.KindNumeric,
			DType: robocache.Uint8,
			Shape: []int{-1},
		},
	)
	for range n {
		f := newFake()
		for _, key := range []string{"", "joints", "force", "camera", "points", "hits"} {
			t, end := rng.Int64N(3e8), int64(1e9)+rng.Int64N(1e9)
			f.clocks[key] = nil
			for ; t < end; t += 1 + rng.Int64N(6e7) {
				f.clocks[key] = append(f.clocks[key], t)
			}
		}
		d.eps = append(d.eps, f)
	}
	return d
}

func (d *several) Len(e int) int { return d.eps[e].Len(0) }
func (d *several) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   d.Len(e),
		Tasks:    []string{"t"},
	}, nil
}

func (d *several) Times(ctx context.Context, e int, key string) ([]int64, error) {
	return d.eps[e].Times(ctx, e, key)
}

func (d *several) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	n := d.info.Feature(key).RowBytes()
	for i, r := range rows {
		if err := d.eps[r.Episode].Gather(ctx, key, []robocache.Row{r}, dst[i*n:(i+1)*n]); err !=
			nil {
			return err
		}
	}
	return nil
}

func (d *several) Text(
	_ context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	for _, r := range rows {
		out = append(out, fmt.Sprint(key, r))
	}
	return out, nil
}

func (d *several) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{GatherRagged: d.GatherRagged}
}

func (d *several) GatherRagged(
	_ context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	n := 1
	if key == "points" {
		n = 2
	}
	for _, r := range rows {
		k := (r.Index*7 + r.Episode) % 5
		counts = append(counts, k)
		for range k * n {
			data = append(data, byte(r.Index))
		}
	}
	return data, counts, nil
}

var viewed = []string{
	`{"hz": 50}`,
	`{"hz": 50, "extent": "union", "edge": "mask", "max_gap": 0.055}`,
	`{"hz": "30000/1001", "extent": "camera", "edge": {"*": "clamp", "words": "mask", "force": "extrapolate"}, "modes": {"joints": "nearest", "force": "mean"}, "offset": {"joints": 0.01}, "dtypes": {"stage": "float64"}}`,
	`{"hz": 20, "keys": ["force", "camera", "points", "hits"], "modes": {"points": "previous"}, "extent": "union", "edge": "mask"}`,
}

// TestViewIsEpisode compares View with Episode: all rows, some rows in any order, masks, texts and
// rows of frames.
func TestViewIsEpisode(t *testing.T) {
	ctx := t.Context()
	for seed := range uint64(6) {
		for _, text := range viewed {
			ds, cfg := newSeveral(seed, 4), mustConfig(t, text)
			v, err := View(ctx, ds, cfg, ViewOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(seed, 2))
			for e := range ds.eps {
				want, err := Episode(ctx, ds, e, cfg)
				if err != nil {
					t.Fatal(err)
				}
				times, err := v.Times(ctx, e, "")
				if err != nil || !slices.Equal(times, want.Times) || v.Len(e) != len(times) {
					t.Fatalf("%s: times %v, length %d of %d", text, err, v.Len(e), len(want.Times))
				}
				rows := make([]robocache.Row, len(times))
				for i := range rows {
					rows[i] = robocache.Row{Episode: e, Index: i}
				}
				few := make([]robocache.Row, 9)
				for i := range few {
					few[i] = rows[rng.IntN(len(rows))]
				}
				for _, asked := range [][]robocache.Row{rows, few} {
					for i := range want.Streams {
						sameStream(t, v, ds, &want.Streams[i], asked)
					}
				}
				if task, err := v.Text(ctx, "task", rows); err != nil || len(task) != len(rows) ||
					!strings.HasPrefix(task[0], "task{") {
					t.Errorf("task: %v %v", task[:1], err)
				}
			}
		}
	}
}

func sameStream(t *testing.T, v *Viewed, ds *several, s *Stream, rows []robocache.Row) {
	t.Helper()
	f := v.Info().Feature(s.Key)
	if f == nil || f.DType != s.DType || f.Kind != s.Kind {
		t.Fatalf("%s: %+v", s.Key, f)
	}
	if _, ok := v.masks[s.Key+ValidSuffix]; ok {
		got := make([]byte, len(rows))
		if err := v.Gather(t.Context(), s.Key+ValidSuffix, rows, got); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if got[i] != s.Valid[r.Index] {
				t.Fatalf("%s row %v: valid %d", s.Key, r, got[i])
			}
		}
	} else if s.Key != "camera" && slices.Contains(s.Valid, 0) {
		t.Errorf("%s has no mask", s.Key)
	}
	switch {
	case s.Data != nil:
		n := f.RowBytes()
		got := make([]byte, n*len(rows))
		if err := v.Gather(t.Context(), s.Key, rows, got); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if !bytes.Equal(got[i*n:(i+1)*n], s.Data[r.Index*n:(r.Index+1)*n]) {
				t.Fatalf(
					"%s row %v: %x, want %x",
					s.Key,
					r,
					got[i*n:(i+1)*n],
					s.Data[r.Index*n:(r.Index+1)*n],
				)
			}
		}
	case s.Text != nil:
		got, err := v.Text(t.Context(), s.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if got[i] != s.Text[r.Index] {
				t.Fatalf("%s row %v: %q", s.Key, r, got[i])
			}
		}
	case f.Ragged():
		data, counts, err := v.GatherRagged(t.Context(), s.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			var want []byte
			count := 0
			if k := s.Rows[r.Index]; k >= 0 {
				var n []int
				want, n, _ = ds.GatherRagged(
					t.Context(),
					s.Key,
					[]robocache.Row{{Episode: r.Episode, Index: int(k)}},
				)
				count = n[0]
			}
			if counts[i] != count || !bytes.Equal(data[:len(want)], want) {
				t.Fatalf("%s row %v: %d entries, want %d", s.Key, r, counts[i], count)
			}
			data = data[len(want):]
		}
	default:
		got := make([]robocache.FrameRef, len(rows))
		if err := v.Frames(t.Context(), s.Key, rows, got); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if k := s.Rows[r.Index]; k < 0 && !got[i].Missing ||
				k >= 0 && got[i].Ordinal != int(k) {
				t.Fatalf("%s row %v: %+v, want row %d", s.Key, r, got[i], k)
			}
		}
	}
}

// TestViewComplete checks that Complete lists the runs of rows at which every stream has a value,
// and that DropInvalid declares no masks.
func TestViewComplete(t *testing.T) {
	ctx := t.Context()
	ds, cfg := newSeveral(3, 2), mustConfig(t, viewed[1])
	cfg.Keys = []string{"joints", "force"}
	v, err := View(ctx, ds, cfg, ViewOptions{DropInvalid: true})
	if err != nil {
		t.Fatal(err)
	}
	for e := range ds.eps {
		full, err := Episode(ctx, ds, e, cfg)
		if err != nil {
			t.Fatal(err)
		}
		complete := make([]bool, len(full.Times))
		for _, s := range v.Complete(e) {
			for i := s.From; i < s.To; i++ {
				complete[i] = true
			}
		}
		rows := 0
		for i, got := range complete {
			if want := full.Streams[0].Valid[i]+full.Streams[1].Valid[i] == 2; got != want {
				t.Fatalf("episode %d, row %d: complete %v, want %v", e, i, got, want)
			} else if want {
				rows++
			}
		}
		if rows == 0 || rows == len(full.Times) {
			t.Errorf(
				"episode %d: %d of %d rows are complete: the test shows nothing",
				e,
				rows,
				len(full.Times),
			)
		}
	}
	if len(v.Info().Features) != 2 {
		t.Errorf("%+v", v.Info().Features)
	}
}

// TestViewBroken checks that an episode that cannot be aligned gives a finding and its own error,
// and that the other episodes work.
func TestViewBroken(t *testing.T) {
	ds := newSeveral(1, 3)
	c := ds.eps[1].clocks["force"]
	c[3], c[4] = c[4], c[3]
	v, err := View(t.Context(), ds, mustConfig(t, `{"hz": 50}`), ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	broken := slices.DeleteFunc(
		slices.Clone(v.Info().Findings),
		func(f robocache.Finding) bool { return f.Code != "episode-not-aligned" },
	)
	if v.Len(1) != 0 || v.Len(0) == 0 || v.Len(2) == 0 || len(broken) != 1 {
		t.Errorf("lengths %v, findings %v", v.lengths, v.Info().Findings)
	}
	if _, err := v.Episode(t.Context(), 1); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "force") {
		t.Errorf("%v", err)
	}
	if ep, err := v.Episode(t.Context(), 2); err != nil || ep.Length != v.Len(2) {
		t.Errorf("%+v %v", ep, err)
	}
	for _, bad := range []struct {
		key string
		row robocache.Row
	}{
		{"joints", robocache.Row{Episode: 1}},
		{"joints", robocache.Row{Episode: 9}},
		{"joints", robocache.Row{Index: 1 << 20}},
		{"joint", robocache.Row{}},
		{"words", robocache.Row{}},
	} {
		if err := v.Gather(t.Context(), bad.key, []robocache.Row{bad.row}, make([]byte, 8)); err ==
			nil {
			t.Errorf("%v passed", bad)
		}
	}
	for _, text := range []string{
		`{"times_ns": [1]}`,
		`{"hz": 50, "keys": ["nothing"]}`,
		`{"hz": 50, "modes": {"words": "linear"}}`,
		`{"hz": 50, "modes": {"hits": "linear"}}`,
	} {
		if _, err := View(t.Context(), ds, mustConfig(t, text), ViewOptions{}); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestViewForgets checks that layouts stay inside their budget, and that rows are the same after
// eviction.
func TestViewForgets(t *testing.T) {
	ds := newSeveral(5, 3)
	v, err := View(t.Context(), ds, mustConfig(t, `{"hz": 50}`), ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v.layouts.Limit(1 << 14) // space for one or two
	for _, e := range []int{0, 1, 2, 0, 1} {
		dst := make([]byte, 8)
		if err := v.Gather(t.Context(), "joints", []robocache.Row{{Episode: e, Index: 3}},
			dst); err != nil {
			t.Fatal(err)
		}
		want, _ := Episode(t.Context(), ds, e, mustConfig(t, `{"hz": 50}`))
		if binary.LittleEndian.Uint64(dst) !=
			binary.LittleEndian.Uint64(want.Stream("joints").Data[24:]) {
			t.Errorf("episode %d: %x", e, dst)
		}
	}
	if n := v.layouts.Stats().Evictions; n == 0 {
		t.Error("nothing was forgotten")
	}
}
