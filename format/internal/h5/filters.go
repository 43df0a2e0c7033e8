package h5

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/inflate"
)

// The supported filters.
const (
	filterDeflate  = 1
	filterShuffle  = 2
	filterFletcher = 3
	filterLZF      = 32000
)

var filterNames = map[uint16]string{
	filterDeflate:  "deflate",
	filterShuffle:  "shuffle",
	filterFletcher: "fletcher32",
	4:              "szip",
	5:              "nbit",
	6:              "scaleoffset",
	307:            "bzip2",
	filterLZF:      "lzf",
	32001:          "blosc",
	32004:          "lz4",
	32008:          "bitshuffle",
	32013:          "zfp",
	32015:          "zstd",
	32017:          "sz",
	32026:          "blosc2",
}

// filter is one step of a pipeline. A pipeline is in the order of writing.
type filter struct {
	id     uint16
	name   string
	values []uint32
}

// String returns the common name of the filter and its number.
func (p *filter) String() string {
	return fmt.Sprintf("%s (filter %d)", cmp.Or(filterNames[p.id], p.name), p.id)
}

// isSupported reports whether the filter can be decoded.
func (p *filter) isSupported() bool {
	return p.id >= filterDeflate && p.id <= filterFletcher || p.id == filterLZF
}

func (f *File) parseFilters(addr uint64, b []byte) []filter {
	c := f.newCursor(addr, "the filter pipeline", b)
	version, n := c.u8(), int(c.u8())
	if version != 1 && version != 2 {
		f.failUnsupported(addr, fmt.Sprintf("filter pipeline version %d", version), "")
	}
	if version == 1 {
		c.skip(6)
	}
	if n > 32 {
		f.failMalformed(addr, "%d filters", n)
	}
	out := make([]filter, n)
	for i := range out {
		p := &out[i]
		p.id = c.u16()
		length := 0
		if version == 1 || p.id >= 256 {
			length = int(c.u16())
		}
		c.skip(2)
		values := int(c.u16())
		if version == 1 {
			length = (length + 7) &^ 7
		}
		name, _, _ := bytes.Cut(c.takeBytes(length), []byte{0})
		p.name = string(name)
		for range values {
			p.values = append(p.values, c.u32())
		}
		if version == 1 && values%2 == 1 {
			c.skip(4)
		}
	}
	return out
}

// scratch holds the buffers for decoding: two for the steps between filters, one for the stored
// bytes.
type scratch struct{ stored, a, b []byte }

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// keepScratch is the size above which a buffer is not kept for the next chunk.
const keepScratch = 8 << 20

func (s *scratch) returnToPool() {
	if cap(s.stored) <= keepScratch && cap(s.a) <= keepScratch && cap(s.b) <= keepScratch {
		scratches.Put(s)
	}
}

func growBuffer(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	return (*b)[:n]
}

var errSize = errors.New("the size of the chunk differs from the size in its data set")

// undoFilters decodes a stored chunk into dst. Bit i of mask means that filter i was skipped.
func undoFilters(filters []filter, mask uint32, stored, dst []byte, s *scratch) error {
	type step struct {
		*filter
		// size of the filter's input at write time; -1 after the first compressor
		size int
	}
	var buf [8]step
	steps := buf[:0]
	size := len(dst)
	for i := range filters {
		if mask>>uint(i)&1 != 0 {
			continue
		}
		p := step{&filters[i], size}
		switch steps = append(steps, p); {
		case p.id == filterFletcher && size >= 0:
			size += 4
		case p.id == filterDeflate || p.id == filterLZF:
			size = -1
		}
	}
	data := stored
	for i := len(steps) - 1; i >= 0; i-- {
		out := dst
		if i > 0 { // a step never writes into its own input
			if out = nil; steps[i].size >= 0 && steps[i].id != filterFletcher {
				s.a, s.b = s.b, s.a
				out = growBuffer(&s.a, steps[i].size)
			}
		}
		var err error
		if data, err = steps[i].undoFilter(out, data, len(dst)); err != nil {
			return err
		}
	}
	if len(data) != len(dst) {
		return errSize
	}
	if len(dst) > 0 && &data[0] != &dst[0] {
		copy(dst, data)
	}
	return nil
}

// undoFilter decodes one filter into out. If the output size is unknown, out is nil and the result
// is in new memory. most is the size of the chunk.
func (p *filter) undoFilter(out, data []byte, most int) ([]byte, error) {
	switch p.id {
	case filterDeflate:
		if out == nil {
			return inflateUnknown(data, most+most/8+64)
		}
		return out, inflate.Zlib(out, data)
	case filterLZF:
		if out == nil {
			return nil, errors.New("lzf below another compressor")
		}
		return out, decodeLZF(out, data)
	case filterShuffle:
		if out == nil {
			out = make([]byte, len(data))
		}
		if len(data) != len(out) {
			return nil, errSize
		}
		size := 1
		if len(p.values) > 0 {
			size = max(int(p.values[0]), 1)
		}
		elements.Unshuffle(out, data, size)
		return out, nil
	case filterFletcher: // removes its bytes in place
		return checkFletcher(data)
	}
	return nil, fmt.Errorf("unknown filter %s", p)
}

func checkFletcher(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errSize
	}
	n := len(b) - 4
	want := binary.LittleEndian.Uint32(b[n:])
	got := fletcher32Sum(b[:n])
	// HDF5 1.6.2 and older store the bytes of each half in reverse order.
	if got != want && got&0xff00ff<<8|got>>8&0xff00ff != want {
		return nil, fmt.Errorf(
			"the chunk's fletcher32 checksum is %08x, its bytes give %08x",
			want,
			got,
		)
	}
	return b[:n], nil
}

var errLZF = errors.New("bad lzf data")

// decodeLZF decodes data of liblzf. The result must fill dst exactly.
func decodeLZF(dst, src []byte) error {
	at := 0
	for i := 0; i < len(src); {
		ctrl := int(src[i])
		i++
		if ctrl < 32 {
			n := ctrl + 1
			if n > len(src)-i || n > len(dst)-at {
				return errLZF
			}
			copy(dst[at:], src[i:i+n])
			i, at = i+n, at+n
			continue
		}
		n := ctrl >> 5
		if n == 7 {
			if i >= len(src) {
				return errLZF
			}
			n += int(src[i])
			i++
		}
		if i >= len(src) {
			return errLZF
		}
		back := (ctrl&31)<<8 | int(src[i])
		i++
		n += 2
		from := at - back - 1
		if from < 0 || n > len(dst)-at {
			return errLZF
		}
		if from+n <= at {
			copy(dst[at:at+n], dst[from:])
			at += n
			continue
		}
		for range n {
			dst[at] = dst[from]
			at, from = at+1, from+1
		}
	}
	if at != len(dst) {
		return errSize
	}
	return nil
}

// inflateUnknown inflates data of unknown size, at most limit bytes.
func inflateUnknown(src []byte, limit int) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(out) > limit {
		err = errSize
	}
	return out, err
}
