package lerobot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// episodeRow is a row of meta/episodes as lerobot's recorder writes it, with some of its
// statistics.
type episodeRow struct {
	Index     int64     `parquet:"episode_index"`
	Tasks     []string  `parquet:"tasks,list"`
	Length    int64     `parquet:"length"`
	DataChunk int64     `parquet:"data/chunk_index"`
	DataFile  int64     `parquet:"data/file_index"`
	From      int64     `parquet:"dataset_from_index"`
	To        int64     `parquet:"dataset_to_index"`
	CamChunk  int64     `parquet:"videos/cam/chunk_index"`
	CamFile   int64     `parquet:"videos/cam/file_index"`
	CamFrom   float64   `parquet:"videos/cam/from_timestamp"`
	CamTo     float64   `parquet:"videos/cam/to_timestamp"`
	Min       []float64 `parquet:"stats/observation.state/min,list"`
	Max       []float64 `parquet:"stats/observation.state/max,list"`
	Mean      []float64 `parquet:"stats/observation.state/mean,list"`
	Std       []float64 `parquet:"stats/observation.state/std,list"`
	Count     []int64   `parquet:"stats/observation.state/count,list"`
}

func writeRows[T any](
	t testing.TB,
	path string,
	rows []T,
	perGroup int,
	opts ...parquet.WriterOption,
) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](
		f,
		append([]parquet.WriterOption{parquet.Compression(&parquet.Snappy)}, opts...)...)
	for len(rows) > 0 {
		n := min(perGroup, len(rows))
		if _, err := w.Write(rows[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeText(t testing.TB, path, s string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

type dataRow struct {
	State []float32 `parquet:"observation.state,list"`
	Time  float32   `parquet:"timestamp"`
	Frame int64     `parquet:"frame_index"`
	Ep    int64     `parquet:"episode_index"`
	Index int64     `parquet:"index"`
	Task  int64     `parquet:"task_index"`
}

type taskRow struct {
	Index int64  `parquet:"task_index"`
	Task  string `parquet:"task"`
}

const scaleInfo = `{"codebase_version": "v3.0", "fps": 30, "robot_type": "x", "chunks_size": 1000, "total_episodes": %d, "total_frames": %d, "total_tasks": 2,
"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
"features": {"observation.state": {"dtype": "float32", "shape": [3], "names": null}, %s
"timestamp": {"dtype": "float32", "shape": [1]}, "frame_index": {"dtype": "int64", "shape": [1]}, "episode_index": {"dtype": "int64", "shape": [1]}, "index": {"dtype": "int64", "shape": [1]}, "task_index": {"dtype": "int64", "shape": [1]}}}`

// cpuTime returns the CPU time of this process, which does not depend on the load of the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestManyEpisodes opens 100,000 episodes in files file-000 … file-1001 of several chunks and
// checks the cost (lerobot.L1, lerobot.L2).
func TestManyEpisodes(t *testing.T) {
	const episodes, length, perFile = 100000, 300, 100
	dir := t.TempDir()
	cam := `"cam": {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]},`
	writeText(
		t,
		filepath.Join(dir, "meta/info.json"),
		fmt.Sprintf(scaleInfo, episodes, episodes*length, cam),
	)
	pandas := parquet.KeyValueMetadata("pandas", `{"index_columns": ["task"]}`)
	writeRows(
		t,
		filepath.Join(dir, "meta/tasks.parquet"),
		[]taskRow{{0, "pick"}, {1, "place"}},
		10,
		pandas,
	)
	rows := make([]episodeRow, 0, episodes)
	vec := []float64{1, 2, 3}
	for e := range int64(episodes) {
		file := e / perFile // up to 999; file-1000 and file-1001 are additional episodes files
		rows = append(rows, episodeRow{
			Index:    e,
			Tasks:    []string{"pick", "place"}[e%2 : e%2+1],
			Length:   length,
			DataFile: file,
			From:     e * length,
			To:       (e + 1) * length,
			CamFile:  file,
			CamFrom:  float64(e%perFile) * 10,
			CamTo:    float64(e%perFile+1) * 10,
			Min:      vec,
			Max:      vec,
			Mean:     vec,
			Std:      vec,
			Count:    []int64{length},
		})
	}
	// Episodes files are ordered by number (999 before 1000), then by chunk.
	names := []string{
		"chunk-000/file-000",
		"chunk-000/file-998",
		"chunk-000/file-999",
		"chunk-000/file-1000",
		"chunk-001/file-000",
	}
	for i, n := range names {
		lo, hi := i*episodes/len(names), (i+1)*episodes/len(names)
		writeRows(t, filepath.Join(dir, "meta/episodes", n+".parquet"), rows[lo:hi], 1000)
	}
	data := make([]dataRow, 0, perFile*length)
	for _, file := range []int64{0, 500, 999} {
		data = data[:0]
		for k := range int64(perFile * length) {
			i := file*perFile*length + k
			data = append(
				data,
				dataRow{
					State: []float32{float32(i), 1, 2},
					Time:  float32(k % length),
					Frame: k % length,
					Ep:    i / length,
					Index: i,
				},
			)
		}
		writeRows(
			t,
			filepath.Join(dir, fmt.Sprintf("data/chunk-000/file-%03d.parquet", file)),
			data,
			length,
		)
		writeText(
			t,
			filepath.Join(dir, fmt.Sprintf("videos/cam/chunk-000/file-%03d.mp4", file)),
			"",
		)
	}
	rows, data = nil, nil
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpuTime()
	d := mustOpen(t, dir)
	took := cpuTime() - start
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("opened %d episodes in %v of CPU; heap +%.1f MB, tables %.1f MB, allocated on the way "+
		"%.1f MB in %d objects", d.Info().Episodes, took.Round(time.Millisecond),
		float64(after.HeapAlloc-before.HeapAlloc)/1e6, float64(d.memoryBytes())/1e6,
		float64(after.TotalAlloc-before.TotalAlloc)/1e6, after.Mallocs-before.Mallocs)
	// There is no object per episode, on machines of any speed.
	if heap := int64(after.HeapAlloc) - int64(before.HeapAlloc); heap > 64<<20 ||
		after.Mallocs-before.Mallocs > episodes/2 || after.TotalAlloc-before.TotalAlloc > 128<<20 {
		t.Errorf("too much")
	}
	if took > 5*time.Second { // no parallel test has started yet
		t.Errorf("%v of CPU", took)
	}
	for i, f := range d.Info().Findings {
		t.Log(i, f.Code, f.Message)
	}
	if d.Info().Episodes != episodes || d.Info().Frames != episodes*length {
		t.Fatal(d.Info().Episodes, d.Info().Frames)
	}
	for _, e := range []int{0, 99, 50000, 99999} {
		b := gather(t, d, "index", rowsOf(d, e)[:2])
		if b[0] != byte(e*length) || b[8] != byte(e*length+1) {
			t.Errorf("episode %d: index %d", e, b[0])
		}
		ep, err := d.Episode(context.Background(), e)
		if err != nil || ep.Index != int64(e) ||
			strings.Join(ep.Tasks, "") != []string{"pick", "place"}[e%2] {
			t.Errorf("%+v %v", ep, err)
		}
	}
	if _, err := d.Times(context.Background(), 150, ""); err == nil {
		t.Error("a missing data file gave no error")
	} else {
		t.Log(err)
	}
}

// BenchmarkGather reads windows of 16 rows × 26 floats of two keys, like a policy's batch of 64.
func BenchmarkGather(b *testing.B) {
	for _, name := range []string{"g1_v30_exact", "g1_v21", "g1_h264_v30_bigdrift"} {
		b.Run(name, func(b *testing.B) {
			d := openReal(b, name)
			const batch, window = 64, 16
			rng := rand.New(rand.NewPCG(1, 2))
			rows := make([]robocache.Row, 0, batch*window)
			for range batch {
				e := rng.IntN(d.Info().Episodes)
				k := rng.IntN(d.Len(e))
				for w := range window {
					rows = append(rows, robocache.Row{Episode: e, Index: min(k+w, d.Len(e)-1)})
				}
			}
			dst := make([]byte, len(rows)*26*4)
			ctx := context.Background()
			b.SetBytes(int64(2 * len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				for _, key := range []string{"observation.state", "action"} {
					if err := d.Gather(ctx, key, rows, dst); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

// BenchmarkDecode reads a column of four episodes with an empty cache: footer, proof and pages.
func BenchmarkDecode(b *testing.B) {
	d := openReal(b, "g1_v30_exact")
	rows := rowsOf(d, 0, 1, 2, 3)
	dst := make([]byte, len(rows)*104)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		d.tables.cache.Clear()
		if err := d.Gather(b.Context(), "action", rows, dst); err != nil {
			b.Fatal(err)
		}
	}
}
