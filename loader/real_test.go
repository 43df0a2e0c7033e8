package loader_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// testdata opens a dataset of the shared test data, or skips with the reason.
func testdata(t testing.TB, name string) robocache.Dataset {
	t.Helper()
	path := realdata.Path(t, name)
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	ds, err := robocache.Open(context.Background(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// cpu is the CPU seconds of this process, user and system.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func benchmarkLoader(b *testing.B, name string, cfg loader.Config) {
	ds := testdata(b, name)
	ctx := context.Background()
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	batch, err := l.Next(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(batch.Bytes())
	batch.Release()
	b.ReportAllocs()
	b.ResetTimer()
	begin, start := cpu(), time.Now()
	samples := 0
	for range b.N {
		batch, err := l.Next(ctx)
		if err == io.EOF {
			batch, err = l.Next(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		samples += batch.Rows
		batch.Release()
	}
	b.StopTimer()
	b.ReportMetric((cpu()-begin)/float64(samples)*1000, "cpu-s/1000")
	b.ReportMetric(float64(samples)/time.Since(start).Seconds(), "samples/s")
	s := l.Stats()
	b.ReportMetric(float64(s.FramesDecoded)/float64(max(s.Frames, 1)), "decoded/frame")
}

func steps(n int, fps float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i) / fps
	}
	return out
}

// One camera, AV1 640×480 GOP 2, batch 32, global shuffle, uint8 (the decode floor is 2.2–2.7 CPU s
// per 1,000).
func BenchmarkLoaderAV1(b *testing.B) {
	benchmarkLoader(
		b,
		"g1_v30_exact",
		loader.Config{Order: loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 1}},
	)
}

// 8-frame windows of the camera and the state.
func BenchmarkLoaderAV1Windows(b *testing.B) {
	benchmarkLoader(
		b,
		"g1_v30_exact",
		loader.Config{
			Order: loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 1},
			Windows: loader.Windows{Deltas: loader.Deltas{
				{Key: "observation.images.cam_high", Offsets: back(8, 30)},
				{Key: "observation.state", Offsets: back(8, 30)},
			}},
		},
	)
}

func back(n int, fps float64) []float64 {
	out := steps(n, fps)
	for i := range out {
		out[i] -= float64(n-1) / fps
	}
	return out
}

// State and action windows of 16, no frames.
func BenchmarkLoaderNoVideo(b *testing.B) {
	w := steps(16, 30)
	benchmarkLoader(
		b,
		"g1_v30_exact",
		loader.Config{
			Order: loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 1},
			Windows: loader.Windows{
				Keys: []string{"observation.state", "action"},
				Deltas: loader.Deltas{
					{Key: "observation.state", Offsets: w},
					{Key: "action", Offsets: w},
				},
			},
		},
	)
}

// Allocations must not grow with the batch.
func BenchmarkLoaderNoVideo256(b *testing.B) {
	w := steps(16, 30)
	benchmarkLoader(
		b,
		"g1_v30_exact",
		loader.Config{
			Order: loader.Order{BatchSize: 256, Shuffle: loader.Global, Seed: 1},
			Windows: loader.Windows{
				Keys: []string{"observation.state", "action"},
				Deltas: loader.Deltas{
					{Key: "observation.state", Offsets: w},
					{Key: "action", Offsets: w},
				},
			},
		},
	)
}

