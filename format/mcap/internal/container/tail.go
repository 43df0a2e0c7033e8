package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// ErrRewritten reports that the bytes of a file that were read before have changed.
var ErrRewritten = errors.New("the file was truncated or written again")

// TailLimits limits the memory of a Tail: the compressed and the decompressed bytes of one chunk,
// and the bytes of one message.
var TailLimits = Limits{Chunk: 128 << 20, Ratio: 1000, Free: 64 << 20}

// Tail decodes the messages of a file that is being written. It is not safe for concurrent use.
type Tail struct {
	file    *File // definitions and limits; its other fields are not used
	source  *growingFile
	at      int64  // offset of the next record
	need    int64  // size of the file at which the next record is complete
	last    []byte // the bytes before at, to detect that the file was written again
	isEnded bool
	defined int // bytes of definitions
	raw     []byte
	records []byte // decompressed records of the current chunk
	message Message
	// Skip leaves out the chunks before skipped. Those before searched were read for definitions.
	skipped, searched int64
}

// growingFile is a file of which size bytes may be read.
type growingFile struct {
	io.ReaderAt
	size int64
}

func (g *growingFile) Size() int64     { return g.size }
func (g *growingFile) Version() string { return "" }
func (g *growingFile) Close() error    { return nil }

func (g *growingFile) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := g.ReaderAt.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		return ErrRewritten
	}
	return err
}

// NewTail returns a Tail that begins at the start of source.
func NewTail(source io.ReaderAt, limits Limits) *Tail {
	t := &Tail{source: &growingFile{ReaderAt: source}, need: int64(len(magic))}
	t.file = &File{ranged: t.source, limits: limits}
	t.file.clearSummary()
	return t
}

// Ended reports whether no further message can follow: the data section has ended, or a record
// cannot be decoded and its length is unknown.
func (t *Tail) Ended() bool { return t.isEnded }

// Schema returns the schema of a channel, or nil if it has none.
func (t *Tail) Schema(c *Channel) *Schema { return t.file.Schemas[c.Schema] }

// Poll decodes the complete records up to size, the present size of the file, and calls fn for each
// message. The message is valid until fn returns. A channel keeps its pointer. A record that is not
// complete is left for the next call.
//
// After an error, the next call continues after the record that caused it. If the error is
// ErrRewritten, the caller must begin with a new Tail.
func (t *Tail) Poll(ctx context.Context, size int64, fn func(*Channel, *Message)) (err error) {
	defer guard.Recover("mcap tail", &err)
	return t.readRecords(ctx, size, fn)
}

// Skip passes over the complete records up to size without reading messages. Channels that are
// defined in skipped chunks are searched for when a message requires them.
func (t *Tail) Skip(ctx context.Context, size int64) (err error) {
	defer guard.Recover("mcap tail", &err)
	err = t.readRecords(ctx, size, nil)
	t.skipped = t.at
	return err
}

// readRecords implements Poll, and Skip if fn is nil.
func (t *Tail) readRecords(ctx context.Context, size int64, fn func(*Channel, *Message)) error {
	if size < t.need || t.isEnded {
		return nil
	}
	t.source.size = size
	if t.at == 0 {
		t.readMagic(ctx)
	}
	t.checkLast(ctx)
	defer t.rememberLast(ctx)
	for h := range t.file.eachHead(ctx, t.at, size) {
		t.need = h.off + headSize
		if h.op == 0 {
			t.need = max(t.need, size+1) // its head is not written
			break
		}
		if h.n > maxTime>>1 {
			t.isEnded = true
			guard.Fail(malformed(h.off, "length of a record", "below 2^62", fmt.Sprint(h.n)))
		}
		end := t.need + int64(h.n)
		isRead := h.op == OpSchema || h.op == OpChannel ||
			fn != nil && (h.op == OpMessage || h.op == OpChunk)
		if isRead && h.n > uint64(t.file.limits.Chunk)+headSize {
			t.at, t.need = end, end
			guard.Fail(tooLarge(
				h.off,
				fmt.Sprintf("a record of at most %d bytes", t.file.limits.Chunk),
				fmt.Sprint(h.n),
			))
		}
		t.need = end
		if (isRead || fn == nil) && end > size {
			break // not complete
		}
		t.at = end // before it is decoded, so that a damaged record is passed over
		switch {
		case h.op == OpDataEnd || h.op == OpFooter:
			t.isEnded = true
			return nil
		case !isRead:
		case h.op == OpChunk:
			t.deliverChunk(ctx, h, fn)
		default:
			t.raw = t.readRange(ctx, h.off+headSize, h.n, t.raw, h.content)
			var undefined error
			t.readRecord(ctx, h.op, t.raw, h.off, fn, &undefined)
			guard.Check(undefined)
		}
	}
	t.need = max(t.need, t.at+headSize)
	return nil
}

