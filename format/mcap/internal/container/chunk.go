package container

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

// Compression of a chunk.
type Compression byte

// The compressions that the format knows.
const (
	None Compression = iota
	Zstd
	LZ4
)

var compressions = [...]string{None: "", Zstd: "zstd", LZ4: "lz4"}

func (c Compression) String() string { return compressions[c] }

func parseCompression(s string, off int64) Compression {
	if i := slices.Index(compressions[:], s); i >= 0 {
		return Compression(i)
	}
	guard.Fail(robocache.Unsupported("mcap", robocache.Where{"offset": off}, "chunk compression").
		Expected(`"", "zstd" or "lz4"`, fmt.Sprintf("%.40q", s)))
	return 0
}

// Chunk is a run of records that is read as a whole: a chunk of the file, or (Bare) records of the
// data section itself.
type Chunk struct {
	Start, End       int64 // log times
	Offset, Length   int64 // of the whole record in the file
	IndexLength      int64 // of the message indexes behind it
	Size, Compressed int64 // of its records
	Compression      Compression
	Bare             bool // Offset and Length are of plain records, without a chunk around them
	Cut              bool // the file ends inside: what is whole is taken
	unindexed        bool // its message index is not there, or does not fit: its records are walked
}

// Limits bound what a file may ask for.
type Limits struct {
	Chunk int64 // bytes of one chunk, decompressed
	Ratio int64 // decompressed to compressed
	// bytes of a chunk that may grow as it likes: images of a camera that sees nothing compress ten
	// thousandfold
	Free int64
}

// DefaultLimits are what recorders stay far below.
var DefaultLimits = Limits{Chunk: 256 << 20, Ratio: 1000, Free: 64 << 20}

// check holds a chunk's sizes against the file and the limits, before anything is allocated for it.
func (k *Chunk) check(size int64, lim Limits) error {
	switch {
	case k.Offset < int64(len(magic)) || k.Length < headSize && !k.Bare || k.Offset > size-k.Length || k.IndexLength > size-k.Offset-k.Length:
		return malformed(
			k.Offset,
			"a chunk outside the file",
			fmt.Sprintf("inside its %d bytes", size),
			fmt.Sprintf("%d bytes from %d, and %d of indexes", k.Length, k.Offset, k.IndexLength),
		)
	case k.Compressed > k.Length:
		return malformed(
			k.Offset,
			"compressed size of a chunk",
			fmt.Sprintf("at most its record's %d bytes", k.Length),
			fmt.Sprint(k.Compressed),
		)
	case k.Size > lim.Chunk:
		return smaller(
			tooLarge(
				k.Offset,
				fmt.Sprintf("a chunk of at most %d bytes", lim.Chunk),
				fmt.Sprint(k.Size),
			),
		)
	case k.Compression == None && k.Size != k.Compressed && !k.Cut:
		return malformed(
			k.Offset,
			"sizes of a chunk that is not compressed",
			fmt.Sprint(k.Compressed),
			fmt.Sprint(k.Size),
		)
	case k.Compression != None && k.Size > max(lim.Free, 4096) && k.Size/lim.Ratio > k.Compressed:
		return smaller(
			tooLarge(
				k.Offset,
				fmt.Sprintf(
					"a chunk above %d bytes that grows at most %d times",
					lim.Free,
					lim.Ratio,
				),
				fmt.Sprintf("%d bytes of %d", k.Size, k.Compressed),
			),
		)
	}
	return nil
}

func tooLarge(off int64, want, got string) *robocache.Error {
	return robocache.ResourceLimit("mcap", robocache.Where{"offset": off}, "").Expected(want, got)
}

// smaller says what to do about a chunk.
func smaller(e *robocache.Error) error {
	e.Hint = "where the file is not damaged, write it anew with smaller chunks: mcap compress --chunk-size BYTES"
	return e
}

// errCRC marks a chunk whose check sum differs.
var errCRC = errors.New("check sum differs")

