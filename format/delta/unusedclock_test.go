package delta_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// clockRow is a row of a table of another writer with a column timestamp.
type clockRow[T any] struct {
	Episode int64 `parquet:"episode_index"`
	Frame   int64 `parquet:"frame_index"`
	Time    T     `parquet:"timestamp"`
}

// clockRows returns three episodes of nine rows with the times that at returns.
func clockRows[T any](at func(episode, row int) T) (rows []clockRow[T]) {
	for e := range 3 {
		for k := range 9 {
			rows = append(rows, clockRow[T]{int64(e), int64(k), at(e, k)})
		}
	}
	return rows
}

// writeClock writes a table whose column timestamp has a Delta type. The table states no rate.
func writeClock[T any](t *testing.T, delta string, rows []clockRow[T]) string {
	t.Helper()
	dir := t.TempDir()
	if err := parquet.WriteFile(filepath.Join(dir, "part-0.parquet"), rows); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(filepath.Join(dir, "part-0.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name, typ string) string {
		return fmt.Sprintf(
			`{\"name\":\"%s\",\"type\":%s,\"nullable\":false,\"metadata\":{}}`,
			name,
			typ,
		)
	}
	log := `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"partitionColumns":[],"configuration":{},` +
		`"schemaString":"{\"type\":\"struct\",\"fields\":[` +
		field(
			"episode_index",
			`\"long\"`,
		) + "," + field("frame_index", `\"long\"`) + "," + field("timestamp", delta) + `]}"}}
` + fmt.Sprintf(`{"add":{"path":"part-0.parquet","size":%d,"partitionValues":{},"modificationTime":0,"dataChange":true,`+
		`"stats":"{\"numRecords\":%d,\"nullCount\":{\"episode_index\":0,\"frame_index\":0,\"timestamp\":0}}"}}`+"\n", stat.Size(), len(
		rows,
	))
	if err := os.MkdirAll(filepath.Join(dir, "_delta_log"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "_delta_log/00000000000000000000.json"), []byte(log),
		0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestUnusedClock checks the finding about a time column that cannot be used. It names the column,
// the episode and the reason, and errors about rows without a clock name the column.
func TestUnusedClock(t *testing.T) {
	numbers := func(change func(e, k int) float64) string {
		return writeClock(t, `\"double\"`, clockRows(func(e, k int) float64 {
			if v := change(e, k); v >= 0 || math.IsNaN(v) {
				return v
			}
			return float64(k) / 10
		}))
	}
	last := func(value float64) func(e, k int) float64 {
		return func(e, k int) float64 {
			if e == 2 && k == 5 {
				return value
			}
			return -1
		}
	}
	for name, c := range map[string]struct {
		uri    string
		reason string
		class  error // of Times of the last episode
	}{
		"strings": {
			writeClock(
				t,
				`\"string\"`,
				clockRows(func(_, k int) string { return fmt.Sprintf("10:00:%02d", k) }),
			),
			"holds text and no numbers", robocache.ErrNoClock,
		},
		"twodim": {
			writeClock(t, `{\"type\":\"array\",\"elementType\":\"double\",\"containsNull\":false}`,
				clockRows(func(_, k int) []float64 { return []float64{float64(k), 0} })),
			"", robocache.ErrNoClock,
		},
		"nan": {
			numbers(last(math.NaN())),
			"is NaN at row 5 in episode 2",
			robocache.ErrMalformed,
		},
		"backwards": {numbers(last(0.2)), "steps back from 0.4 to 0.2 at row 5 in episode 2", nil},
		"constant": {
			numbers(func(int, int) float64 { return 0 }),
			"is 0 in all 9 rows in episode 0, and cannot be used in 3 episodes",
			robocache.ErrNoClock,
		},
	} {
		d := openTable(t, c.uri)
		at := slices.IndexFunc(
			d.Info().Findings,
			func(f robocache.Finding) bool { return f.Code == robocache.ClockUnusable },
		)
		if at < 0 || !strings.HasPrefix(d.Info().Findings[at].Message, "timestamp "+c.reason) {
			t.Errorf("%s: %+v, want %q", name, d.Info().Findings, c.reason)
			continue
		}
		_, err := d.Times(t.Context(), 2, "")
		if !errors.Is(err, c.class) || (err == nil) != (c.class == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
		message := d.Info().Findings[at].Message +
			" (the clock of the rows cannot be used, and nothing says their rate)"
		if c.class == robocache.ErrNoClock && !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %s", name, err, message)
		}
		stated := openTable(t, c.uri, robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}})
		if stated.Info().UnusedClocks != nil {
			t.Errorf("%s with a stated rate: %v", name, stated.Info().UnusedClocks)
		}
	}
}
