package columns

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

func parquetOf[T any](t testing.TB, rows []T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Types and shapes are kept, and the keys of the rows are returned with the values (columns.L1,
// columns.L2).
func TestParse(t *testing.T) {
	type row struct {
		Index int64     `parquet:"index"`
		Pose  []float64 `parquet:"pose,list"`
		Label string    `parquet:"label"`
		Small int32     `parquet:"small"`
	}
	b := parquetOf(t, []row{{1, []float64{1, 2}, "a", -7}, {0, []float64{3, 4}, "b", 8}})
	pose, err := Parse(t.Context(), "x.parquet", b, "pose")
	if err != nil || pose.DType != robocache.Float64 || !slices.Equal(pose.Shape, []int{2}) ||
		pose.Rows != 2 ||
		!slices.Equal(pose.Index, []int64{1, 0}) {
		t.Fatalf("%+v %v", pose, err)
	}
	if values := robocache.Float64s(nil, pose.DType, pose.Data); !slices.Equal(values,
		[]float64{1, 2, 3, 4}) {
		t.Error(values)
	}
	if label, err := Parse(t.Context(), "x.parquet", b, "label"); err != nil ||
		!slices.Equal(label.Text, []string{"a", "b"}) {
		t.Error(label, err)
	}
	if small, err := Parse(t.Context(), "x.parquet", b, "small"); err != nil ||
		small.DType != robocache.Int32 || !slices.Equal(small.Shape, []int{1}) {
		t.Error(small, err)
	}
	for name, b := range map[string][]byte{
		"no such column": parquetOf(
			t,
			[]struct{ A, B int64 }{{1, 2}},
		), "ragged": parquetOf(t, []struct {
			X []float32 `parquet:"x,list"`
		}{{[]float32{1}}, {[]float32{1, 2, 3}}}), "null": parquetOf(t, []struct {
			X *float32 `parquet:"x,optional"`
		}{{}}), "cut": b[:len(b)/2], "empty": nil,
	} {
		if _, err := Parse(t.Context(), "x.parquet", b, "x"); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parquetOf(f, []struct {
		X []float32 `parquet:"x,list"`
	}{{[]float32{1, 2}}}))
	f.Add([]byte("\x93NUMPY"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"x.parquet", "x.npy"} {
			_, err := Parse(t.Context(), name, b, "x")
			hostile.Typed(t, err)
		}
	})
}
