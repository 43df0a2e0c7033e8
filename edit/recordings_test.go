package edit_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

const (
	rowStep    = 100_000_000 // ns
	sampleStep = 30_000_000
)

func float32Bytes(v float64) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
}

// recordStreams records a dataset whose joints have their own rate. The value of a sample is its
// episode plus its time in seconds.
func recordStreams(t *testing.T, episodes, rows int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "set")
	numeric := func(key string) robocache.Feature {
		return robocache.Feature{
			Key:   key,
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{1},
		}
	}
	cfg := write.Config{
		FPS:      robocache.Rate{Num: 10, Den: 1},
		Features: []robocache.Feature{numeric("action"), numeric("joints")},
	}
	rec, err := lerobot.Record(
		t.Context(),
		dir,
		cfg,
		write.RecordOptions{Streams: map[string]float64{"joints": 33}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for e := range episodes {
		next := int64(0)
		for row := range rows {
			at := int64(row) * rowStep
			for ; next <= at; next += sampleStep {
				err := rec.AddSample("joints", next,
					float32Bytes(float64(e)+float64(next)/1e9))
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := rec.AddFrame(t.Context(), "task", at,
				[][]byte{float32Bytes(float64(row)), nil}, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := rec.SaveEpisode(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := rec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkRecordings checks that each episode has a recording with the samples of its rows.
func checkRecordings(t *testing.T, dir, key string, want []place) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "recordings"))
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d recordings of %d episodes: %v", len(files), len(want), err)
	}
	for e, p := range want {
		name := fmt.Sprintf("episode_%06d.mcap", e)
		ds := open(t, filepath.Join(dir, "recordings", name))
		// The samples start with the one that the first row holds, and end before the next row that
		// is not kept.
		var times []int64
		end := int64(p.from+p.n)*rowStep - 1
		if p.from+p.n == 12 { // all recorded rows
			end = 11 * rowStep
		}
		for at := int64(0); at <= end; at += sampleStep {
			if at+sampleStep > int64(p.from)*rowStep {
				times = append(times, at)
			}
		}
		got, err := ds.Times(t.Context(), 0, key)
		if err != nil || !slices.Equal(got, times) {
			t.Fatalf("%s: %s at %v, want %v: %v", name, key, got, times, err)
		}
		raw, numbers := make([]byte, 4*len(times)), make([]byte, 8*p.n)
		if err := ds.Gather(t.Context(), key, robocache.RowsOf(0, 0, len(times)), raw); err != nil {
			t.Fatal(err)
		}
		for i, v := range robocache.Float64s(nil, robocache.Float32, raw) {
			if want := float64(float32(float64(p.episode) + float64(times[i])/1e9)); v != want {
				t.Errorf("%s: sample %d is %v, want %v", name, i, v, want)
			}
		}
		if ds.Len(0) != p.n {
			t.Errorf("%s has %d rows, want %d", name, ds.Len(0), p.n)
		} else if err := ds.Gather(t.Context(), write.RowClock, robocache.RowsOf(0, 0, p.n),
			numbers); err != nil {
			t.Error(err)
		} else if n := robocache.Int64s(nil, robocache.Int64, numbers); n[0] != 0 ||
			n[p.n-1] != int64(p.n-1) {
			t.Errorf("%s numbers its rows %v", name, n)
		}
	}
	ds := open(t, dir)
	if side := ds.Capabilities().SideStreams; side == nil || side()[key] != 33 {
		t.Errorf("info.json does not list %s", key)
	}
}

// Edits keep the samples of streams with their own rates, for the episodes and rows that are kept.
func TestEditKeepsRecordings(t *testing.T) {
	src := recordStreams(t, 3, 12)
	all := []place{{0, 0, 12}, {1, 0, 12}, {2, 0, 12}}
	checkRecordings(t, src, "joints", all)
	for name, c := range map[string]struct {
		verb edit.Verb
		key  string
		want []place
	}{
		"delete": {
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "1"}},
			"joints",
			[]place{all[0], all[2]},
		},
		"trim": {
			edit.Verb{Verb: "trim", From: "2r", To: "-3r"},
			"joints",
			[]place{{0, 2, 7}, {1, 2, 7}, {2, 2, 7}},
		},
		"rename": {
			edit.Verb{Verb: "rename", Names: map[string]string{"joints": "arm"}},
			"arm",
			all,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dst, r := run(t, src, c.verb)
			checkRecordings(t, dst, c.key, c.want)
			if len(r.Findings) > 0 {
				t.Errorf("findings: %v", r.Findings)
			}
		})
	}
	dst := filepath.Join(t.TempDir(), "parts")
	split := edit.Verb{Verb: "split", Into: []string{"a=0-1", "b=2-2"}}
	_, err := edit.Run(t.Context(),
		&edit.Request{Sources: []string{src}, Verbs: []edit.Verb{split}, DST: dst})
	if err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dst, "a"), filepath.Join(dst, "b")
	checkRecordings(t, a, "joints", all[:2])
	checkRecordings(t, b, "joints", all[2:])
	merged := filepath.Join(t.TempDir(), "merged")
	if _, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{b, a},
		Verbs:   []edit.Verb{{Verb: "merge"}}, DST: merged,
	}); err != nil {
		t.Fatal(err)
	}
	checkRecordings(t, merged, "joints", []place{all[2], all[0], all[1]})
	place0 := edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0"}}
	_, err = edit.Run(t.Context(),
		&edit.Request{Sources: []string{merged}, Verbs: []edit.Verb{place0}, InPlace: true})
	if err !=
		nil {
		t.Fatal(err)
	}
	checkRecordings(t, merged, "joints", []place{all[0], all[1]})
}

// A conversion, and an edit that resamples or changes the format, report that recordings are left
// out.
func TestRecordingsDropped(t *testing.T) {
	src := recordStreams(t, 1, 12)
	found := func(findings []robocache.Finding) bool {
		return slices.ContainsFunc(findings, func(f robocache.Finding) bool {
			return f.Code == "recordings-dropped" && f.Severity == robocache.SeverityWarning
		})
	}
	for _, format := range []string{"lerobot", "zarr"} {
		r, err := convert.Write(
			t.Context(),
			open(t, src),
			format,
			filepath.Join(t.TempDir(), "out"),
			convert.Options{},
		)
		if err != nil || !found(r.Findings) {
			t.Errorf("convert to %s: %+v, %v", format, r, err)
		}
	}
	dst := filepath.Join(t.TempDir(), "out")
	rename := edit.Verb{Verb: "rename", Names: map[string]string{"action": "act"}}
	r, err := edit.Run(
		t.Context(),
		&edit.Request{Sources: []string{src}, Verbs: []edit.Verb{rename}, To: "zarr", DST: dst},
	)
	if err != nil || !found(r.Findings) {
		t.Errorf("edit: %+v, %v", r, err)
	}
}
