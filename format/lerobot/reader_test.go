package lerobot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

var realSets = []string{
	"g1_v21",
	"g1_v30_exact",
	"g1_v30_drift",
	"g1_h264_v30",
	"g1_h264_v30_bigdrift",
	"gr00t_picknplace_v20",
}

// realData returns the folder of a real dataset, or skips the test.
func realData(t testing.TB, name string) string {
	t.Helper()
	return realdata.Path(t, name)
}

func openReal(t testing.TB, name string) *Dataset {
	t.Helper()
	return mustOpen(t, realData(t, name))
}

func mustOpen(t testing.TB, uri string) *Dataset {
	t.Helper()
	d, err := Open(context.Background(), uri, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func rowsOf(d *Dataset, eps ...int) []robocache.Row {
	var rows []robocache.Row
	for _, e := range eps {
		for k := range d.Len(e) {
			rows = append(rows, robocache.Row{Episode: e, Index: k})
		}
	}
	return rows
}

// gather returns the bytes of all rows.
func gather(t testing.TB, d *Dataset, key string, rows []robocache.Row) []byte {
	t.Helper()
	f := d.Info().Feature(key)
	if f == nil {
		t.Fatalf("no feature %s", key)
	}
	b := make([]byte, len(rows)*f.RowBytes())
	if err := d.Gather(context.Background(), key, rows, b); err != nil {
		t.Fatal(err)
	}
	return b
}

type oracleColumn struct {
	Rows   int    `json:"rows"`
	Shape  []int  `json:"shape"`
	DType  string `json:"dtype"`
	SHA256 string `json:"sha256"`
}

// TestTables compares every column of every real dataset with an independent reader, bit by bit
// (lerobot.L2, lerobot.L3).
func TestTables(t *testing.T) {
	for _, name := range realSets {
		t.Run(name, func(t *testing.T) {
			d := openReal(t, name)
			var oracle map[string]struct{ Columns map[string]oracleColumn }
			b, err := os.ReadFile(filepath.Join(realData(t, name), "oracle", "tables.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &oracle); err != nil {
				t.Fatal(err)
			}
			files := make([]string, 0, len(oracle))
			for f := range oracle {
				if strings.HasPrefix(f, "data/") {
					files = append(files, f)
				}
			}
			sort.Strings(files)
			e, compared := 0, 0
			for _, file := range files {
				cols := oracle[file].Columns
				var rows []robocache.Row
				for n := cols["index"].Rows; len(rows) < n; e++ {
					rows = append(rows, rowsOf(d, e)...)
				}
				for key, want := range cols {
					f := d.Info().Feature(key)
					if f == nil {
						t.Errorf("%s: no feature", key)
						continue
					}
					got := gather(t, d, key, rows)
					sum := sha256.Sum256(got)
					if hex.EncodeToString(sum[:]) != want.SHA256 {
						t.Errorf(
							"%s %s: other bytes than the oracle's (%s, %v)",
							file,
							key,
							want.DType,
							want.Shape,
						)
					}
					compared++
				}
			}
			if e != d.Info().Episodes || compared == 0 {
				t.Errorf("compared %d columns of %d of %d episodes", compared, e, d.Info().Episodes)
			}
			for _, f := range d.Info().Findings {
				t.Log(f.Severity, f.Code, f.Where, f.Message)
			}
		})
	}
}

// TestFrames compares ordinals with the oracle (lerobot.L5).
func TestFrames(t *testing.T) {
	for _, name := range realSets {
		t.Run(name, func(t *testing.T) {
			d := openReal(t, name)
			var oracle []struct {
				Episode, Frame, Ordinal int
				Key                     string `json:"video_key"`
				File                    string
			}
			b, err := os.ReadFile(filepath.Join(realData(t, name), "oracle", "frames.json"))
			if os.IsNotExist(err) {
				// There is one mp4 per episode, so row and ordinal are equal.
				for _, f := range d.Info().Features {
					if f.Kind != robocache.KindVideo {
						continue
					}
					rows := rowsOf(d, d.Info().Episodes-1)
					out := make([]robocache.FrameRef, len(rows))
					if err := d.Frames(context.Background(), f.Key, rows, out); err != nil {
						t.Fatal(err)
					}
					for i, r := range out {
						if r.Missing || r.Ordinal != i {
							t.Fatalf("row %d: %+v", i, r)
						}
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &oracle); err != nil {
				t.Fatal(err)
			}
			for _, o := range oracle {
				var out [1]robocache.FrameRef
				if err := d.Frames(context.Background(), o.Key,
					[]robocache.Row{{Episode: o.Episode, Index: o.Frame}}, out[:]); err != nil {
					t.Fatal(err)
				}
				if out[0].Path != o.File || out[0].Ordinal != o.Ordinal || out[0].Missing {
					t.Fatalf(
						"episode %d frame %d: got %+v, want %s %d",
						o.Episode,
						o.Frame,
						out[0],
						o.File,
						o.Ordinal,
					)
				}
			}
			if n := d.Noticed(); len(n) > 0 {
				t.Errorf("findings on a clean set: %v", n)
			}
			t.Logf("%d frames", len(oracle))
		})
	}
}
