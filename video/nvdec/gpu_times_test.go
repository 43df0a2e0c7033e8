//go:build cgo

package nvdec

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/video"
)

// The tests below print decode rates with -v, for the clips that ROBOCACHE_NVDEC_LIMITS names.

// TestLimits prints the rate of the engines alone: sessions parse and decode one clip repeatedly,
// and map and unmap each frame without a copy. It then prints the rate with copies, and through
// pools.
func TestLimits(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	b := engines(t)
	timed(t, func(name string, f *video.File, packets [][]byte) {
		for _, way := range []string{"decode", "map", "copy"} {
			for _, sessions := range []int{1, 4, 7, 14, 28, 56} {
				frames, took, err := loop(b, &f.Index.Entries()[0], packets, sessions, way)
				if err != nil {
					t.Error(err)
					break
				}
				t.Logf(
					"%-16s %-7s %2d sessions %7.0f frames/s",
					name,
					way,
					sessions,
					float64(frames)/took.Seconds(),
				)
			}
		}
	})
}

func loop(
	b *Backend,
	e *video.SampleEntry,
	packets [][]byte,
	sessions int,
	way string,
) (frames int, took time.Duration, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var decoders []*decoder
	for range sessions {
		d, err := b.NewDecoder(e)
		if err != nil {
			return 0, 0, err
		}
		defer d.Close()
		decoders = append(decoders, d.(*decoder))
		if err := d.Send(packets[0], 0); err != nil { // creates the driver's decoder
			return 0, 0, err
		}
		d.Flush()
	}
	begin := time.Now()
	for _, d := range decoders {
		wg.Go(func() {
			n := 0
			for time.Since(begin) < 700*time.Millisecond {
				for i, p := range packets {
					failed := d.Send(p, int64(i))
					if _, _, ok, _ := receive(d); ok && failed == nil {
						n++
						switch way {
						case "map":
							var addr uintptr
							if addr, _, failed = b.driver.mapFrame(d.handle, d.frame.surface,
								&mapParams{progressive: 1, stream: d.stream}); failed == nil {
								failed = b.driver.unmapFrame(d.handle, addr)
							}
						case "copy":
							failed = d.frame.fetchToHost()
						}
					}
					if failed != nil {
						mu.Lock()
						err = failed
						mu.Unlock()
						return
					}
				}
				d.Flush()
			}
			mu.Lock()
			frames += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if way == "decode" { // count the frames that are still in the engines after they complete
		for _, d := range decoders {
			d.frame.onHost = false
			if failed := d.frame.fetchToHost(); failed != nil && err == nil {
				err = failed
			}
		}
	}
	return frames, time.Since(begin), err
}

// TestRandomTimes prints CPU time and rate of pools for random frames.
func TestRandomTimes(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	b := engines(t)
	timed(t, func(name string, f *video.File, _ [][]byte) {
		for _, workers := range []int{7, 14, 28} {
			pool := video.NewPoolOf(b, 4<<30)
			var wg sync.WaitGroup
			begin, used := time.Now(), cpuTime()
			before := pool.Stats()
			for round := range 2 { // the first round creates the decoders
				if round == 1 {
					begin, used, before = time.Now(), cpuTime(), pool.Stats()
				}
				for w := range workers {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(7, uint64(w)))
						dst := make([]byte, 3*4096*4096)
						for time.Since(begin) < 1500*time.Millisecond {
							err := pool.Decode(
								t.Context(),
								f,
								nil,
								video.Plan(f.Index, []int{r.IntN(f.Index.NumFrames())}),
								func(_ int, pic video.Frame) error {
									spec := &video.Spec{ChannelsFirst: true}
									n, err := pic.Bytes(spec)
									if err != nil {
										return err
									}
									return pic.Convert(spec, dst[:n])
								},
							)
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			}
			s, took := pool.Stats(), time.Since(begin)
			s.Delivered, s.Packets = s.Delivered-before.Delivered, s.Packets-before.Packets
			t.Logf("%-16s random frames to RGB, %2d workers: %6.0f frames/s (%.0f packets/s), "+
				"%.3f CPU s for 1,000; %d decoders", name, workers,
				float64(s.Delivered)/took.Seconds(), float64(s.Packets)/took.Seconds(),
				(cpuTime()-used).Seconds()/float64(s.Delivered)*1000, s.Opened)
			_ = pool.Close()
		}
	})
}

// TestSequentialTimes prints the rate of pools for whole clips in order, and the limit of the
// engines in the same run. It has as many callers as the loader, and converts each frame to RGB on
// the device.
func TestSequentialTimes(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	b := engines(t)
	timed(t, func(name string, f *video.File, packets [][]byte) {
		callers := 3 * b.Engines(f.Index.Entries()[0].Codec)
		for range 2 {
			limit := 0.0
			for _, sessions := range []int{callers, 2 * callers} {
				frames, took, err := loop(b, &f.Index.Entries()[0], packets, sessions, "map")
				if err != nil {
					t.Fatal(err)
				}
				limit = max(limit, float64(frames)/took.Seconds())
			}
			pool := video.NewPoolOf(b, 4<<30)
			var all []int
			for k := range f.Index.NumFrames() {
				all = append(all, k)
			}
			spec := &video.Spec{ChannelsFirst: true}
			run := func(d time.Duration) (frames int64, cpu, took time.Duration) {
				var wg sync.WaitGroup
				begin, used, before := time.Now(), cpuTime(), pool.Stats().Delivered
				for range callers {
					wg.Go(func() {
						// destinations differ, because overlapping results are not launched
						// together
						var dst [16][]byte
						defer func() {
							for _, m := range dst {
								if m != nil {
									b.Free(m)
								}
							}
						}()
						for time.Since(begin) < d {
							err := pool.Decode(
								t.Context(),
								f,
								nil,
								video.Plan(f.Index, all),
								func(k int, pic video.Frame) error {
									to := &dst[k%len(dst)]
									n, err := pic.Bytes(spec)
									if err == nil && *to == nil {
										*to, err = b.Alloc(n)
									}
									if err != nil {
										return err
									}
									return pic.(video.DeviceFrame).ConvertThere(spec, *to)
								},
							)
							if err != nil {
								t.Error(err)
								return
							}
						}
						if err := b.Wait(); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				return pool.Stats().Delivered - before, cpuTime() - used, time.Since(begin)
			}
			run(700 * time.Millisecond) // creates the decoders
			frames, cpu, took := run(1500 * time.Millisecond)
			rate := float64(frames) / took.Seconds()
			t.Logf(
				"%-16s in order, RGB on the device, %d callers: %6.0f frames/s, "+
					"%.1f %% of the limit's %.0f; %.3f CPU s for 1,000",
				name,
				callers,
				rate,
				100*rate/limit,
				limit,
				cpu.Seconds()/float64(frames)*1000,
			)
			_ = pool.Close()
		}
	})
}
