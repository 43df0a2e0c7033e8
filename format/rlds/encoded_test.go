package rlds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// TestEncodedCounts checks that a tensor in a byte string counts once per step, whatever its shape,
// also if it is the first leaf.
func TestEncodedCounts(t *testing.T) {
	for _, first := range []bool{false, true} {
		h := newHand()
		h.features = `"a": {"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "int32", "encoding": "bytes"}}, "r": ` + scalar(
			"float32",
		)
		x := newExample()
		var values [][]byte
		for i := range 4 {
			values = append(
				values,
				binary.LittleEndian.AppendUint32(
					binary.LittleEndian.AppendUint32(nil, uint32(i)),
					uint32(10*i),
				),
			)
		}
		if first {
			h.features += `, "is_first": ` + scalar("bool")
			x.ints("steps/is_first", []int64{1, 0, 0, 0})
		}
		x.strings("steps/a", values)
		x.floats("steps/r", f32s(0, 1, 2, 3))
		b, err := x.bytes()
		if err != nil {
			t.Fatal(err)
		}
		h.info = handInfo("toy", "train", 1)
		h.shards = map[string][]byte{"toy-train.tfrecord-00000-of-00001": appendRecord(nil, b)}
		d, err := h.open(t, fmt.Sprintf("encoded-%v", first))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4*8)
		if d.Len(0) != 4 {
			t.Errorf("is_first %v: %d steps of 4", first, d.Len(0))
			continue
		}
		if err := d.Gather(t.Context(), "a", rowsOf(d, 0), got); err != nil ||
			!bytes.Equal(got, bytes.Join(values, nil)) {
			t.Errorf("is_first %v: % x, %v", first, got, err)
		}
	}
}

// TestEncodedRowsAllocate checks that copying rows that are byte strings allocates no memory per
// row.
func TestEncodedRowsAllocate(t *testing.T) {
	h := newHand()
	h.features = `"a": {"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "int32", "encoding": "bytes"}}, "r": ` + scalar(
		"float32",
	)
	x := newExample()
	const n = 400
	x.strings("steps/a", slices.Repeat([][]byte{make([]byte, 8)}, n))
	x.floats("steps/r", f32s(make([]float32, n)...))
	b, err := x.bytes()
	if err != nil {
		t.Fatal(err)
	}
	h.info = handInfo("toy", "train", 1)
	h.shards = map[string][]byte{"toy-train.tfrecord-00000-of-00001": appendRecord(nil, b)}
	d, err := h.open(t, "encoded-allocations")
	if err != nil {
		t.Fatal(err)
	}
	rows, got := rowsOf(d, 0), make([]byte, n*8)
	if k := testing.AllocsPerRun(10, func() {
		if err := d.Gather(t.Context(), "a", rows, got); err != nil {
			t.Fatal(err)
		}
	}); k > n/4 {
		t.Errorf("%v allocations for %d rows", k, n)
	}
}