// loader.L4 on real video: random items through a Map one by one equal the batches of a Loader, at
// any threads.
func TestRealMapEqualsLoader(t *testing.T) {
	for _, name := range []string{"g1_v30_exact", "g1_h264_v30", "gr00t_picknplace_v20", "g1_v21"} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			ds := testdata(t, name)
			l, err := loader.New(
				ctx,
				ds,
				loader.Config{
					Order:   loader.Order{BatchSize: 24, Shuffle: loader.Global, Seed: 3},
					Runtime: loader.Runtime{Threads: 4},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			m, err := loader.NewMap(ctx, ds, loader.Config{Runtime: loader.Runtime{Threads: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			for range 3 {
				b, err := l.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for range 6 {
					i := rng.IntN(b.Rows)
					one, err := m.Items(ctx, b.Indices[i:i+1])
					if err != nil {
						t.Fatal(err)
					}
					for k := range one.Tensors {
						n := len(one.Tensors[k].Data)
						if !bytes.Equal(one.Tensors[k].Data, b.Tensors[k].Data[i*n:(i+1)*n]) {
							t.Errorf(
								"%s of sample %d differs between the batch and the item",
								one.Tensors[k].Key,
								b.Indices[i],
							)
						}
					}
					for k := range one.Texts {
						if one.Texts[k].Values[0] != b.Texts[k].Values[i] {
							t.Errorf("%s of sample %d differs", one.Texts[k].Key, b.Indices[i])
						}
					}
					one.Release()
				}
				b.Release()
			}
		})
	}
}

// Whole epochs, opening included, so that no prefetched batch is left outside the window.
func BenchmarkEpoch(b *testing.B) {
	window := func(cam string, n int, fps float64) loader.Deltas {
		return loader.Deltas{
			{Key: cam, Offsets: back(n, fps)},
			{Key: "observation.state", Offsets: back(n, fps)},
		}
	}
	for _, c := range []struct {
		name, set string
		cfg       loader.Config
	}{
		{"AV1", "g1_v30_exact", loader.Config{Order: loader.Order{Shuffle: loader.Global}}},
		{"AV1file", "g1_v30_exact", loader.Config{}},
		{
			"AV1float",
			"g1_v30_exact",
			loader.Config{
				Order:  loader.Order{Shuffle: loader.Global},
				Images: loader.Images{ImageDType: "float32"},
			},
		},
		{
			"AV1windows8",
			"g1_v30_exact",
			loader.Config{
				Order:   loader.Order{Shuffle: loader.Global},
				Windows: loader.Windows{Deltas: window("observation.images.cam_high", 8, 30)},
			},
		},
		{
			"H264gop250",
			"gr00t_picknplace_v20",
			loader.Config{Order: loader.Order{Shuffle: loader.Global}},
		},
		{"H264", "g1_h264_v30", loader.Config{Order: loader.Order{Shuffle: loader.Global}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ds := testdata(b, c.set)
			ctx := context.Background()
			c.cfg.BatchSize, c.cfg.Seed = 32, 1
			b.ReportAllocs()
			begin, start := cpu(), time.Now()
			samples, batches := 0, int64(0)
			var first float64
			var s loader.Stats
			for range b.N {
				l, err := loader.New(ctx, ds, c.cfg)
				if err != nil {
					b.Fatal(err)
				}
				for {
					batch, err := l.Next(ctx)
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					samples += batch.Rows
					batch.Release()
				}
				s = l.Stats()
				first += s.FirstBatch
				batches += s.Batches
				l.Close()
			}
			b.ReportMetric((cpu()-begin)/float64(samples)*1000, "cpu-s/1000")
			b.ReportMetric(float64(samples)/time.Since(start).Seconds(), "samples/s")
			b.ReportMetric(first/float64(b.N), "s-to-first")
			b.ReportMetric(float64(s.FramesDecoded)/float64(max(s.Frames, 1)), "decoded/frame")
			b.ReportMetric(float64(s.BufferPeak)/(1<<20), "buffer-MiB")
		})
	}
}

// loader.L6, loader.L7 on real video, drifting timestamps included: each frame of a window is the
// single frame of its clamped row.
func TestRealWindows(t *testing.T) {
	for _, name := range []string{"g1_h264_v30_bigdrift", "g1_v30_drift"} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			ds := testdata(t, name)
			var cam string
			for _, f := range ds.Info().Features {
				if f.Kind == robocache.KindVideo {
					cam = f.Key
				}
			}
			fps := ds.Info().FPS.Float()
			offsets := []int{-7, -3, -1, 0, 2}
			window := make([]float64, len(offsets))
			for i, o := range offsets {
				window[i] = float64(o) / fps
			}
			l, err := loader.New(
				ctx,
				ds,
				loader.Config{
					Order:   loader.Order{BatchSize: 16, Shuffle: loader.Global},
					Runtime: loader.Runtime{Threads: 3},
					Windows: loader.Windows{
						Keys:   []string{cam, "index"},
						Deltas: loader.Deltas{{Key: cam, Offsets: window}},
					},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			m, err := loader.NewMap(
				ctx,
				ds,
				loader.Config{
					Runtime: loader.Runtime{Threads: 1},
					Windows: loader.Windows{Keys: []string{cam}},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for range 2 {
				b, err := l.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				rows, err := l.Rows(b.Indices)
				if err != nil {
					t.Fatal(err)
				}
				frame := len(b.Tensor(cam).Data) / b.Rows / len(offsets)
				for i := 0; i < b.Rows; i += 5 {
					for k, o := range offsets {
						row := rows[i].Index + o
						pad := row < 0 || row >= ds.Len(rows[i].Episode)
						row = min(max(row, 0), ds.Len(rows[i].Episode)-1)
						one, err := m.Items(ctx, []int64{b.Indices[i] + int64(row-rows[i].Index)})
						if err != nil {
							t.Fatal(err)
						}
						at := (i*len(offsets) + k) * frame
						if !bytes.Equal(one.Tensors[0].Data, b.Tensor(cam).Data[at:at+frame]) {
							t.Errorf("sample %d offset %d is another frame", b.Indices[i], o)
						}
						if got := b.Tensor(cam + "_is_pad").Data[i*len(offsets)+
							k]; (got == 1) != pad {
							t.Errorf("sample %d offset %d: pad %d", b.Indices[i], o, got)
						}
						one.Release()
					}
				}
				b.Release()
			}
		})
	}
}

// loader.L11 on real video: closing in the middle leaves no goroutine and no open file behind.
func TestRealCloseLeavesNothing(t *testing.T) {
	ctx := context.Background()
	ds := testdata(t, "g1_v30_exact")
	files := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(e)
	}
	once := func(wait time.Duration) {
		l, err := loader.New(
			ctx,
			ds,
			loader.Config{
				Order:   loader.Order{BatchSize: 8, Shuffle: loader.Global},
				Runtime: loader.Runtime{Threads: 3},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		for {
			b, err := l.Next(short)
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("not the end of its context: %v", err)
				}
				break
			}
			b.Release()
		}
		l.Close()
	}
	once(200 * time.Millisecond)
	goroutines, open := runtime.NumGoroutine(), files()
	for k := range 8 {
		once(time.Duration(20*k) * time.Millisecond)
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		g, o := runtime.NumGoroutine(), files()
		if g <= goroutines && o <= open+1 {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%d goroutines and %d files, %d and %d before", g, o, goroutines, open)
		}
	}
}

// Bad files: an error that names the place, or skipped, counted and listed, the same at any number
// of threads.
func TestRealBadFiles(t *testing.T) {
	ctx := context.Background()
	testdata(t, "g1_v21")
	src := testdata(t, "g1_v21").Info().URI
	src = strings.TrimPrefix(src, "file://")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Skip(err)
	}
	var mp4s []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".mp4") {
			mp4s = append(mp4s, path)
		}
		return err
	})
	if err != nil || len(mp4s) < 3 {
		t.Skipf("%d mp4s, %v", len(mp4s), err)
	}
	raw, err := os.ReadFile(mp4s[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mp4s[1], raw[:len(raw)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mp4s[2]); err != nil {
		t.Fatal(err)
	}
	epoch := func(cfg loader.Config) (samples []int64, s loader.Stats, err error) {
		ds, err := robocache.Open(ctx, dir, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		cfg.BatchSize, cfg.Shuffle, cfg.ImageSize = 16, loader.Global, []int{24, 32}
		l, err := loader.New(ctx, ds, cfg)
		if err != nil {
			return nil, s, err
		}
		defer l.Close()
		for {
			b, err := l.Next(ctx)
			if err != nil {
				return samples, l.Stats(), err
			}
			samples = append(samples, b.Indices...)
			b.Release()
		}
	}
	_, _, err = epoch(loader.Config{})
	if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrNotFound) {
		t.Fatalf("two videos are bad, and the epoch ends with %v", err)
	}
	for _, s := range []string{"episode", "file"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not name the %s", err, s)
		}
	}
	one, s1, err := epoch(
		loader.Config{
			Order:   loader.Order{OnBadEpisode: "skip"},
			Runtime: loader.Runtime{Threads: 1, Prefetch: 1},
		},
	)
	if err != io.EOF {
		t.Fatal(err)
	}
	two, s2, err := epoch(
		loader.Config{
			Order:   loader.Order{OnBadEpisode: "skip"},
			Runtime: loader.Runtime{Threads: 4, Prefetch: 5},
		},
	)
	if err != io.EOF || !slices.Equal(one, two) || s1.Skipped != s2.Skipped {
		t.Errorf("the order of the good samples depends on threads: %v", err)
	}
	if s1.Skipped == 0 || len(s1.BadEpisodes)+len(s1.Warnings) < 2 {
		t.Errorf("%d skipped, %v, %v", s1.Skipped, s1.BadEpisodes, s1.Warnings)
	}
	t.Logf("%d given, %d skipped, bad: %+v", len(one), s1.Skipped, s1.BadEpisodes)
}

