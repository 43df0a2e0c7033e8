package e2e

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// rowsOfStream reads all rows of one stream of an episode.
func rowsOfStream(t *testing.T, ds robocache.Dataset, position int, key string) [][]float64 {
	t.Helper()
	f := ds.Info().Feature(key)
	n := ds.Len(position)
	raw := make([]byte, n*f.RowBytes())
	if err := ds.Gather(t.Context(), key, robocache.RowsOf(position, 0, n), raw); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(robocache.Float64s(nil, f.DType, raw), f.Elements()))
}

// samplesOf reads all samples of an episode through a loader's dataset.
func samplesOf(
	t *testing.T,
	ds robocache.Dataset,
	position int,
	key string,
	cfg loader.Config,
) (rows [][]float64, pads []byte, notes []string) {
	t.Helper()
	cfg.Keys = []string{key}
	cfg.Episodes = []int{int(ds.Info().EpisodeIndex(position))}
	m, err := loader.NewMap(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	indices := make([]int64, m.Len())
	for i := range indices {
		indices[i] = int64(i)
	}
	b, err := m.Items(t.Context(), indices)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	x := b.Tensor(key)
	values := robocache.Float64s(nil, x.DType, x.Data)
	return slices.Collect(slices.Chunk(values, ds.Info().Feature(key).Elements())),
		slices.Clone(b.Tensor(key + "_is_pad").Data), m.Notes()
}

// slowTick returns the sum of one column over a tick, for rows at a rate. Row k lasts until row
// k+1, and the last row has the same duration.
func slowTick(rows [][]float64, column int, rate, from, to float64) (sum float64) {
	for k := range rows {
		start, end := float64(k)/rate, float64(k+1)/rate
		sum += rows[k][column] * max(0, min(end, to)-max(start, from)) * rate
	}
	return sum
}

// slowLinear interpolates one column of rows at a rate.
func slowLinear(rows [][]float64, column int, rate, t float64) float64 {
	at := t * rate
	k := min(int(at+1e-9), len(rows)-1)
	next := min(k+1, len(rows)-1)
	return rows[k][column] + (at-float64(k))*(rows[next][column]-rows[k][column])
}

func total(rows [][]float64, column int) (sum float64) {
	for _, r := range rows {
		sum += r[column]
	}
	return sum
}

// relativeSets are the sets of the test data whose action has six changes and a gripper.
var relativeSets = []struct {
	name, key string
	rate      float64
}{
	{"bridge_rlds/bridge_dataset/1.0.0", "action", 5},
	{"calvin_like", "rel_actions", 30},
}

// TestRelativeActionsKeepTheirSum checks that delta actions of two formats keep their sum at rates
// above and below their own, in Loader and in convert. The gripper is still interpolated.
func TestRelativeActionsKeepTheirSum(t *testing.T) {
	for _, set := range relativeSets {
		for _, hz := range []int64{2, 3, 4, 5, 7, 10, 25, 30, 60} {
			t.Run(fmt.Sprintf("%s at %d Hz", set.key, hz), func(t *testing.T) {
				ds := open(t, realdata.Path(t, set.name))
				rate := robocache.Rate{Num: hz, Den: 1}
				dst := filepath.Join(t.TempDir(), "out.zarr")
				opt := convert.Options{Align: &align.Config{HZ: rate}}
				opt.Keys, opt.Episodes = []string{set.key}, []int{0, 1}
				if _, err := convert.Write(t.Context(), ds, "zarr", dst, opt); err != nil {
					t.Fatal(err)
				}
				converted := open(t, dst)
				for e := range 2 {
					rows := rowsOfStream(t, ds, e, set.key)
					got, pads, _ := samplesOf(
						t,
						ds,
						e,
						set.key,
						loader.Config{Windows: loader.Windows{Hz: &rate}},
					)
					if slices.Contains(pads, 1) {
						t.Errorf("episode %d: padded rows %v", e, pads)
					}
					key := set.key
					if converted.Info().Feature(key) == nil {
						t.Fatalf("converted: no %s in %v", key, converted.Info().Keys())
					}
					written := rowsOfStream(t, converted, e, key)
					if len(written) != len(got) {
						t.Fatalf(
							"episode %d: convert wrote %d rows, Loader has %d",
							e,
							len(written),
							len(got),
						)
					}
					// The last tick of the grid ends here. The rest of the last row belongs to no
					// tick.
					end := float64(len(got)) / float64(hz)
					for c := range 6 {
						want := slowTick(rows, c, set.rate, 0, end)
						if sum := total(got, c); math.Abs(sum-want) > 1e-5 {
							t.Errorf("episode %d, column %d: total %v, want %v", e, c, sum, want)
						}
						if lost := total(rows, c) - want; math.Abs(lost) >
							math.Abs(rows[len(rows)-1][c])+1e-9 {
							t.Errorf(
								"episode %d, column %d: %v is lost, more than the last row",
								e,
								c,
								lost,
							)
						}
					}
					for i, row := range got {
						from := float64(i) / float64(hz)
						for c := range 7 {
							want := slowTick(rows, c, set.rate, from, from+1/float64(hz))
							if c == 6 {
								want = slowLinear(rows, c, set.rate, from)
							}
							if math.Abs(row[c]-want) > 1e-5 || math.Abs(written[i][c]-want) > 1e-5 {
								t.Fatalf(
									"episode %d, row %d, column %d: Loader %v, convert %v; want %v",
									e,
									i,
									c,
									row[c],
									written[i][c],
									want,
								)
							}
						}
					}
				}
			})
		}
	}
}

// TestRelativeGolden checks reported numbers: the sum of dz of one episode of Bridge, at 5 Hz and
// at 10 Hz.
func TestRelativeGolden(t *testing.T) {
	ds := open(t, realdata.Path(t, relativeSets[0].name))
	rate := robocache.Rate{Num: 10, Den: 1}
	golden := -1
	for e := range ds.Info().Episodes {
		if math.Abs(total(rowsOfStream(t, ds, e, "action"), 2) - -0.071) < 5e-4 {
			golden = e
			break
		}
	}
	if golden < 0 {
		t.Fatal("no episode whose dz add up to -0.071")
	}
	rows := rowsOfStream(t, ds, golden, "action")
	got, _, notes := samplesOf(
		t,
		ds,
		golden,
		"action",
		loader.Config{Windows: loader.Windows{Hz: &rate}},
	)
	if sum, want := total(got, 2), total(rows, 2)-rows[len(rows)-1][2]/2; math.Abs(sum-want) >
		1e-6 {
		t.Errorf("episode %d: dz add up to %v at 10 Hz, want %v", golden, sum, want)
	}
	if len(notes) == 0 || !strings.Contains(notes[0],
		"action is relative (as known of bridge_dataset): columns 0–5 of its rows are summed") ||
		!strings.Contains(notes[0], `Align: {Relative: {"action": false}}`) {
		t.Errorf("notes %q", notes)
	}
	absolute := &align.Config{Relative: map[string]robocache.Relative{"action": {None: true}}}
	linear, _, notes := samplesOf(
		t,
		ds,
		golden,
		"action",
		loader.Config{Windows: loader.Windows{Hz: &rate}, Align: absolute},
	)
	for i, row := range linear {
		if want := slowLinear(rows, 2, 5, float64(i)/10); math.Abs(row[2]-want) > 1e-6 {
			t.Fatalf("absolute, row %d: %v, want %v", i, row[2], want)
		}
	}
	if slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "relative") }) {
		t.Errorf("notes %q", notes)
	}
}
