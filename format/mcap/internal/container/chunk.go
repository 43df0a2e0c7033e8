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

// Compression is the compression of a chunk.
type Compression byte

// Compressions defined by the format.
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

// Chunk is a range of records that is read as a unit. It is a chunk of the file, or (Bare)
// consecutive records of the data section.
type Chunk struct {
	Start, End       int64 // log times
	Offset, Length   int64 // of the whole record in the file
	IndexLength      int64 // of the message indexes after it
	Size, Compressed int64 // of its records
	Compression      Compression
	Bare             bool // Offset and Length refer to records without a chunk around them
	Cut              bool // the file ends inside the chunk, and only intact records are read
	unindexed        bool // the message index is missing or invalid, so the records are scanned
}

// Limits limits the memory that a file may require.
type Limits struct {
	Chunk int64 // bytes of one decompressed chunk
	Ratio int64 // ratio of decompressed to compressed size
	// Size of a chunk below which Ratio is not checked. Images of a dark camera may compress ten
	// thousand times.
	Free int64
}

// DefaultLimits is far above the sizes that recorders write.
var DefaultLimits = Limits{Chunk: 256 << 20, Ratio: 1000, Free: 64 << 20}

// checkSizes checks a chunk's sizes against the file and the limits. It is called before memory is
// allocated for the chunk.
func (k *Chunk) checkSizes(size int64, lim Limits) error {
	switch {
	case k.Offset < int64(len(magic)) || k.Length < headSize && !k.Bare ||
		k.Offset > size-k.Length || k.IndexLength > size-k.Offset-k.Length:
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
		return withChunkHint(
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
		return withChunkHint(
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

// withChunkHint adds the hint to write smaller chunks.
func withChunkHint(e *robocache.Error) error {
	e.Hint = "If the file is not damaged, write it again with smaller chunks: mcap compress " +
		"--chunk-size BYTES"
	return e
}

// errCRC is the cause of the error of a chunk with a wrong checksum.
var errCRC = errors.New("check sum differs")

// chunkBody returns the compressed records of a chunk record and their checksum. The record must
// agree with its index.
func chunkBody(raw []byte, k *Chunk, lim Limits) (body []byte, crc uint32) {
	if len(raw) < headSize || Op(raw[0]) != OpChunk {
		guard.Fail(malformed(k.Offset, "a chunk's record", "opcode 06", fmt.Sprintf("% .1x", raw)))
	}
	head, n, crc, body := parseChunkHead(raw[headSize:], k.Offset)
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
	guard.Check(head.checkSizes(k.Offset+int64(len(raw)), lim))
	return body, crc
}

// openChunk returns the decompressed records of a chunk's body. It checks their length and
// checksum. dst is used if it is large enough.
func openChunk(body []byte, crc uint32, k *Chunk, dst []byte) []byte {
	out, err := decompressBody(k.Compression, body, dst, int(k.Size), k.Cut)
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
			robocache.Malformed("mcap", robocache.Where{
				"offset": k.Offset,
			}, "the check sum of a chunk differs").
				Expected(fmt.Sprintf("%08x", crc), fmt.Sprintf("%08x", crc32.ChecksumIEEE(out))).
				WithCause(errCRC),
		)
	}
	return out
}

// parseChunkHead parses the head of a chunk record. n is the declared length of its body, and rest
// is the available part of it.
func parseChunkHead(content []byte, off int64) (k Chunk, n int64, crc uint32, rest []byte) {
	c := newCursor(content, off, "chunk")
	k = Chunk{Offset: off, Start: c.i64(), End: c.i64(), Size: c.i64()}
	crc = c.u32()
	comp := c.str()
	n = c.i64()
	c.finish()
	k.Compression = parseCompression(comp, off)
	return k, n, crc, c.b
}

var lz4s = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

// decompressBody decompresses at most size bytes, into dst if it is large enough. It returns an
// uncompressed body unchanged. If cut is set, it returns the intact beginning.
func decompressBody(c Compression, body, dst []byte, size int, cut bool) ([]byte, error) {
	if c == None {
		return body, nil
	}
	if cap(dst) < size {
		dst = make([]byte, 0, size)
	}
	if c == Zstd {
		// The chunk has its own checksum. dst is also the window, so that the sizes in a frame
		// allocate no memory.
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

// chunkRecord is one record of a chunk with its position.
type chunkRecord struct {
	op      Op
	content []byte
	at      int
}

// eachRecord returns the records of a chunk. For a truncated chunk, it ends after the last intact
// record.
func (k *Chunk) eachRecord(records []byte) iter.Seq[chunkRecord] {
	return func(yield func(chunkRecord) bool) {
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
			if !yield(chunkRecord{Op(records[at]), records[at+headSize : at+headSize+int(n)], at}) {
				return
			}
			at += headSize + int(n)
		}
	}
}