// A Map on a timeline gives what Episode's align gives, to the bit: values, masks, and the rows of
// frames.
func TestRealTimelineEqualsAlign(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"g1_v30_exact", "gr00t_picknplace_v20"} {
		for _, hz := range []robocache.Rate{
			{Num: 50, Den: 1},
			{Num: 7, Den: 1},
			{Num: 30, Den: 1},
		} {
			ds := testdata(t, name)
			var keys []string
			for _, f := range ds.Info().Features {
				if f.Kind == robocache.KindNumeric && !f.Default {
					keys = append(keys, f.Key)
				}
			}
			const episode = 2
			want, err := align.Episode(ctx, ds, episode, align.Config{HZ: hz, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			m, err := loader.NewMap(
				ctx,
				ds,
				loader.Config{
					Windows: loader.Windows{Hz: &hz, Keys: keys},
					Order:   loader.Order{Episodes: []int{episode}},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			if m.Len() != int64(len(want.Times)) {
				t.Fatalf(
					"%s at %v: %d samples, align gives %d rows",
					name,
					hz,
					m.Len(),
					len(want.Times),
				)
			}
			all := make([]int64, m.Len())
			for i := range all {
				all[i] = int64(i)
			}
			b, err := m.Items(ctx, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				s := want.Stream(k)
				if !bytes.Equal(b.Tensor(k).Data, s.Data) {
					t.Errorf("%s at %v: %s differs from align", name, hz, k)
				}
				mask := b.Tensor(k + "_is_pad").Data
				for i, v := range s.Valid {
					if mask[i] != 1-v {
						t.Errorf("%s at %v: the mask of %s differs at %d", name, hz, k, i)
						break
					}
				}
			}
			b.Release()
			m.Close()
		}
	}
}

// One item by number, as ds[i] asks for it.
func BenchmarkMapItem(b *testing.B) {
	for name, cfg := range map[string]loader.Config{
		"video": {},
		"numbers": {
			Windows: loader.Windows{
				Keys: []string{"observation.state", "action", "timestamp", "task"},
			},
		},
	} {
		b.Run(name, func(b *testing.B) {
			ds := testdata(b, "g1_v30_exact")
			m, err := loader.NewMap(context.Background(), ds, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			for range b.N {
				batch, err := m.Items(context.Background(), []int64{rng.Int64N(m.Len())})
				if err != nil {
					b.Fatal(err)
				}
				batch.Release()
			}
		})
	}
}
