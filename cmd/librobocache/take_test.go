//go:build cgo

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/loader"
)

// librobocache.C4: tensors in a shared buffer are released together, each large tensor alone. The
// last group ends the lease.
func TestGroups(t *testing.T) {
	b := &loader.Batch{Tensors: make([]loader.Tensor, 5)}
	for i, n := range []int{100, 128 << 10, 0, 128<<10 + 5, 128<<10 - 1} {
		b.Tensors[i].Data = make([]byte, n)
	}
	if group, n := groupsOf(b.Tensors); fmt.Sprint(group) != "[0 1 0 2 0]" || n != 3 {
		t.Fatal(group, n)
	}
}

// Each text is written once, in the layout of robocache.h.
func TestTextColumns(t *testing.T) {
	words := func(b []byte) (v []int32) {
		for ; len(b) >= 4; b = b[4:] {
			v = append(v, int32(binary.LittleEndian.Uint32(b)))
		}
		return v
	}
	var w textWriter
	b := &loader.Batch{
		Texts: []loader.Texts{
			{Values: []string{"öl", "öl", "öl"}},
			{Values: []string{"a", "", "a"}},
		},
	}
	for range 2 { // its memory is reused
		if err := w.write(b); err != nil {
			t.Fatal(err)
		}
		v := words(w.out)
		// One text of 3 bytes has no codes. Two texts of 1 and 0 bytes have the codes 0 1 0.
		want := []int32{1, 3, 3, v[3], 2, 1, 1, 0, 0, 1, 0, v[11]}
		if fmt.Sprint(v) != fmt.Sprint(want) || string(w.out[12:16]) != "öl\x00" ||
			string(w.out[44:]) != "a\x00\x00\x00" {
			t.Fatalf("%d %q", v, w.out)
		}
	}
	if allocs := testing.AllocsPerRun(50, func() { _ = w.write(b) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// A wait ends with its own error, which cannot be mistaken for one of the data.
func TestDeadline(t *testing.T) {
	p := newDeadline(10)
	defer p.stop()
	if p.Err() != nil {
		t.Error("over before it began")
	}
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if !errors.Is(p.Err(), errLate) || strings.Contains(fmt.Sprint(p.Err()), "context") {
		t.Error(p.Err())
	}
	if w := newDeadline(-1); w.Err() != nil {
		t.Error(w.Err())
	}
}
