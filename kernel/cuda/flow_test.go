package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// flow sends pieces through, in a device that adds to each word.
func flow(t *testing.T, d *Device) {
	t.Helper()
	const n, pieces = 1000, 20
	l, err := probe(d, "probe_add", probeParams{n: n, add: 5}, 128, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.NewFlow(3, n*4, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := d.HostAlloc(pieces * n * 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.HostFree(in)
	out, err := d.HostAlloc(pieces * n * 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.HostFree(out)
	for i := range pieces * n {
		binary.LittleEndian.PutUint32(in[i*4:], uint32(i))
	}
	for i := range pieces {
		from, to := i*n*4, (i+1)*n*4
		if err := f.Do([][]byte{in[from:to]}, [][]byte{out[from:to]}, func(a []uintptr, s uintptr) error { return l.Run(a[:1], s) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range pieces * n {
		if got := binary.LittleEndian.Uint32(out[i*4:]); got != uint32(i+5) {
			t.Fatalf("word %d: %d", i, got)
		}
	}
	if err := f.Do([][]byte{in}, nil, nil); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("a piece that does not fit:", err)
	}
	if _, err := d.NewFlow(0, 5); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if _, err := d.NewFlow(2, 1<<50); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Error(err)
	}
}

func TestFlowOnGPU(t *testing.T) { flow(t, device(t)) }

// trajectories is the resample of the bars: 100 → 50 rows of 32 bfloat16, timestamps of each trajectory its own.
func trajectories(b int) *kernel.FuseOp {
	bf, ns := robocache.BFloat16, robocache.Int64
	return &kernel.FuseOp{
		Series:  []kernel.Series{{Name: "state", Values: kernel.Tensor{DType: bf, Shape: []int{b, 100, 32}}, Times: kernel.Tensor{DType: ns, Shape: []int{b, 100}}}},
		Targets: kernel.Tensor{DType: ns, Shape: []int{50}}, Out: kernel.Tensor{DType: bf, Shape: []int{b, 50, 32}},
	}
}

// fill makes trajectories that differ, in memory of the host.
func fillTrajectories(values, times []byte, b int) {
	x := uint32(1)
	for i := range b * 100 * 32 {
		x = x*1664525 + 1013904223
		binary.LittleEndian.PutUint16(values[i*2:], uint16(math.Float32bits(float32(int32(x))/(1<<30))>>16))
	}
	for i := range b {
		for s := range 100 {
			binary.LittleEndian.PutUint64(times[(i*100+s)*8:], uint64(s*10_000_000+i%977*1000))
		}
	}
}

func targets50() []byte {
	b := make([]byte, 50*8)
	for i := range 50 {
		binary.LittleEndian.PutUint64(b[i*8:], uint64(i*20_000_000+3_000_000))
	}
	return b
}

func prepareFuse(t *testing.T, d *Device, op *kernel.FuseOp) *Launch {
	t.Helper()
	l, err := d.Prepare(op)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTrajectories resamples a million trajectories from page-locked memory of the host and back, copies and kernels overlapped, and compares
// some with the reference. The host's memory holds 131,072 of them, which go round.
func TestTrajectories(t *testing.T) {
	d := device(t)
	const ring = 1 << 17
	total := 1 << 20
	if !testing.Verbose() {
		total = ring
	}
	const inRow, timeRow, outRow = 100 * 32 * 2, 100 * 8, 50 * 32 * 2
	host := func(n int) []byte {
		b, err := d.HostAlloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.HostFree(b) })
		return b
	}
	values, times, out := host(ring*inRow), host(ring*timeRow), host(ring*outRow)
	fillTrajectories(values, times, ring)
	targets := host(50 * 8)
	copy(targets, targets50())
	for _, c := range []struct{ piece, slots int }{{512, 4}, {1024, 4}, {2048, 3}, {4096, 3}, {4096, 4}, {8192, 3}, {16384, 3}} {
		l := prepareFuse(t, d, trajectories(c.piece))
		f, err := d.NewFlow(c.slots, c.piece*inRow, c.piece*timeRow, 50*8, c.piece*outRow)
		if err != nil {
			t.Fatal(err)
		}
		run := func(n int) time.Duration {
			clear(out)
			begin := time.Now()
			for at := 0; at < n; at += c.piece {
				i := at % ring
				err := f.Do([][]byte{values[i*inRow : (i+c.piece)*inRow], times[i*timeRow : (i+c.piece)*timeRow], targets},
					[][]byte{nil, nil, nil, out[i*outRow : (i+c.piece)*outRow]}, l.Run)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Wait(); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		run(ring)
		took := run(total)
		f.Close()
		in, back := float64(total)*(inRow+timeRow)/1e9, float64(total)*outRow/1e9
		t.Logf("%d trajectories, pieces of %d, %d at once: %v, %.1f GB/s in, %.1f GB/s back, %.1f GB/s together", total, c.piece, c.slots, took.Round(time.Microsecond), in/took.Seconds(), back/took.Seconds(), (in+back)/took.Seconds())
		if err := compareTrajectories(values, times, out, ring); err != nil {
			t.Fatal(err)
		}
	}
}

// compareTrajectories looks at some of n against the reference.
func compareTrajectories(values, times, out []byte, n int) error {
	for _, i := range []int{0, 1, n / 3, n - 1} {
		op := trajectories(1)
		op.Series[0].Values.Data, op.Series[0].Times.Data = values[i*6400:(i+1)*6400], times[i*800:(i+1)*800]
		op.Targets.Data, op.Out.Data = targets50(), make([]byte, 3200)
		if err := (kernel.Reference{}).Fuse(op); err != nil {
			return err
		}
		if string(op.Out.Data) != string(out[i*3200:(i+1)*3200]) {
			return fmt.Errorf("trajectory %d is not what the reference gives", i)
		}
	}
	return nil
}

// TestShards resamples on each device what it holds: how near two devices come to twice one, resident and fed from the host.
func TestShards(t *testing.T) {
	device(t)
	n, err := Count()
	if err != nil || n < 2 {
		t.Skip("needs two devices: ", n, err)
	}
	const b, calls = 1 << 16, 200
	type shard struct {
		d     *Device
		l     *Launch
		addrs []uintptr
		s     uintptr
	}
	shards := make([]shard, 2)
	values, times := make([]byte, b*6400), make([]byte, b*800)
	fillTrajectories(values, times, b)
	for i := range shards {
		d, err := Open(i)
		if err != nil {
			t.Fatal(err)
		}
		sh := shard{d: d, l: prepareFuse(t, d, trajectories(b)), s: stream(t, d)}
		for _, m := range [][]byte{values, times, targets50(), make([]byte, b*3200)} {
			a := words(t, d, len(m)/4)
			if err := d.CopyIn(a, m); err != nil {
				t.Fatal(err)
			}
			sh.addrs = append(sh.addrs, a)
		}
		shards[i] = sh
	}
	timed := func(who []shard) time.Duration {
		best := time.Duration(math.MaxInt64)
		for range 5 {
			var wg sync.WaitGroup
			begin := time.Now()
			for _, sh := range who {
				wg.Go(func() {
					for range calls {
						if err := sh.l.Run(sh.addrs, sh.s); err != nil {
							t.Error(err)
							return
						}
					}
					if err := sh.d.Wait(sh.s); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			best = min(best, time.Since(begin))
		}
		return best
	}
	one, other, both := timed(shards[:1]), timed(shards[1:]), timed(shards)
	bytes := float64(b*(6400+800+3200)) * calls
	t.Logf("resident, %d trajectories a device: one %v, the other %v (%.0f, %.0f GB/s), both at once %v: %.1f %% of twice one", b, one, other, bytes/one.Seconds()/1e9, bytes/other.Seconds()/1e9, both, 100*max(one, other).Seconds()/both.Seconds())
	out := make([]byte, b*3200)
	for _, sh := range shards {
		if err := sh.d.CopyOut(out, sh.addrs[3]); err != nil {
			t.Fatal(err)
		}
		if err := compareTrajectories(values, times, out, b); err != nil {
			t.Fatal(err)
		}
	}
	// Fed from the host: each device its own flow.
	const ring, piece = 1 << 15, 4096
	feed := func(ds ...*Device) time.Duration {
		var wg, ready, done sync.WaitGroup
		start := make(chan bool)
		for _, d := range ds {
			ready.Add(1)
			done.Add(1)
			wg.Go(func() {
				v, e1 := d.HostAlloc(ring * 6400)
				s, e2 := d.HostAlloc(ring * 800)
				o, e3 := d.HostAlloc(ring * 3200)
				g, e4 := d.HostAlloc(400)
				f, e5 := d.NewFlow(3, piece*6400, piece*800, 400, piece*3200)
				if err := errors.Join(e1, e2, e3, e4, e5); err != nil {
					t.Error(err)
					ready.Done()
					done.Done()
					return
				}
				copy(g, targets50())
				fillTrajectories(v, s, ring)
				l := prepareFuse(t, d, trajectories(piece))
				run := func(n int) {
					for at := 0; at < n; at += piece {
						i := at % ring
						if err := f.Do([][]byte{v[i*6400 : (i+piece)*6400], s[i*800 : (i+piece)*800], g}, [][]byte{nil, nil, nil, o[i*3200 : (i+piece)*3200]}, l.Run); err != nil {
							t.Error(err)
							return
						}
					}
					if err := f.Wait(); err != nil {
						t.Error(err)
					}
				}
				run(ring)
				ready.Done()
				<-start
				run(1 << 19)
				done.Done()
				if err := compareTrajectories(v, s, o, ring); err != nil {
					t.Error(err)
				}
				f.Close()
				for _, b := range [][]byte{v, s, o, g} {
					d.HostFree(b)
				}
			})
		}
		ready.Wait()
		begin := time.Now()
		close(start)
		done.Wait()
		took := time.Since(begin)
		wg.Wait()
		return took
	}
	alone, together := feed(shards[0].d), feed(shards[0].d, shards[1].d)
	gb := float64(1<<19) * 10400 / 1e9
	t.Logf("fed from the host, 524,288 trajectories a device: one %v (%.1f GB/s both ways), two %v (%.1f GB/s): %.1f %% of twice one", alone, gb/alone.Seconds(), together, 2*gb/together.Seconds(), 100*alone.Seconds()/together.Seconds())
}
