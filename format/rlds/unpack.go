package rlds

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/scratch"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
	"github.com/goatnote-inc/robocache/internal/lru"
)

// packing is the compression of a whole shard. The metadata does not state it, so the first bytes
// determine it.
type packing uint8

const (
	unpacked packing = iota
	gzipped
	zlibStream
)

// maxRatio is the highest ratio of deflate: 258 bytes in two bits. Depth images of zeros come close
// to it.
const maxRatio = 1032

// packingOf determines the packing by the first bytes. A valid head of a record is never taken for
// a compressed stream.
func packingOf(w *window) packing {
	if w.size < headBytes {
		return unpacked
	}
	b := w.readAt(0, headBytes)
	_, whole := recordLength(b)
	switch {
	case whole:
	case b[0] == 0x1f && b[1] == 0x8b && b[2] == 8:
		return gzipped
	case b[0]&0x0f == 8 && b[0]>>4 <= 7 && (uint16(b[0])<<8|uint16(b[1]))%31 == 0 && b[1]&0x20 == 0:
		return zlibStream
	}
	return unpacked
}

const (
	defaultUnpackBytes = 64 << 30
	unpackHint         = "set TMPDIR to a folder with more space, or decompress the shards: gzip -d"
)

// plainShards holds the decompressed shards of an open dataset.
type plainShards struct {
	file   *scratch.File
	shards *lru.Cache[string, *plainShard]
}

// newPlainShards returns an empty set of shards. option is the limit of the temporary file in
// bytes.
func newPlainShards(option string) *plainShards {
	limit := int64(defaultUnpackBytes)
	if option != "" {
		var err error
		if limit, err = strconv.ParseInt(option, 10, 64); err != nil || limit < 0 {
			guard.Fail(robocache.Misuse("rlds", robocache.Where{"option": "unpack_bytes"}, "").
				Expected("a number of bytes", quoteClipped(option)))
		}
	}
	full := robocache.ResourceLimit(
		"rlds",
		robocache.Where{"option": "unpack_bytes"},
		"the compressed shards, decompressed",
	).Expected(fmt.Sprintf("at most %d bytes", limit), "more").
		WithHint(
			"raise it (%s) if the temporary folder has enough space, or open one split",
			robocache.Option("options", "unpack_bytes", 64<<30),
		)
	// Entries have size 0, so none is evicted.
	return &plainShards{scratch.New(limit, full, unpackHint), lru.New[string, *plainShard](0)}
}

// plainShard holds the complete records of a compressed shard.
type plainShard struct {
	*scratch.Part
	damage error // why the shard ends here: ErrMalformed or ErrResourceLimit
}

// unpackShard decompresses a shard once. Only complete records are kept; in a damaged shard these
// are the records before the damage.
func (s *plainShards) unpackShard(
	ctx context.Context,
	name string,
	r robocache.Ranged,
	p packing,
	limit int64,
) *plainShard {
	return leafcache.Load(ctx, s.shards, name+"\x00"+r.Version(), func() (*plainShard, int64) {
		u := &plainShard{Part: s.file.Part(r.Version())}
		out := bufio.NewWriterSize(u, 256<<10)
		src := &scratch.Reader{Ctx: ctx, R: r}
		size, damage := copyRecords(out, src, p, limit)
		// errors of the store, which the decompressor wraps
		if err := cmp.Or(out.Flush(), src.Err); err != nil {
			u.Free()
			guard.Fail(err)
		}
		u.damage = damage
		u.Holds(size)
		return u, 0
	})
}

// copyRecords copies complete records and returns their total size. Bytes that are not a record, or
// a record that is too large, end the copy before they use much space.
func copyRecords(
	out io.Writer,
	src *scratch.Reader,
	p packing,
	limit int64,
) (size int64, err error) {
	fault := func(msg string, err error) (int64, error) {
		return size, robocache.Malformed("rlds", robocache.Where{"offset": size}, "%s", msg).
			WithCause(err)
	}
	const broken = "the compressed shard is damaged or cut"
	var z io.Reader
	if in := bufio.NewReaderSize(src, 64<<10); p == gzipped {
		z, err = gzip.NewReader(in)
	} else {
		z, err = zlib.NewReader(in)
	}
	if err != nil {
		return fault(broken, err)
	}
	head := make([]byte, headBytes)
	for {
		if _, err := io.ReadFull(z, head); err == io.EOF {
			return size, nil
		} else if err != nil {
			return fault(broken, err)
		}
		n, ok := recordLength(head)
		if !ok {
			return fault("the check sum of a record's length does not hold", nil)
		}
		if n > uint64(limit) || n > uint64(src.R.Size())*maxRatio {
			return size, tooLarge(int64(min(n, 1<<62)), limit)
		}
		_, err := out.Write(head)
		if err == nil {
			_, err = io.CopyN(out, z, int64(n)+tailBytes)
		}
		if err != nil {
			return fault(broken, err)
		}
		size += headBytes + int64(n) + tailBytes
	}
}
