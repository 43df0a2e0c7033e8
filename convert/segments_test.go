package convert_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/synth"
)

const holedCamera = "observation.images.cam_0"

// holed is a dataset whose camera has lost the frames [from, to) of each episode. Of the other
// frames, it keeps one in every.
type holed struct {
	robocache.Dataset
	info            robocache.Info
	from, to, every int
}

func newHoled(t *testing.T, from, to, every int) *holed {
	t.Helper()
	src := synthetic(t, synth.Options{
		Episodes: 2,
		Seconds:  4,
		Cameras:  1,
		Seed:     3,
		Rates:    map[string]float64{"camera": 30, "joints": 100},
	})
	h := &holed{src, *src.Info(), from, to, every}
	h.info.Features = slices.Clone(h.info.Features)
	h.info.Feature(holedCamera).Clock = "camera with a hole"
	return h
}

func (h *holed) kept(n int) (rows []int) {
	for k := range n {
		if (k < h.from || k >= h.to) && k%h.every == 0 {
			rows = append(rows, k)
		}
	}
	return rows
}

func (h *holed) Info() *robocache.Info { return &h.info }

func (h *holed) Times(ctx context.Context, e int, key string) ([]int64, error) {
	times, err := h.Dataset.Times(ctx, e, key)
	if err != nil || key != holedCamera {
		return times, err
	}
	var out []int64
	for _, k := range h.kept(len(times)) {
		out = append(out, times[k])
	}
	return out, nil
}

func (h *holed) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Index = h.kept(h.Len(rows[i].Episode))[rows[i].Index]
	}
	return h.Dataset.Frames(ctx, key, rows, out)
}

func numbersOf(t *testing.T, ds robocache.Dataset, key string, e int) []float64 {
	t.Helper()
	f := ds.Info().Feature(key)
	if f == nil {
		t.Fatalf("no feature %s in %v", key, ds.Info().Keys())
	}
	raw := make([]byte, ds.Len(e)*f.RowBytes())
	if err := ds.Gather(t.Context(), key, rowsOf(e, ds.Len(e)), raw); err != nil {
		t.Fatal(err)
	}
	return robocache.Float64s(nil, f.DType, raw)
}

func finding(findings []robocache.Finding, code string) *robocache.Finding {
	i := slices.IndexFunc(findings, func(f robocache.Finding) bool { return f.Code == code })
	if i < 0 {
		return nil
	}
	return &findings[i]
}

// TestDropInvalidSplits: a hole of 1.2 s in a camera ends an episode, in every format. No episode
// crosses a gap: its time steps are those of the grid, and its joints equal the grid row by row.
func TestDropInvalidSplits(t *testing.T) {
	hz := robocache.Rate{Num: 30, Den: 1}
	src := newHoled(t, 40, 76, 1)
	grid, err := align.View(t.Context(), src, align.Config{HZ: hz}, align.ViewOptions{Rhythm: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"lerobot", "zarr", "rlds", "robomimic", "mcap", "delta"} {
		t.Run(format, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "out")
			opt := Options{Align: &align.Config{HZ: hz}, DropInvalid: true}
			if format == "lerobot" {
				opt.Images = "images"
			}
			r, err := Write(t.Context(), src, format, dst, opt, nil)
			if err != nil {
				t.Fatal(err)
			}
			if f := finding(r.Findings, "split-at-gaps"); f == nil || f.Count != 2 ||
				!strings.Contains(f.Message, "2 of 2 episodes are split at gaps and become 4") {
				t.Errorf("%+v", r.Findings)
			}
			out := open(t, dst)
			if out.Info().Episodes != 4 ||
				slices.ContainsFunc(
					out.Info().Keys(),
					func(k string) bool { return strings.HasSuffix(k, robocache.ValidSuffix) },
				) {
				t.Fatalf("%d episodes of %v", out.Info().Episodes, out.Info().Keys())
			}
			key := "observation.joints"
			if out.Info().Feature(key) == nil {
				key = "joints" // the name in robomimic
			}
			seen := map[int64]bool{}
			for e := range 4 {
				ep, err := out.Episode(t.Context(), e)
				if err != nil || seen[ep.Index] {
					t.Errorf("episode %d has the index %d: %v", e, ep.Index, err)
				}
				seen[ep.Index] = true
				if times, err := out.Times(t.Context(), e, ""); err == nil {
					for i := 1; i < len(times); i++ {
						if step := times[i] - times[i-1]; math.Abs(float64(step)-1e9/30) > 2e3 {
							t.Fatalf("episode %d, row %d: a step of %d ns", e, i, step)
						}
					}
				}
				span := grid.Complete(e / 2)[e%2]
				want := numbersOf(t, grid, "observation.joints", e/2)
				width := len(want) / grid.Len(e/2)
				want = want[span.From*width : span.To*width]
				if got := numbersOf(t, out, key, e); out.Len(e) != span.To-span.From ||
					!slices.Equal(got, want) {
					t.Errorf(
						"episode %d: %d rows, want %d, or other joints",
						e,
						out.Len(e),
						span.To-span.From,
					)
				}
			}
		})
	}
}

