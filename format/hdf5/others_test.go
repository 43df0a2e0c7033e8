package hdf5

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestOtherLengths checks that every numeric data set of a file of arrays is a stream named by its
// path, of any length, equal to h5py, with or without a rate. Data sets of another length have
// their own clock (hdf5.G3).
func TestOtherLengths(t *testing.T) {
	for _, file := range []string{"earliest", "v108", "latest"} {
		var oracle struct {
			Objects map[string]struct {
				DType  string
				Shape  []int
				SHA256 string
			}
		}
		b, err := os.ReadFile(realdata.Path(t, "hdf5_features/oracle/"+file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &oracle); err != nil {
			t.Fatal(err)
		}
		d := open(t, realdata.Path(t, "hdf5_features/"+file+".hdf5"), robocache.OpenOptions{})
		seen := 0
		for path, o := range oracle.Objects {
			if len(o.Shape) == 0 || o.Shape[0] < 2 || o.SHA256 == "" ||
				strings.HasPrefix(o.DType, "|S") ||
				strings.HasPrefix(o.DType, "|O") {
				continue
			}
			key := strings.ReplaceAll(path, "/", ".")
			f := d.Info().Feature(key)
			if f == nil {
				t.Errorf("%s: no stream %s", file, key)
				continue
			}
			n, err := robocache.RowsIn(t.Context(), d, 0, f)
			if err != nil || n != o.Shape[0] {
				t.Fatal(key, n, err)
			}
			rows := make([]robocache.Row, n)
			for i := range rows {
				rows[i].Index = i
			}
			got := make([]byte, n*f.Elements()*f.DType.Size())
			if err := d.Gather(t.Context(), key, rows, got); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(got)
			if hex.EncodeToString(sum[:]) != o.SHA256 {
				t.Errorf("%s: %s (%s %v) differs from what h5py reads", file, key, f.DType, f.Shape)
			}
			if (f.Clock == "") != (n == d.Len(0)) || f.Clock != "" && !f.Latched {
				t.Errorf("%s: %s of %d rows has the clock %q", file, key, n, f.Clock)
			}
			if _, err := d.Times(t.Context(), 0, key); err == nil {
				t.Error("timestamps out of nothing")
			}
			seen++
		}
		if seen < 60 {
			t.Errorf("%s: %d streams", file, seen)
		}
		with := open(
			t,
			realdata.Path(t, "hdf5_features/"+file+".hdf5"),
			robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}},
		)
		if at, err := with.Times(t.Context(), 0, "layout.contiguous"); err != nil ||
			len(at) != 200 || at[199] != 199*50e6 {
			t.Error(len(at), err)
		}
	}
}
