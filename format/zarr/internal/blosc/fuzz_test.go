package blosc

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// buffer returns a buffer of one block with the given compressed streams.
func buffer(flags, typeSize byte, n, block int, streams ...string) []byte {
	var body []byte
	for _, s := range streams {
		body = binary.LittleEndian.AppendUint32(body, uint32(len(s)))
		body = append(body, s...)
	}
	b := []byte{2, 1, flags, typeSize}
	for _, v := range []int{n, block, 20 + len(body), 20} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(b, body...)
}

// TestHead checks wrong sizes and unsupported codecs (blosc.B2, blosc.B3).
func TestHead(t *testing.T) {
	ok := buffer(0x31, 4, 8, 8, "abcdefgh") // stored stream, lz4, shuffle
	if b, err := Decode(ok, 8); err != nil || string(b) != "acegbdfh" {
		t.Fatalf("%q %v", b, err)
	}
	for name, c := range map[string]struct {
		change func(b []byte)
		class  error
	}{
		"version":     {func(b []byte) { b[0] = 5 }, robocache.ErrUnsupported},
		"snappy":      {func(b []byte) { b[2] = 0x51 }, robocache.ErrUnsupported},
		"codec 6":     {func(b []byte) { b[2] = 0xd1 }, robocache.ErrUnsupported},
		"no elements": {func(b []byte) { b[3] = 0 }, robocache.ErrMalformed},
		"over the limit": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 9) },
			robocache.ErrResourceLimit,
		},
		"blocks of none": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 0) },
			robocache.ErrMalformed,
		},
		"longer than all": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[12:], 99) },
			robocache.ErrMalformed,
		},
		"start outside": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[16:], 77) },
			robocache.ErrMalformed,
		},
		"start negative": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[16:], 1<<31) },
			robocache.ErrMalformed,
		},
		"stream outside": {
			func(b []byte) { binary.LittleEndian.PutUint32(b[20:], 9) },
			robocache.ErrMalformed,
		},
		"stored, larger": {func(b []byte) { b[2] |= 2 }, robocache.ErrMalformed},
	} {
		b := append([]byte(nil), ok...)
		c.change(b)
		if _, err := Decode(b, 8); !errors.Is(err, c.class) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range len(ok) {
		if _, err := Decode(ok[:n], 8); err == nil {
			t.Errorf("cut to %d bytes it is read", n)
		}
	}
}

// TestOwnMemory checks blosc.B4 for a stored buffer.
func TestOwnMemory(t *testing.T) {
	src := append([]byte{2, 1, flagStored, 1, 8, 0, 0, 0, 8, 0, 0, 0, 24, 0, 0, 0}, "abcdefgh"...)
	b, err := Decode(src, 8)
	clear(src)
	if err != nil || string(b) != "abcdefgh" {
		t.Errorf("%q %v", b, err)
	}
}

// FuzzDecode checks blosc.B3: no panic, no result above the limit, and memory in proportion to it.
func FuzzDecode(f *testing.F) {
	f.Add(buffer(0x31, 4, 8, 8, "abcdefgh"))
	f.Add(buffer(0x14, 1, 8, 8, "abcdefgh"))
	f.Add(buffer(0x10, 1, 40, 40, "\x00a\xe0\xff\x20\x00"))
	f.Add(buffer(0x30, 1, 40, 40, "\x1fa\x01\x00\x14\x50aaaaa"))
	f.Add(buffer(0x71, 2, 40, 40, "\x78\x9c\x03\x00\x00\x00\x00\x01"))
	f.Add(
		buffer(
			0x94,
			8,
			64,
			64,
			"\x28\xb5\x2f\xfd\x20\x40\x15\x00\x00\x08\x00\x01\x00\xfa\x2b\x80\x05",
		),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		out, err := Decode(b, 1<<20)
		hostile.Typed(t, err)
		if len(out) > 1<<20 {
			t.Errorf("%d bytes", len(out))
		}
		if got := hostile.Allocated() - before; got > 24<<20 {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}
