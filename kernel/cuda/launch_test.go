//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// TestLaunch checks that a Launch writes addresses, runs its calls in order, and can run again with
// other addresses.
func TestLaunch(t *testing.T) {
	d := simulator(t, sim.Options{Seed: 1, Checked: true}, "probe")
	const n = 1000
	var addrs [2]uintptr
	for i := range addrs {
		a, err := d.Alloc(n * 4)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Free(a)
		if err := d.Clear(a, n*4); err != nil {
			t.Fatal(err)
		}
		addrs[i] = a
	}
	p, q := probeParams{n: n, add: 3}, probeParams{n: n, add: 4}
	l := &Launch{
		op:       "test",
		launcher: d.launcher,
		sizes:    []uintptr{4, 4},
		bindings: []binding{{call: 0, tensor: 0}, {call: 1, tensor: 1}, {call: 2, tensor: 1}},
	}
	l.calls = []call{
		{kernel: "probe_add", grid: 4, block: 256, params: paramsOf(&p)},
		{kernel: "probe_early", grid: 8, block: 128, params: paramsOf(&q), early: true},
		{kernel: "probe_early", grid: 0, block: 128, params: paramsOf(&q)},
	}
	adjusted := 0
	l.adjust = append(l.adjust, func(got []uintptr) {
		if got[0] == 0 {
			t.Error("adjust is given", got)
		}
		adjusted++
		q.add = uint32(adjusted)
	})
	l, err := l.finishPrepare()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(addrs[:], 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Run([]uintptr{addrs[1], addrs[0]}, 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range [2][2]uint32{{5, 5}, {4, 4}} {
		b := make([]byte, n*4)
		if err := d.CopyOut(b, addrs[i]); err != nil {
			t.Fatal(err)
		}
		if first, last := binary.LittleEndian.Uint32(b),
			binary.LittleEndian.Uint32(b[n*4-4:]); first != want[0] || last != want[1] {
			t.Errorf("tensor %d: %d … %d, not %v", i, first, last, want)
		}
	}
	if adjusted != 2 {
		t.Error("adjusted", adjusted, "times")
	}
	if err := l.Run(addrs[:1], 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("an address is missing:", err)
	}
}

// TestLaunchErrors covers cuda.G4 (a check that waits is not captured) and cuda.G6 (an error names
// the launch).
func TestLaunchErrors(t *testing.T) {
	d := simulator(t, sim.Options{}, "probe")
	s := d.launcher.(*simulated)
	a, err := d.Alloc(40)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(a)
	l, err := probe(d, "probe_add", probeParams{n: 10, add: 1}, 32, 0)
	if err != nil {
		t.Fatal(err)
	}
	checks := 0
	l.after = func([]uintptr, uintptr) error { checks++; return nil }
	s.capture = true
	if err := l.Run([]uintptr{a}, 0); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "capture") {
		t.Error(err)
	}
	s.capture = false
	if err := l.Run([]uintptr{a}, 0); err != nil || checks != 1 {
		t.Error(err, checks)
	}
	if _, err := probe(d, "probe_missing", probeParams{n: 1}, 32, 0); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "probe_missing") {
		t.Error(err)
	}
	var big struct {
		p probeParams
		_ [maxParams]byte
	}
	l = &Launch{
		op:       "test",
		launcher: d.launcher,
		calls:    []call{{kernel: "probe_add", params: paramsOf(&big)}},
	}
	if _, err := l.finishPrepare(); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "4096") {
		t.Error(err)
	}
	k := call{kernel: "k", grid: 5, block: 6, shared: 7, args: func() string { return "B 3, T 4" }}
	if got := k.String(); got != "k<<<5, 6, 7>>>(B 3, T 4)" {
		t.Error(got)
	}
}

// TestTables checks that tables live as long as the Launch.
func TestTables(t *testing.T) {
	d := simulator(t, sim.Options{Checked: true}, "probe")
	l := &Launch{op: "test", launcher: d.launcher}
	p := probeParams{n: 2, add: 5}
	l.calls = []call{{kernel: "probe_add", grid: 1, block: 32, params: paramsOf(&p)}}
	var err error
	if p.out, err = l.uploadTable([]byte{1, 0, 0, 0, 2, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if l, err = l.finishPrepare(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if err := errors.Join(l.Run(nil, 0), d.CopyOut(b, p.out)); err != nil || b[0] != 6 ||
		b[4] != 7 {
		t.Error(err, b)
	}
	// A captured launch is replayed after the Launch is collected.
	d.launcher.(*simulated).capture = true
	if err := l.Run(nil, 0); err != nil {
		t.Fatal(err)
	}
	d.launcher.(*simulated).capture = false
	l.Close()
	l.Close()
	// access to freed memory would be a fault
	if err := d.CopyOut(b, p.out); err != nil || b[0] != 11 {
		t.Error(err, b)
	}
	if err := l.Run(nil, 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("a closed launch:", err)
	}
}

// TestRunDoesNotAllocate covers cuda.G5, above the driver.
func TestRunDoesNotAllocate(t *testing.T) {
	l := &Launch{
		op:       "test",
		launcher: nowhere{},
		sizes:    []uintptr{4},
		bindings: []binding{{at: 0}},
		calls:    []call{{kernel: "k", grid: 1, block: 32, params: paramsOf(&probeParams{})}},
	}
	addrs := []uintptr{4096}
	if n := testing.AllocsPerRun(100, func() {
		if err := l.Run(addrs, 7); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

type nowhere struct{ launcher }

func (nowhere) launchCall(*call, uintptr) error { return nil }