// TestKeepGaps: with KeepGaps the rows of a hole are kept and masked, and episodes are not split.
func TestKeepGaps(t *testing.T) {
	opt := Options{
		Align:       &align.Config{HZ: robocache.Rate{Num: 30, Den: 1}},
		DropInvalid: true,
		Images:      "images",
	}.options(true, nil)
	opt.KeepGaps = true
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := convert.Write(t.Context(), newHoled(t, 40, 76, 1), "lerobot", dst, opt); err !=
		nil {
		t.Fatal(err)
	}
	if out := open(t, dst); out.Info().Episodes != 2 ||
		out.Info().Feature(holedCamera+robocache.ValidSuffix) == nil {
		t.Errorf("%d episodes of %v", out.Info().Episodes, out.Info().Keys())
	}
}

// TestGapsAreBlack: without DropInvalid the rows of a hole are masked. Their frames are black,
// never those of a neighbour, and a warning counts them.
func TestGapsAreBlack(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "out")
	r, err := ToLeRobot(
		t.Context(),
		newHoled(t, 40, 76, 1),
		dst,
		Options{FPS: robocache.Rate{Num: 30, Den: 1}, Images: "images"},
	)
	if err != nil {
		t.Fatal(err)
	}
	f := finding(r.Findings, "rows-in-gaps")
	if f == nil || f.Severity != robocache.SeverityWarning || f.Count != 64 ||
		f.Where["stream"] != holedCamera {
		t.Errorf("%+v", r.Findings)
	}
	out := open(t, dst)
	for e := range 2 {
		valid := numbersOf(t, out, holedCamera+robocache.ValidSuffix, e)
		for i, row := range codesOf(t, out, holedCamera, e) {
			// A frame is shown in the rows within max_gap of it.
			want := i
			switch {
			case i >= 42 && i < 74:
				want = -1
			case i >= 40 && i < 42:
				want = 39
			case i >= 74 && i < 76:
				want = 76
			}
			if row != want || (valid[i] != 0) != (want >= 0) {
				t.Errorf(
					"episode %d, row %d shows frame %d, want %d; valid %v",
					e,
					i,
					row,
					want,
					valid[i],
				)
			}
		}
	}
	// An explicit edge policy is used.
	cfg := align.Config{HZ: robocache.Rate{Num: 30, Den: 1}}
	if err := cfg.Edge.UnmarshalJSON([]byte(`"clamp"`)); err != nil {
		t.Fatal(err)
	}
	dst += "2"
	_, err = ToLeRobot(t.Context(), newHoled(t, 40, 76, 1), dst,
		Options{Align: &cfg, Images: "images"})
	if err != nil {
		t.Fatal(err)
	}
	if codes := codesOf(t, open(t, dst), holedCamera, 0); slices.Contains(codes, -1) {
		t.Errorf("%v", codes)
	}
}

// TestFramesRepeated: a camera with half the grid's rate gives a warning with the fraction of
// repeated frames. A camera with the grid's rate gives none.
func TestFramesRepeated(t *testing.T) {
	for _, every := range []int{1, 2} {
		r, err := ToLeRobot(
			t.Context(),
			newHoled(t, 0, 0, every),
			filepath.Join(t.TempDir(), "out"),
			Options{FPS: robocache.Rate{Num: 30, Den: 1}, Images: "images"},
		)
		if err != nil {
			t.Fatal(err)
		}
		f := finding(r.Findings, "frames-repeated")
		if (f != nil) != (every == 2) {
			t.Errorf("every %d: %+v", every, r.Findings)
		} else if f != nil && (f.Severity != robocache.SeverityWarning ||
			!strings.Contains(f.Message, "(50 %)") || !strings.Contains(f.Hint, "HZ: 15")) {
			t.Errorf("%+v", f)
		}
	}
}

// TestDropInvalidOfRows checks that a dataset of rows is split at gaps in its timestamps and at
// masked rows.
func TestDropInvalidOfRows(t *testing.T) {
	masked := filepath.Join(t.TempDir(), "masked")
	_, err := ToLeRobot(t.Context(), newHoled(t, 40, 76, 1), masked,
		Options{FPS: robocache.Rate{Num: 30, Den: 1}, Images: "images"})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := ToLeRobot(t.Context(), open(t, masked), dst, Options{DropInvalid: true}); err !=
		nil {
		t.Fatal(err)
	}
	out := open(t, dst)
	if out.Info().Episodes != 4 || out.Info().Feature(holedCamera+robocache.ValidSuffix) != nil ||
		out.Info().Frames != 2*(120-32) {
		t.Errorf(
			"%d episodes, %d rows of %v",
			out.Info().Episodes,
			out.Info().Frames,
			out.Info().Keys(),
		)
	}
	stepped := newMade()
	stepped.lengths = []int{4, 8, 6, 3}
	dst += "2"
	_, err = ToLeRobot(t.Context(), &late{stepped, 1, 5}, dst,
		Options{DropInvalid: true, FPS: robocache.Rate{Num: 20, Den: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for e := range open(t, dst).Info().Episodes {
		lengths = append(lengths, open(t, dst).Len(e))
	}
	if fmt.Sprint(lengths) != "[4 5 3 6 3]" {
		t.Errorf("%v", lengths)
	}
}

// late is a dataset of rows in which one episode pauses for a second before a row.
type late struct {
	*made
	episode, row int
}

func (l *late) Times(ctx context.Context, e int, key string) ([]int64, error) {
	times, err := l.made.Times(ctx, e, key)
	for i := range times {
		if e == l.episode && i >= l.row {
			times[i] += 1_000_000_000
		}
	}
	return times, err
}
