package h5

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// raw returns a File whose superblock was not read.
func raw(b []byte) *File {
	return &File{
		r:     inMemory(b),
		name:  "raw",
		size:  uint64(len(b)),
		osz:   8,
		lsz:   8,
		block: 4096,
		cache: NewCache(8 << 20),
	}
}

func shuffled(b []byte, n int) []byte {
	out := make([]byte, 0, len(b))
	for k := range n {
		for i := k; i < len(b); i += n {
			out = append(out, b[i])
		}
	}
	return out
}

// TestLongPipelines undoes filters in any number and order. No step writes into its own input.
func TestLongPipelines(t *testing.T) {
	want := make([]byte, 4096)
	for i := range want {
		want[i] = byte(i*i>>3 ^ i)
	}
	stored := shuffled(shuffled(want, 4), 2)
	stored = binary.LittleEndian.AppendUint32(stored, fletcher32Sum(stored))
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(stored)
	w.Close()
	two := []filter{
		{id: filterShuffle, values: []uint32{4}},
		{id: filterShuffle, values: []uint32{2}},
		{id: filterFletcher},
		{id: filterDeflate},
	}
	got := make([]byte, len(want))
	if err := undoFilters(two, 0, z.Bytes(), got, &scratch{}); err != nil ||
		!bytes.Equal(got, want) {
		t.Errorf("shuffle, shuffle, fletcher32, deflate: %v", err)
	}
	var many []filter
	stored = want
	for range 12 {
		many = append(many, filter{id: filterShuffle, values: []uint32{8}})
		stored = shuffled(stored, 8)
	}
	if err := undoFilters(many, 0, stored, got, &scratch{}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("twelve filters: %v", err)
	}
}

// TestOverlappingHeaders checks that overlapping continuation blocks do not multiply memory
// (h5.H2).
func TestOverlappingHeaders(t *testing.T) {
	le := binary.LittleEndian
	const blocks = 200
	message := func(b []byte, kind, size uint16) []byte {
		return append(le.AppendUint16(le.AppendUint16(b, kind), size), 0, 0, 0, 0)
	}
	b := append(le.AppendUint16([]byte{1, 0}, 2*blocks), 1, 0, 0, 0)
	b = append(le.AppendUint32(b, blocks*24), 0, 0, 0, 0)
	const size = 4 << 20
	for i := range uint64(blocks) {
		b = message(b, msgContinuation, 16)
		b = le.AppendUint64(le.AppendUint64(b, 16+blocks*24+8*i), size)
	}
	for range blocks {
		b = message(b, 0xff, 0)
	}
	b = append(b, make([]byte, size+8*blocks)...)
	before := hostile.Allocated()
	_, err := raw(b).At(t.Context(), 0)
	if got := hostile.Allocated() - before; !errors.Is(err, robocache.ErrResourceLimit) ||
		got > 2*maxMetadata {
		t.Errorf("%d bytes taken for %d: %v", got, len(b), err)
	}
}

// TestSharedTexts checks that many elements which share one text of a heap do not take gigabytes
// (h5.H2).
func TestSharedTexts(t *testing.T) {
	le := binary.LittleEndian
	const size = 1 << 20
	b := append([]byte("GCOL"), 1, 0, 0, 0)
	b = le.AppendUint64(b, 32+size)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0)
	b = append(le.AppendUint64(b, size), bytes.Repeat([]byte("x"), size)...)
	b = append(make([]byte, 8), b...)
	var refs []byte
	for range 500 {
		refs = le.AppendUint32(le.AppendUint64(le.AppendUint32(refs, size), 8), 1)
	}
	a := &Attribute{
		Name: "a",
		f:    raw(b),
		raw:  refs,
		Type: &Type{Class: Varying, IsText: true, Size: 16, Base: &Type{Class: Text, Size: 1}},
	}
	before := hostile.Allocated()
	_, err := a.Strings(t.Context())
	if got := hostile.Allocated() - before; !errors.Is(err, robocache.ErrResourceLimit) ||
		got > 2*maxMetadata {
		t.Errorf("%d bytes taken for %d: %v", got, len(b), err)
	}
	a.raw = refs[:16*3]
	if v, err := a.Strings(t.Context()); err != nil || len(v) != 3 || len(v[2]) != size {
		t.Error(err)
	}
}

// cpuTime returns the CPU time of this process, which does not grow when the machine is busy.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestEmptyChunks checks that millions of chunks that were never written are filled quickly.
func TestEmptyChunks(t *testing.T) {
	const n = 4 << 20
	d := &Dataset{
		f: raw(
			make([]byte, 8),
		),
		Shape: []int64{1, n},
		Type:  &Type{Class: Integer, Size: 1, DType: robocache.Uint8},
		fill:  []byte{7},
		max:   []int64{1, n},
		layout: &layout{
			class:   layoutChunked,
			addr:    undefined,
			chunk:   []int64{1, 1},
			element: 1,
			index:   indexTree1,
		},
	}
	if err := guard.Try(d.deriveSizes); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	start := cpuTime()
	if err := d.ReadRows(t.Context(), 0, 1, got); err != nil || got[0] != 7 ||
		bytes.Count(got, []byte{7}) != n {
		t.Error(err)
	}
	if took := cpuTime() - start; took > 5*time.Second {
		t.Errorf("%v for %d chunks that are not there", took, n)
	}
}

// TestHugeRow checks that a declared but absent row is rejected before memory is allocated.
func TestHugeRow(t *testing.T) {
	d := &Dataset{
		f:      raw(make([]byte, 8)),
		Shape:  []int64{1, 1 << 40},
		Type:   &Type{Class: Integer, Size: 1, DType: robocache.Uint8},
		max:    []int64{1, 1 << 40},
		layout: &layout{class: layoutContiguous, addr: undefined},
	}
	if err := guard.Try(d.deriveSizes); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.View(t.Context(), 0, 1); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Error(err)
	}
}

// TestLongMessage checks that a message longer than its block is malformed, and that a remainder
// shorter than a message header is a gap.
func TestLongMessage(t *testing.T) {
	header := func(flags byte, messages ...byte) []byte {
		b := append([]byte("OHDR\x02"), flags, byte(len(messages)))
		b = append(b, messages...)
		return append(binary.LittleEndian.AppendUint32(b, lookup3Hash(b)), make([]byte, 40)...)
	}
	whole := []byte{0xff, 2, 0, 0, 'a', 'b'}
	for name, c := range map[string]struct {
		b  []byte
		ok bool
	}{
		"whole":          {header(0, whole...), true},
		"a gap of three": {header(0, append(whole, 0xff, 9, 0)...), true},
		"a gap of five": {header(
			4,
			append([]byte{0xff, 2, 0, 0, 0, 0, 'a', 'b'}, 0xff, 9, 0, 0, 0)...,
		), true},
		"longer":             {header(0, append(whole, 0xff, 9, 0, 0, 'a')...), false},
		"longer, with order": {header(4, 0xff, 9, 0, 0, 0, 0, 'a'), false},
	} {
		_, err := raw(c.b).At(t.Context(), 0)
		if c.ok && err != nil || !c.ok && !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
