package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/video"
)

// reading is one way of getting random frames of a dataset's videos: the loader's, without the loader.
type reading struct {
	lib    *video.Library
	pool   *video.Pool
	paths  []string
	counts []int // frames a file
	ahead  bool  // fetch, then decode
}

func newReading(t testing.TB, uri string, paths []string, ahead bool) *reading {
	t.Helper()
	s, err := store.Open(uri)
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{lib: video.NewLibrary(s.Open, 0), pool: video.NewPool(0), paths: paths, ahead: ahead}
	t.Cleanup(func() { r.pool.Close(); r.lib.Close(); store.Close(s) })
	for _, p := range paths {
		f, err := r.lib.Acquire(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		r.counts = append(r.counts, f.Index.NumFrames())
		f.Release()
	}
	return r
}

// task is what a horizon wants of one file: fetched, where that is asked for, before it comes to a decoder.
type task struct {
	file    *video.File
	groups  []video.Group
	fetched *video.Fetched
	left    sync.WaitGroup
}

// run decodes frames in horizons of size, on two goroutines, and converts each to RGB. It gives the sum of all pixels' first bytes, so
// that two ways can be compared.
func (r *reading) run(t testing.TB, horizons [][]int, size int) (sum uint64) {
	t.Helper()
	type unit struct {
		t *task
		g video.Group
	}
	units := make(chan unit, 4*size)
	var total sync.Mutex
	var decoders sync.WaitGroup
	for range 2 {
		decoders.Go(func() {
			spec := video.Spec{ChannelsFirst: true}
			var dst []byte
			var own uint64
			for u := range units {
				err := r.pool.Decode(t.Context(), u.t.file, u.t.fetched, []video.Group{u.g}, func(k int, pic video.Frame) error {
					n, err := pic.Bytes(&spec)
					if err != nil {
						return err
					}
					dst = slices.Grow(dst[:0], n)[:n]
					if err := pic.Convert(&spec, dst); err != nil {
						return err
					}
					own += uint64(dst[n/2]) + uint64(dst[n/3])
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				u.t.left.Done()
			}
			total.Lock()
			sum += own
			total.Unlock()
		})
	}
	ahead := make(chan []*task, 1) // one horizon is fetched while another is decoded
	go func() {
		defer close(ahead)
		for _, wanted := range horizons {
			ahead <- r.plan(t, wanted)
		}
	}()
	for tasks := range ahead {
		for _, k := range tasks {
			for _, g := range k.groups {
				units <- unit{k, g}
			}
		}
		for _, k := range tasks {
			k.left.Wait()
			if k.fetched != nil {
				k.fetched.Release()
			}
			k.file.Release()
		}
	}
	close(units)
	decoders.Wait()
	return sum
}

func (r *reading) plan(t testing.TB, wanted []int) []*task {
	byFile := make([][]int, len(r.paths))
	for _, k := range wanted {
		f := 0
		for k >= r.counts[f] {
			k -= r.counts[f]
			f++
		}
		byFile[f] = append(byFile[f], k)
	}
	var tasks []*task
	var wg sync.WaitGroup
	for f, ordinals := range byFile {
		if len(ordinals) == 0 {
			continue
		}
		file, err := r.lib.Acquire(t.Context(), r.paths[f])
		if err != nil {
			t.Error(err)
			continue
		}
		k := &task{file: file, groups: video.Plan(file.Index, ordinals)}
		k.left.Add(len(k.groups))
		tasks = append(tasks, k)
		if r.ahead {
			wg.Go(func() {
				var err error
				if k.fetched, err = video.Fetch(t.Context(), k.file, k.groups); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	return tasks
}

// cpuTime is what this process has used of the cores: a busy machine makes it no longer.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRemoteDecode reads random single frames (AV1 g=2, global shuffle, horizons of four batches of 32) from disk and over http
// at 5 ms a request, in turns, on two decoding goroutines. The server runs in this process: its CPU counts.
// One operation is one epoch each way; the metrics are over all.
func BenchmarkRemoteDecode(b *testing.B) {
	decoders(b)
	dir := realdata.Path(b, "g1_v30_exact")
	found, err := filepath.Glob(filepath.Join(dir, "videos", "*", "*", "*.mp4"))
	if err != nil || len(found) == 0 {
		b.Skip("no videos: ", err)
	}
	var paths []string
	for _, p := range found {
		rel, _ := filepath.Rel(dir, p)
		paths = append(paths, filepath.ToSlash(rel))
	}
	for _, latency := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		b.Run(fmt.Sprint(latency), func(b *testing.B) {
			srv, err := loopback.Serve(dir, loopback.Options{Latency: latency})
			if err != nil {
				b.Fatal(err)
			}
			defer srv.Close()
			local, remote := newReading(b, dir, paths, false), newReading(b, srv.URL, paths, true)
			frames := 0
			for _, n := range local.counts {
				frames += n
			}
			var spent, cpu [2]time.Duration
			samples := 0
			requests, bytes := srv.Requests(), srv.Bytes()
			b.ResetTimer()
			for i := range b.N {
				order := rand.New(rand.NewPCG(uint64(i), 1)).Perm(frames)
				var horizons [][]int
				for h := range slices.Chunk(order, 128) {
					horizons = append(horizons, h)
				}
				var sums [2]uint64
				for k := range 2 {
					way := (i + k) % 2
					begin, used := time.Now(), cpuTime()
					sums[way] = []*reading{local, remote}[way].run(b, horizons, 128)
					spent[way] += time.Since(begin)
					cpu[way] += cpuTime() - used
				}
				if sums[0] != sums[1] {
					b.Fatal("other pixels over http")
				}
				samples += frames
			}
			per := func(v float64) float64 { return v / float64(samples) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(samples)/spent[0].Seconds(), "local-samples/s")
			b.ReportMetric(float64(samples)/spent[1].Seconds(), "http-samples/s")
			b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "http/local")
			b.ReportMetric(1000*per(cpu[0].Seconds()), "local-cpu-s/1000")
			b.ReportMetric(1000*per(cpu[1].Seconds()), "http-cpu-s/1000")
			b.ReportMetric(per(float64(srv.Requests()-requests)), "requests/sample")
			b.ReportMetric(per(float64(srv.Bytes()-bytes)), "sent-B/sample")
			s := remote.pool.Stats()
			b.ReportMetric(per(float64(s.BytesNeeded)), "needed-B/sample")
		})
	}
}

// BenchmarkRemoteLoader gives epochs of the loader from disk and over http, in turns: batches of 32, global shuffle, cold, two threads.
// The server runs in this process: its CPU counts.
func BenchmarkRemoteLoader(b *testing.B) {
	decoders(b)
	dir := realdata.Path(b, "g1_v30_exact")
	for _, latency := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		b.Run(fmt.Sprint(latency), func(b *testing.B) {
			srv, err := loopback.Serve(dir, loopback.Options{Latency: latency})
			if err != nil {
				b.Fatal(err)
			}
			defer srv.Close()
			var spent, cpu [2]time.Duration
			var loaders [2]*loader.Loader
			for i, uri := range []string{dir, srv.URL} {
				l, err := loader.New(b.Context(), open(b, uri), loader.Config{Order: loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 3, DropLast: true}, Memory: loader.Memory{Threads: 2}})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				loaders[i] = l
			}
			requests, bytes := srv.Requests(), srv.Bytes()
			samples := 0
			b.ResetTimer()
			for i := range b.N {
				for k := range 2 {
					way := (i + k) % 2
					begin, used := time.Now(), cpuTime()
					for {
						batch, err := loaders[way].Next(b.Context())
						if err == io.EOF {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
						if way == 0 {
							samples += batch.Rows
						}
						batch.Release()
					}
					spent[way] += time.Since(begin)
					cpu[way] += cpuTime() - used
				}
			}
			per := func(v float64) float64 { return v / float64(samples) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(samples)/spent[0].Seconds(), "local-samples/s")
			b.ReportMetric(float64(samples)/spent[1].Seconds(), "http-samples/s")
			b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "http/local")
			b.ReportMetric(1000*per(cpu[0].Seconds()), "local-cpu-s/1000")
			b.ReportMetric(1000*per(cpu[1].Seconds()), "http-cpu-s/1000")
			b.ReportMetric(per(float64(srv.Requests()-requests)), "requests/sample")
			b.ReportMetric(per(float64(srv.Bytes()-bytes)), "sent-B/sample")
		})
	}
}
