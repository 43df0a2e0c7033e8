package ops

import (
	"fmt"
	"testing"
)

// lateDevice does what is put on a stream when somebody waits for the stream.
type lateDevice struct {
	memory map[uintptr][]byte
	queued map[uintptr][]func()
	failed error
}

func (d *lateDevice) Wait(stream uintptr) error {
	for _, f := range d.queued[stream] {
		f()
	}
	d.queued[stream] = nil
	return d.failed
}

func (d *lateDevice) CopyInAsync(to uintptr, b []byte, stream uintptr) error {
	if len(d.queued[stream]) >= 3 {
		return fmt.Errorf("a piece is put on stream %d before the one before it came back", stream)
	}
	d.queued[stream] = append(d.queued[stream], func() { copy(d.memory[to], b) })
	return nil
}

func (d *lateDevice) CopyOutAsync(b []byte, from uintptr, stream uintptr) error {
	d.queued[stream] = append(d.queued[stream], func() { copy(b, d.memory[from]) })
	return nil
}

// The feeder's side of the host needs no GPU: each piece goes through a slot of its own and comes back to its place, and pass returns when all have.
func TestFeeder(t *testing.T) {
	d := &lateDevice{memory: map[uintptr][]byte{}, queued: map[uintptr][]func(){}}
	f := &feeder{dev: d, w: &Work{B: flowRing + 2*flowPiece}, rows: []int{3, 2, 1, 3}}
	for k, n := range f.rows {
		f.host = append(f.host, make([]byte, n*flowRing))
		for i := range f.host[k] {
			f.host[k][i] = byte(i*7 + i>>8 + k)
		}
	}
	for i := range f.slots {
		f.slots[i].stream = uintptr(1 + i)
		for k, n := range f.rows {
			addr := uintptr(100*(i+1) + k)
			d.memory[addr] = make([]byte, n*flowPiece)
			f.slots[i].addrs = append(f.slots[i].addrs, addr)
		}
	}
	pieces := 0
	kernel := func(addrs []uintptr, stream uintptr) error {
		d.queued[stream] = append(d.queued[stream], func() {
			pieces++
			m := d.memory
			for i := range m[addrs[3]] {
				m[addrs[3]][i] = m[addrs[0]][i] + 3*m[addrs[1]][i/3*2] + 5*m[addrs[2]][i/3]
			}
		})
		return nil
	}
	clear(f.host[3])
	if err := f.pass(kernel, true); err != nil || pieces != f.w.B/flowPiece {
		t.Fatalf("one way: %d pieces, %v", pieces, err)
	}
	for _, b := range f.host[3] {
		if b != 0 {
			t.Fatal("one way brings something back")
		}
	}
	if err := f.pass(kernel, false); err != nil {
		t.Fatal(err)
	}
	for i, got := range f.host[3] {
		if want := f.host[0][i] + 3*f.host[1][i/3*2] + 5*f.host[2][i/3]; got != want {
			t.Fatalf("byte %d: %d for %d", i, got, want)
		}
	}
	d.failed = fmt.Errorf("the device is lost")
	if f.pass(kernel, false) == nil {
		t.Error("a device that fails is not seen")
	}
}
