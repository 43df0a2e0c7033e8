package query_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// storeVectors stores n random vectors of a dataset with one frame per row, and returns their
// values and the table.
func storeVectors(t testing.TB, d *table, n, width int) (values []float32, path string) {
	t.Helper()
	folder := t.TempDir()
	d.info.URI = filepath.Join(folder, "set")
	if err := os.MkdirAll(d.info.URI, 0o700); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var places []int64
	for i := range n {
		places = append(places, int64(i/d.lengths[0]), int64(i%d.lengths[0]))
	}
	for range n * width {
		values = append(values, float32(rng.NormFloat64()))
	}
	copy(values[5*width:6*width], values[2*width:3*width]) // two equal frames
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rows", unsafe.Slice((*byte)(unsafe.Pointer(&places[0])), 8*len(places)))
	write("vectors", unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)))
	path, _, err := query.WriteVectors(t.Context(), d, folder, query.VectorsInfo{
		Model: "m:f", Key: "rgb", Width: width,
	})
	if err != nil {
		t.Fatal(err)
	}
	return values, path
}

// TestVectors compares a search with cosines in float64, for any number of threads, from the mapped
// file and from the table.
func TestVectors(t *testing.T) {
	d := newTable(600, 600)
	const n, width = 1200, 19
	values, path := storeVectors(t, d, n, width)
	row := func(i int) []float32 { return values[i*width:][:width] }
	cosine := func(a, b []float32) float64 {
		var ab, aa, bb float64
		for i := range a {
			ab += float64(a[i]) * float64(b[i])
			aa += float64(a[i]) * float64(a[i])
			bb += float64(b[i]) * float64(b[i])
		}
		return ab / math.Sqrt(aa*bb)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if cosine(row(a), row(2)) > cosine(row(b), row(2)) {
			return -1
		}
		return 1
	})
	for _, isMapped := range []bool{true, false} {
		if !isMapped {
			if err := os.Remove(path + ".search.index"); err != nil {
				t.Fatal(err)
			}
		}
		v, err := query.OpenVectors(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = v.Close() })
		wanted, err := v.VectorAt(0, 2)
		if err != nil || v.Episodes[700] != 1 || v.Rows[700] != 100 || v.Model != "m:f" {
			t.Fatal(err, v.VectorsInfo)
		}
		for _, threads := range []int{1, 2, 7} {
			got, err := v.Nearest(t.Context(), wanted, nil, 50, threads)
			if err != nil || len(got) != 50 || got[0].Index != 2 || got[1].Index != 5 {
				t.Fatal(got, err)
			}
			for k, m := range got[2:] {
				want := cosine(row(order[k+2]), row(2))
				if m.Index != order[k+2] || math.Abs(float64(m.Score)-want) > 1e-6 {
					t.Errorf("match %d: %v, want %d with %v", k+2, m, order[k+2], want)
				}
			}
		}
		if _, err := v.Nearest(t.Context(), wanted[1:], nil, 5, 1); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Error(err)
		}
		other, err := v.Nearest(t.Context(), wanted, map[int64]bool{1: true}, 3*n, 2)
		if err != nil || len(other) != n/2 || other[0].Index < n/2 {
			t.Error(len(other), err)
		}
		if _, err := v.VectorAt(9, 0); !errors.Is(err, robocache.ErrNotFound) {
			t.Error(err)
		}
	}
	d.lengths[1]++
	if _, err := query.OpenVectors(t.Context(), d); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// FuzzVectors opens damaged files of vectors: the table is read in their place.
func FuzzVectors(f *testing.F) {
	d := newTable(6)
	_, path := storeVectors(f, d, 6, 3)
	good, err := os.ReadFile(path + ".search.index")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:200])
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path+".search.index", b, 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := query.OpenVectors(t.Context(), d)
		if err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Fatal(err)
		}
		_ = v.Close()
	})
}
