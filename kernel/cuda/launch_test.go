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

// A Launch puts addresses in place, runs its calls in order, and can be run again with others.
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
		on:       d.on,
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
	l, err := l.prepared()
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
		if first, last := binary.LittleEndian.Uint32(
			b,
		), binary.LittleEndian.Uint32(
			b[n*4-4:],
		); first != want[0] ||
			last != want[1] {
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

// G4: a check that waits is not captured. G6: an error says what was launched.
func TestLaunchErrors(t *testing.T) {
	d := simulator(t, sim.Options{}, "probe")
	s := d.on.(*simulated)
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
	if err := l.Run(
		[]uintptr{a},
		0,
	); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "capture") {
		t.Error(err)
	}
	s.capture = false
	if err := l.Run([]uintptr{a}, 0); err != nil || checks != 1 {
		t.Error(err, checks)
	}
	if _, err := probe(
		d,
		"probe_missing",
		probeParams{n: 1},
		32,
		0,
	); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "probe_missing") {
		t.Error(err)
	}
	var big struct {
		p probeParams
		_ [maxParams]byte
	}
	l = &Launch{op: "test", on: d.on, calls: []call{{kernel: "probe_add", params: paramsOf(&big)}}}
	if _, err := l.prepared(); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "4096") {
		t.Error(err)
	}
	k := call{kernel: "k", grid: 5, block: 6, shared: 7, args: func() string { return "B 3, T 4" }}
	if got := k.String(); got != "k<<<5, 6, 7>>>(B 3, T 4)" {
		t.Error(got)
	}
}

// Tables live as long as the Launch.
func TestTables(t *testing.T) {
	d := simulator(t, sim.Options{Checked: true}, "probe")
	l := &Launch{op: "test", on: d.on}
	p := probeParams{n: 2, add: 5}
	l.calls = []call{{kernel: "probe_add", grid: 1, block: 32, params: paramsOf(&p)}}
	var err error
	if p.out, err = l.table([]byte{1, 0, 0, 0, 2, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if l, err = l.prepared(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if err := errors.Join(
		l.Run(nil, 0),
		d.CopyOut(b, p.out),
	); err != nil || b[0] != 6 ||
		b[4] != 7 {
		t.Error(err, b)
	}
	// What a graph captured is replayed after the Launch is gone.
	d.on.(*simulated).capture = true
	if err := l.Run(nil, 0); err != nil {
		t.Fatal(err)
	}
	d.on.(*simulated).capture = false
	l.Close()
	l.Close()
	if err := d.CopyOut(b, p.out); err != nil || b[0] != 11 { // freed memory would be a fault
		t.Error(err, b)
	}
	if err := l.Run(nil, 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("a closed launch:", err)
	}
}

// G5, above the driver.
func TestRunDoesNotAllocate(t *testing.T) {
	l := &Launch{
		op:       "test",
		on:       nowhere{},
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

func (nowhere) launch(*call, uintptr) error { return nil }
