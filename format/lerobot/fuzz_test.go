package lerobot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
)

// FuzzMetadata checks that any content of the JSON files gives a result or a typed error, with
// memory in proportion to the input (lerobot.L7).
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(newSynth(1).infoJSON()))
	f.Add(
		[]byte(
			`{"codebase_version":"v2.0","fps":20.0,"features":{"a":{"dtype":"video","shape":[3,4,5],"names":["channel","height","width"],"video_info":{"video.fps":20,"video.is_depth_map":true}}},"data_path":"{episode_chunk:03d}/{{}}"}`,
		),
	)
	f.Add(
		[]byte(
			"{\"episode_index\": 1, \"length\": 4, \"tasks\": [\"a\"]}\n\n{\"episode_index\": " +
				"0, \"length\": 4, \"tasks\": \"b\"}\n",
		),
	)
	f.Add([]byte(`{"task_index": 0, "task": "x"}`))
	f.Add(
		[]byte(
			`{"episode_index": 0, "stats": {"a": {"min": [NaN, -Infinity], "max": [1, 2], "mean": [0.5, 1], "std": [[1], [2]], "count": [3]}}}`,
		),
	)
	f.Add([]byte(`{"state": {"x": {"start": 0, "end": 2}}, "video": {"c": {"original_key": "k"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		raw, _, err := parseInfo(b)
		hostile.Typed(t, err)
		if err == nil {
			for i := range raw.features {
				_, _ = parseFeature(&raw.features[i])
			}
			for _, tmpl := range []string{raw.dataPath, raw.videoPath} {
				if p, err := expandTemplate(tmpl,
					place{episode: 1 << 40, chunk: 7, file: 1 << 50, key: "../../x"}); err == nil {
					_, _ = store.CleanName(p)
				}
			}
		}
		_, _, _, err = parseEpisodesV2(b, false)
		hostile.Typed(t, err)
		_, err = parseTasksJSONL(b)
		hostile.Typed(t, err)
		_, err = parseStats(b)
		hostile.Typed(t, err)
		_, err = mergeStats(b)
		hostile.Typed(t, err)
		if b, err := checkJSON(modalityPath, b); err == nil {
			_, _ = parseModality(b, &robocache.Info{})
		}
		if got := hostile.Allocated() - before; got > uint64(8<<20+200*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzDataset uses arbitrary bytes as the data file and the episodes file of a dataset.
func FuzzDataset(f *testing.F) {
	s := newSynth(2, 3)
	dir := f.TempDir()
	writeRows(f, filepath.Join(dir, "data"), s.rows, 2)
	writeRows(f, filepath.Join(dir, "episodes"), s.episodes, 10)
	writeRows(f, filepath.Join(dir, "tasks"), s.tasks, 10, pandasTask)
	data, _ := os.ReadFile(filepath.Join(dir, "data"))
	episodes, _ := os.ReadFile(filepath.Join(dir, "episodes"))
	tasks, _ := os.ReadFile(filepath.Join(dir, "tasks"))
	f.Add(data, episodes)
	f.Add(episodes, data)
	info := []byte(s.infoJSON())
	f.Fuzz(func(t *testing.T, data, episodes []byte) {
		before := hostile.Allocated()
		m := fixed{
			infoPath:     info,
			tasksParquet: tasks,
			"meta/episodes/chunk-000/file-000.parquet": episodes,
			"data/chunk-000/file-000.parquet":          data,
		}
		d, err := OpenStore(t.Context(), m, robocache.OpenOptions{MemoryBudget: 1 << 20})
		hostile.Typed(t, err)
		if err == nil {
			for e := range min(d.Info().Episodes, 3) {
				var rows []robocache.Row
				for k := range min(d.Len(e), 3) {
					rows = append(rows, robocache.Row{Episode: e, Index: k})
				}
				for _, c := range d.Info().Features {
					if c.Kind == robocache.KindNumeric {
						hostile.Typed(
							t,
							d.Gather(
								t.Context(),
								c.Key,
								rows,
								make([]byte, len(rows)*c.RowBytes()),
							),
						)
					}
				}
				_, err := d.Text(t.Context(), "task", rows)
				hostile.Typed(t, err)
				_, err = d.Times(t.Context(), e, "")
				hostile.Typed(t, err)
				_, err = d.Episode(t.Context(), e)
				hostile.Typed(t, err)
			}
			d.Close()
		}
		if got := hostile.Allocated() - before; got > 96<<20 {
			t.Errorf("%d bytes were allocated for %d", got, len(data)+len(episodes))
		}
	})
}

// TestStats checks reading and merging; the result of merging has no quantiles.
func TestStats(t *testing.T) {
	line := func(e int, mean, std float64, n int) string {
		return fmt.Sprintf(
			`{"episode_index": %d, "stats": {"a": {"min": [%g], "max": [%g], "mean": [%g], "std": [%g], "count": [%d]}}}`+"\n",
			e,
			mean-1,
			mean+1,
			mean,
			std,
			n,
		)
	}
	st, err := mergeStats([]byte(line(0, 1, 0.5, 4) + line(1, 1001, 0.25, 12)))
	if err != nil {
		t.Fatal(err)
	}
	a := st["a"]
	// mean (4·1 + 12·1001)/16 = 751; variance (4·0.25 + 12·0.0625 + 4·750² + 12·250²)/16
	if a.Count != 16 || a.Mean[0] != 751 || a.Min[0] != 0 || a.Max[0] != 1002 ||
		a.Quantiles != nil ||
		a.Std[0]*a.Std[0]-(4*0.25+12*0.0625+4*750*750+12*250*250)/16 > 1e-6 {
		t.Errorf("%+v", a)
	}
	for _, name := range realSets {
		d := openReal(t, name)
		st, err := d.Stats(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		f := st["observation.state"]
		if f == nil || len(f.Mean) != d.Info().Feature("observation.state").Elements() ||
			(name == "g1_v21") != (f.Quantiles == nil) ||
			len(f.Std) != len(f.Mean) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if d := mustOpen(t, newSynth(2).write(t)); true {
		if st, err := d.Stats(t.Context()); st != nil || err != nil {
			t.Error(st, err)
		}
	}
}

// TestLargeFrames checks that a row group of images larger than the budget is read page by page.
func TestLargeFrames(t *testing.T) {
	type image struct {
		Bytes []byte  `parquet:"bytes,optional"`
		Path  *string `parquet:"path,optional"`
	}
	type imageRow struct {
		Image image `parquet:"cam"`
		dataNoState
	}
	s := newSynth(40, 40)
	s.features = `"cam": {"dtype": "image", "shape": [4, 6, 3], "names": ["height", "width", "channel"]},`
	dir := s.write(t)
	rng := rand.New(rand.NewPCG(3, 4))
	var rows []imageRow
	in := "frames/a.png"
	writeText(t, filepath.Join(dir, in), "PICTURE")
	for i, r := range s.rows {
		row := imageRow{dataNoState: dataNoState{r.Time, r.Frame, r.Ep, r.Index, r.Task}}
		if i == 61 {
			row.Image.Path = &in
		} else {
			row.Image.Bytes = make([]byte, 200<<10)
			for k := range row.Image.Bytes {
				row.Image.Bytes[k] = byte(rng.Uint32())
			}
		}
		rows = append(rows, row)
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[imageRow](
		&file,
		parquet.PageBufferSize(1<<20),
		parquet.Compression(&parquet.Snappy),
	)
	for i := range rows { // one by one, because pages end between calls
		if _, err := w.Write(rows[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), file.String())
	d, err := Open(t.Context(), dir, robocache.OpenOptions{MemoryBudget: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i, r := range frames(t, d, "cam", rowsOf(d, 1, 0)) {
		at := (i + 40) % 80
		want := rows[at].Image.Bytes
		if at == 61 {
			want = []byte("PICTURE")
		}
		if !bytes.Equal(r.Encoded, want) {
			t.Fatal("row", at)
		}
	}
	if s := d.cacheStats(); s.Bytes > s.Budget || s.Evictions == 0 {
		t.Errorf("%+v", s)
	}
}

// TestEmpty checks that a dataset without recorded episodes is valid.
func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	s := newSynth()
	s.info = `"total_episodes": 0, "total_frames": 0, "total_tasks": 0,`
	writeText(t, filepath.Join(dir, infoPath), s.infoJSON())
	d := mustOpen(t, dir)
	if d.Info().Episodes != 0 || d.Len(0) != 0 || len(d.Info().Features) != 6 {
		t.Errorf("%+v", d.Info())
	}
}
