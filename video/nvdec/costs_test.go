//go:build cgo

package nvdec

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/video"
)

// spent returns the CPU time of the calling thread.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(1, &u) // RUSAGE_THREAD
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type cost struct{ wall, cpu time.Duration }

// TestCosts prints the wall time and CPU time of each step of decoding a frame.
func TestCosts(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints times: -v")
	}
	b := engines(t)
	timed(t, func(name string, f *video.File, packets [][]byte) {
		for _, n := range []int{1, 14} {
			steps := []string{
				"open",
				"first",
				"send",
				"await",
				"map",
				"copy",
				"unmap",
				"there",
				"keep",
				"done",
				"planes",
				"rgb",
			}
			total := map[string]cost{}
			frames := 0
			var mu sync.Mutex
			var wg sync.WaitGroup
			begin := time.Now()
			for range n {
				wg.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					own, done := map[string]cost{}, 0
					step := func(name string, fn func() error) {
						w, c := time.Now(), spent()
						if err := fn(); err != nil {
							t.Error(name, err)
						}
						x := own[name]
						own[name] = cost{x.wall + time.Since(w), x.cpu + spent() - c}
					}
					var d *decoder
					step("open", func() error {
						x, err := b.NewDecoder(&f.Index.Entries()[0])
						if err == nil {
							d = x.(*decoder)
						}
						return err
					})
					if d == nil {
						return
					}
					defer d.Close()
					step("first", func() error { return d.Send(packets[0], 0) })
					d.Flush()
					var planes, rgb []byte
					there, err := b.Alloc(3 * int(d.format.width) * int(d.format.height))
					if err != nil {
						t.Error(err)
						return
					}
					defer b.Free(there)
					for time.Since(begin) < 1200*time.Millisecond {
						for i, p := range packets {
							step("send", func() error { return d.Send(p, int64(i)) })
							_, _, ok, _ := receive(d)
							if !ok {
								continue
							}
							var addr uintptr
							var pitch int
							step(
								"await",
								func() error { d.awaitSurface(d.frame.surface, 1); return nil },
							)
							step("map", func() (err error) {
								addr, pitch, err = b.driver.mapFrame(
									d.handle,
									d.frame.surface,
									&mapParams{progressive: 1, stream: d.stream},
								)
								return err
							})
							if d.frame.hostBytes == nil {
								d.frame.hostBytes, _ = b.driver.allocHost(
									pitch * int(d.format.height) * 3 / 2,
								)
								d.frame.mapping.pitch = pitch
							}
							step(
								"copy",
								func() error {
									return b.driver.copyToHost(d.frame.hostBytes, addr, d.stream)
								},
							)
							step(
								"unmap",
								func() error { return b.driver.unmapFrame(d.handle, addr) },
							)
							d.frame.onHost = true
							step("there", func() error {
								d.frame.mapping = mapping{}
								return d.frame.ConvertThere(&video.Spec{ChannelsFirst: true}, there)
							})
							step("keep", func() error { return d.frame.KeepPlanes(there) })
							step(
								"done",
								func() error {
									return errors.Join(
										d.backend.queue.Flush(),
										d.unmapLaunched(),
										b.Wait(),
									)
								},
							)
							info, _ := d.frame.PlaneInfo()
							if planes == nil {
								planes, rgb = make([]byte, info.Bytes()),
									make([]byte, 3*info.Width*info.Height)
							}
							step("planes", func() error { return d.frame.CopyPlanes(planes) })
							step(
								"rgb",
								func() error {
									return video.ConvertPlanes(
										info,
										planes,
										&video.Spec{ChannelsFirst: true},
										rgb,
									)
								},
							)
							done++
						}
						d.Flush()
					}
					mu.Lock()
					defer mu.Unlock()
					frames += done
					for k, v := range own {
						total[k] = cost{total[k].wall + v.wall, total[k].cpu + v.cpu}
					}
				})
			}
			wg.Wait()
			for _, s := range steps {
				per := time.Duration(max(frames, 1))
				if s == "open" || s == "first" {
					per = time.Duration(n)
				}
				t.Logf(
					"%-12s %2d sessions %-7s %8.1f µs, of a core %8.1f µs",
					name,
					n,
					s,
					float64(total[s].wall/per)/1e3,
					float64(total[s].cpu/per)/1e3,
				)
			}
			t.Logf("%d frames", frames)
		}
	})
}