// bodyOf gives the compressed records of a chunk's own record, which must be what its index says,
// and their check sum.
func bodyOf(raw []byte, k *Chunk, lim Limits) (body []byte, crc uint32) {
	if len(raw) < headSize || Op(raw[0]) != OpChunk {
		guard.Fail(malformed(k.Offset, "a chunk's record", "opcode 06", fmt.Sprintf("% .1x", raw)))
	}
	head, n, crc, body := chunkHead(raw[headSize:], k.Offset)
	if n > int64(len(body)) && !k.Cut {
		guard.Fail(
			malformed(
				k.Offset,
				"records of a chunk",
				fmt.Sprintf("at most %d bytes", len(body)),
				fmt.Sprint(n),
			),
		)
	}
	body = body[:min(n, int64(len(body)))]
	if head.Size != k.Size || head.Compression != k.Compression {
		guard.Fail(
			malformed(
				k.Offset,
				"a chunk and its index differ",
				fmt.Sprintf("%d bytes, compression %q", k.Size, k.Compression),
				fmt.Sprintf("%d, %q", head.Size, head.Compression),
			),
		)
	}
	head.Length, head.Compressed, head.Cut = int64(len(raw)), int64(len(body)), k.Cut
	guard.Check(head.check(k.Offset+int64(len(raw)), lim))
	return body, crc
}

// openChunk gives the records of a chunk's body, which must be as long as is declared and have the
// sum. dst is used where it is large enough.
func openChunk(body []byte, crc uint32, k *Chunk, dst []byte) []byte {
	out, err := decompress(k.Compression, body, dst, int(k.Size), k.Cut)
	if err != nil {
		guard.Fail(malformed(k.Offset, "a chunk cannot be decompressed", "", err.Error()))
	}
	if k.Cut {
		return out
	}
	if int64(len(out)) != k.Size {
		guard.Fail(
			malformed(
				k.Offset,
				"size of a decompressed chunk",
				fmt.Sprint(k.Size),
				fmt.Sprint(len(out)),
			),
		)
	}
	if crc != 0 && crc32.ChecksumIEEE(out) != crc {
		guard.Fail(
			robocache.Malformed("mcap", robocache.Where{"offset": k.Offset}, "the check sum of a chunk differs").
				Expected(fmt.Sprintf("%08x", crc), fmt.Sprintf("%08x", crc32.ChecksumIEEE(out))).
				WithCause(errCRC),
		)
	}
	return out
}

// chunkHead takes the head of a chunk record apart: n is the length of its body, of which rest is
// what is there.
func chunkHead(content []byte, off int64) (k Chunk, n int64, crc uint32, rest []byte) {
	c := parse(content, off, "chunk")
	k = Chunk{Offset: off, Start: c.i64(), End: c.i64(), Size: c.i64()}
	crc = c.u32()
	comp := c.str()
	n = c.i64()
	c.end()
	k.Compression = parseCompression(comp, off)
	return k, n, crc, c.b
}

var lz4s = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

// decompress gives at most size bytes, in dst where it is large enough; what is not compressed it
// gives as it is. Of a cut body it gives what is whole.
func decompress(c Compression, body, dst []byte, size int, cut bool) ([]byte, error) {
	if c == None {
		return body, nil
	}
	if cap(dst) < size {
		dst = make([]byte, 0, size)
	}
	if c == Zstd {
		// The chunk has its own sum. dst is the window too, also where the body is cut: what a
		// frame claims takes no memory.
		if cut {
			n, _ := unzstd.Prefix(dst[:size], body, size)
			return dst[:n], nil
		}
		n, err := unzstd.Decode(dst[:size], body, unzstd.Ignore)
		return dst[:n], err
	}
	r := lz4s.Get().(*lz4.Reader)
	defer lz4s.Put(r)
	r.Reset(bytes.NewReader(body))
	dst = dst[:size]
	n, err := io.ReadFull(r, dst)
	if cut {
		return dst[:n], nil
	}
	if err == nil {
		var more [1]byte
		if k, _ := r.Read(more[:]); k > 0 {
			return nil, fmt.Errorf("more than the %d bytes that are declared", size)
		}
	}
	return dst[:n], err
}

// record is one record of a chunk, and its place there.
type record struct {
	op      Op
	content []byte
	at      int
}

// walk gives the records of a chunk. Of a cut chunk it ends at the last whole one.
func (k *Chunk) walk(records []byte) iter.Seq[record] {
	return func(yield func(record) bool) {
		for at := 0; at < len(records); {
			n, room := uint64(0), len(records)-at-headSize
			if room >= 0 {
				n = le64(records[at+1:])
			}
			if room < 0 || n > uint64(room) {
				if !k.Cut {
					guard.Fail(
						malformed(
							k.Offset,
							fmt.Sprintf("the record at %d of a chunk ends after it", at),
							fmt.Sprintf("at most %d bytes", max(0, room)),
							fmt.Sprint(n),
						),
					)
				}
				return
			}
			if !yield(record{Op(records[at]), records[at+headSize : at+headSize+int(n)], at}) {
				return
			}
			at += headSize + int(n)
		}
	}
}