// readMagic reads the magic at the start of the file.
func (t *Tail) readMagic(ctx context.Context) {
	var b [len(magic)]byte
	guard.Check(t.source.ReadAt(ctx, b[:], 0))
	if string(b[:]) != magic {
		t.isEnded = true
		guard.Fail(malformed(0, "magic", fmt.Sprintf("% x", magic), fmt.Sprintf("% x", b)))
	}
	t.at = int64(len(magic))
	t.searched = t.at
}

// rememberLast keeps the bytes before the next record.
func (t *Tail) rememberLast(ctx context.Context) {
	n := min(t.at, 32)
	if t.last = t.last[:0]; t.at > t.source.size {
		return
	}
	b := append(t.last, make([]byte, n)...)
	if t.source.ReadAt(ctx, b, t.at-n) == nil { // otherwise the next read returns the error
		t.last = b
	}
}

// checkLast raises ErrRewritten if the bytes before the next record have changed.
func (t *Tail) checkLast(ctx context.Context) {
	if n := len(t.last); n > 0 {
		var b [32]byte
		guard.Check(t.source.ReadAt(ctx, b[:n], t.at-int64(n)))
		if !bytes.Equal(b[:n], t.last) {
			guard.Fail(ErrRewritten)
		}
	}
}

// readRange returns n bytes at off in buffer, which grows if it is too small. start is the beginning
// of these bytes if it was read before.
func (t *Tail) readRange(ctx context.Context, off int64, n uint64, buffer, start []byte) []byte {
	if uint64(cap(buffer)) < n {
		buffer = make([]byte, n)
	}
	buffer = buffer[:n]
	if copy(buffer, start) < len(buffer) {
		guard.Check(t.source.ReadAt(ctx, buffer, off))
	}
	return buffer
}

// readRecord decodes a schema, a channel or a message. A message without a channel sets undefined.
func (t *Tail) readRecord(
	ctx context.Context,
	op Op,
	content []byte,
	off int64,
	fn func(*Channel, *Message),
	undefined *error,
) {
	switch op {
	case OpSchema, OpChannel:
		if t.file.defineRecord(op, content, off) {
			if t.defined += len(content); t.defined > maxDefined {
				t.isEnded = true
				guard.Fail(tooLarge(
					off,
					fmt.Sprintf("schemas and channels of at most %d bytes", int64(maxDefined)),
					"more",
				))
			}
		}
	case OpMessage:
		if fn == nil {
			return
		}
		guard.Check(parseMessage(&t.message, content, off))
		channel := t.findChannel(ctx, t.message.Channel)
		if channel == nil {
			*undefined = malformed(
				off,
				fmt.Sprintf("messages of channel %d, which no record defines", t.message.Channel),
				"",
				"",
			)
			return
		}
		fn(channel, &t.message)
	}
}

// deliverChunk decodes the records of a chunk.
func (t *Tail) deliverChunk(ctx context.Context, h recordHead, fn func(*Channel, *Message)) {
	var k Chunk
	var records []byte
	k, t.raw, records = t.decompressChunk(ctx, h, t.raw, t.records)
	if k.Compression != None {
		t.records = records
	}
	var undefined error
	for r := range k.eachRecord(records) {
		t.readRecord(ctx, r.op, r.content, h.off, fn, &undefined)
	}
	guard.Check(undefined)
}

// decompressChunk returns a chunk, its record in raw, and its records, which may be in into.
func (t *Tail) decompressChunk(
	ctx context.Context,
	h recordHead,
	raw, into []byte,
) (k Chunk, record, records []byte) {
	raw = t.readRange(ctx, h.off, headSize+h.n, raw, nil)
	k = scannedChunk(raw[headSize:], h.off, int64(len(raw)))
	guard.Check(k.checkSizes(h.off+k.Length, t.file.limits))
	body, crc := chunkBody(raw, &k, t.file.limits)
	return k, raw, openChunk(body, crc, &k, into)
}

// findChannel returns a channel, or nil. It reads the definitions of skipped chunks until one of
// them defines the channel.
func (t *Tail) findChannel(ctx context.Context, id uint16) *Channel {
	for t.file.Channels[id] == nil && t.searched < t.skipped {
		for h := range t.file.eachHead(ctx, t.searched, t.skipped) {
			t.searched = h.off + headSize + int64(h.n)
			if h.op != OpChunk || h.n > uint64(t.file.limits.Chunk) {
				continue
			}
			// Damage in a skipped chunk concerns no message that is read.
			err := guard.Try(func() {
				k, _, records := t.decompressChunk(ctx, h, nil, nil)
				for r := range k.eachRecord(records) {
					t.readRecord(ctx, r.op, r.content, h.off, nil, nil)
				}
			})
			if err == nil && t.file.Channels[id] != nil || errors.Is(err, ErrRewritten) {
				break
			}
		}
	}
	return t.file.Channels[id]
}

var _ robocache.Ranged = (*growingFile)(nil)
