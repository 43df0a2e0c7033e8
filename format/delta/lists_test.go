package delta_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// listRow is a row of a table of another writer, whose lists have no declared length.
type listRow struct {
	Episode int64     `parquet:"episode_index"`
	Frame   int64     `parquet:"frame_index"`
	State   []float32 `parquet:"state,list"`
}

// writeLists writes a table of one data file for each group of episodes; lengths holds the length
// of the lists of each episode. Each episode has three rows.
func writeLists(t *testing.T, lengths []int, files ...[]int) string {
	t.Helper()
	dir := t.TempDir()
	log := `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"partitionColumns":[],"configuration":{"robocache.fps":"10"},` +
		`"schemaString":"{\"type\":\"struct\",\"fields\":[` +
		`{\"name\":\"episode_index\",\"type\":\"long\",\"nullable\":false,\"metadata\":{}},` +
		`{\"name\":\"frame_index\",\"type\":\"long\",\"nullable\":false,\"metadata\":{}},` +
		`{\"name\":\"state\",\"type\":{\"type\":\"array\",\"elementType\":\"float\",\"containsNull\":false},` +
		`\"nullable\":true,\"metadata\":{}}]}"}}
`
	for i, episodes := range files {
		var rows []listRow
		for _, e := range episodes {
			for k := range 3 {
				state := make([]float32, lengths[e])
				for j := range state {
					state[j] = float32(100*e + 10*k + j)
				}
				rows = append(rows, listRow{int64(e), int64(k), state})
			}
		}
		name := fmt.Sprintf("part-%d.parquet", i)
		if err := parquet.WriteFile(filepath.Join(dir, name), rows); err != nil {
			t.Fatal(err)
		}
		stat, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		log += fmt.Sprintf(
			`{"add":{"path":"%s","size":%d,"partitionValues":{},"modificationTime":0,"dataChange":true,`+
				`"stats":"{\"numRecords\":%d,\"nullCount\":{\"episode_index\":0,\"frame_index\":0,\"state\":0}}"}}`+"\n",
			name,
			stat.Size(),
			len(rows),
		)
	}
	if err := os.MkdirAll(filepath.Join(dir, "_delta_log"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "_delta_log/00000000000000000000.json"), []byte(log),
		0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOddLists checks that the most common length of the lists is that of the stream, whichever
// episode is different. Only rows of that episode are errors.
func TestOddLists(t *testing.T) {
	for name, files := range map[string][][]int{
		"one file":    {{0, 1, 2, 3}},
		"a file each": {{0}, {1}, {2}, {3}},
		"two files":   {{0, 1}, {2, 3}},
	} {
		for odd := range 4 {
			for _, length := range []int{1, 2, 3, 9} {
				lengths := []int{7, 7, 7, 7}
				lengths[odd] = length
				ds := openTable(t, writeLists(t, lengths, files...))
				if f := ds.Info().Feature("state"); f == nil || f.Elements() != 7 {
					t.Errorf("%s, %d of episode %d: %+v", name, length, odd, f)
					continue
				}
				for e := range 4 {
					b := make([]byte, 3*7*4)
					err := ds.Gather(t.Context(), "state", robocache.RowsOf(e, 0, 3), b)
					v := robocache.Float64s(nil, robocache.Float32, b)
					switch {
					case e == odd && !errors.Is(err, robocache.ErrMalformed):
						t.Errorf("%s, %d of episode %d: %v", name, length, odd, err)
					case e != odd && (err != nil || v[20] != float64(100*e+26) ||
						v[7] != float64(100*e+10)):
						t.Errorf(
							"%s, %d of episode %d: episode %d: %v, %v",
							name,
							length,
							odd,
							e,
							v,
							err,
						)
					}
				}
			}
		}
	}
}

// TestColumnOfLaterParts checks a column that the first data files lack. It is a stream, and masked
// in their rows.
func TestColumnOfLaterParts(t *testing.T) {
	dir := writeLists(t, []int{0, 0, 4}, []int{0}, []int{1}, []int{2})
	type plainRow struct {
		Episode int64 `parquet:"episode_index"`
		Frame   int64 `parquet:"frame_index"`
	}
	name := filepath.Join(dir, "part-0.parquet")
	old, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(name, []plainRow{{0, 0}, {0, 1}, {0, 2}}); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "_delta_log/00000000000000000000.json")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(
		b,
		fmt.Appendf(nil, `"size":%d`, old.Size()),
		fmt.Appendf(nil, `"size":%d`, stat.Size()),
		1,
	)
	if err := os.WriteFile(log, b, 0o644); err != nil {
		t.Fatal(err)
	}
	ds := openTable(t, dir)
	if f := ds.Info().Feature("state"); f == nil || f.Elements() != 4 || !f.Masked {
		t.Fatalf("%+v", f)
	}
	rows := []robocache.Row{{Episode: 0}, {Episode: 2, Index: 2}}
	valid, values := make([]uint8, 2), make([]byte, 2*16)
	if err := errors.Join(robocache.Valid(t.Context(), ds, "state", rows, valid),
		ds.Gather(t.Context(), "state", rows, values)); err != nil {
		t.Fatal(err)
	}
	if v := robocache.Float64s(nil, robocache.Float32, values); valid[0] != 0 || valid[1] != 1 ||
		v[7] != 223 {
		t.Error(valid, v)
	}
}
