package container

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// recordHead describes a record: its opcode, offset, content length, and the first bytes of its
// content. Opcode 0 means that the available bytes are too few for a record.
type recordHead struct {
	op      Op
	off     int64
	n       uint64
	content []byte
}

// eachHead returns the records of a range of the file without reading their content. If a record
// extends beyond to, it is truncated and the last one.
func (f *File) eachHead(ctx context.Context, from, to int64) iter.Seq[recordHead] {
	return func(yield func(recordHead) bool) {
		var buf []byte
		var base int64
		for at := from; at < to; {
			if int64(len(buf)) < at-base+headSize+64 && base+int64(len(buf)) < to || at < base {
				want := min(to-at, 64<<10)
				if cap(buf) < int(want) {
					buf = make([]byte, want)
				}
				buf, base = buf[:want], at
				guard.Check(f.ranged.ReadAt(ctx, buf, at))
			}
			b := buf[at-base:]
			if len(b) < headSize {
				yield(recordHead{0, at, uint64(len(b)), b})
				return
			}
			n := le64(b[1:])
			if !yield(recordHead{
				Op(b[0]), at, n,
				b[headSize:][:min(n, uint64(len(b)-headSize))],
			}) || n > uint64(to-at-headSize) {
				return
			}
			at += headSize + int64(n)
			if at-base >= int64(len(buf)) {
				buf, base = buf[:0], at
			}
		}
	}
}

// bareRun is the maximum number of bytes of plain records that are read at a time.
const bareRun = 1 << 20

// collectChunks lists the content of a range of the data section: chunks, runs of plain messages,
// attachments and metadata. It defines schemas and channels. If the range ends inside a record,
// earlier records are kept and a finding reports the truncation. The returned chunks have unindexed
// set.
func (f *File) collectChunks(ctx context.Context, from, to int64) (out []Chunk) {
	run := Chunk{Bare: true, unindexed: true}
	flush := func() {
		if run.Length > 0 {
			run.Size, run.Compressed = run.Length, run.Length
			out = append(out, run)
			run = Chunk{Bare: true, unindexed: true}
		}
	}
	defer flush()
	for h := range f.eachHead(ctx, from, to) {
		off, n := h.off, h.n
		room := uint64(max(0, to-off-headSize))
		if h.op == 0 || n > room {
			flush()
			if h.op == OpChunk && room > 40 {
				k, err := guard.Value(func() Chunk { return scannedChunk(h.content, off, to-off) })
				if k.Cut = true; err == nil && k.checkSizes(to, f.limits) == nil {
					out = append(out, k)
				}
			}
			f.end = off
			if f.options.Strict {
				guard.Fail(
					malformed(
						off,
						"the file is cut inside a record",
						fmt.Sprintf("%d bytes of content", n),
						fmt.Sprint(room),
					),
				)
			}
			f.addFinding(
				robocache.SeverityError,
				"cut-file",
				off,
				fmt.Sprintf(
					"the file is cut inside a record (opcode %02x): expected %d bytes of "+
						"content, found %d; everything before it is read",
					byte(h.op),
					n,
					room,
				),
				"record the file again, or fetch it again",
				0,
			)
			return out
		}
		switch h.op {
		case OpMessage:
			if run.Length > 0 && (run.Offset+run.Length != off || run.Length+int64(n) > bareRun) {
				flush()
			}
			if run.Length == 0 {
				run.Offset = off
			}
			if n > uint64(f.limits.Chunk) {
				guard.Fail(
					tooLarge(
						off,
						fmt.Sprintf("a message of at most %d bytes", f.limits.Chunk),
						fmt.Sprint(n),
					),
				)
			}
			run.Length += headSize + int64(n)
		case OpSchema, OpChannel:
			if uint64(len(h.content)) < n {
				h.content = f.readRecord(
					ctx,
					Place{Offset: off, Length: headSize + int64(n)},
					h.op,
					f.limits.Chunk+headSize,
				)
			}
			f.defineRecord(h.op, h.content, off)
		case OpChunk:
			flush()
			k, err := guard.Value(
				func() Chunk { return scannedChunk(h.content, off, headSize+int64(n)) },
			)
			if err = cmp.Or(err, k.checkSizes(to, f.limits)); err != nil {
				guard.Check(f.skipDamage(err, off, 0))
				continue
			}
			out = append(out, k)
		case OpAttachment, OpMetadata:
			p := Place{Offset: off, Length: headSize + int64(n)}
			c := fieldCursor{b: h.content}
			if h.op == OpAttachment {
				c.takeBytes(16)
				p.Name = c.str()
				f.Attachments = append(f.Attachments, p)
			} else {
				p.Name = c.str()
				f.Metadata = append(f.Metadata, p)
			}
		case OpDataEnd, OpFooter:
			f.end = off
			return out
		}
	}
	return out
}

// scannedChunk returns a chunk for the head of its record. length is the number of its bytes in the
// file.
func scannedChunk(content []byte, off, length int64) Chunk {
	k, n, _, _ := parseChunkHead(content, off)
	k.Length, k.unindexed = length, true
	k.Compressed = max(0, min(n, length-headSize-40-int64(len(k.Compression.String()))))
	return k
}

// skipDamage reports a damaged chunk as skipped. It returns err if the file is strict or err is no
// damage.
func (f *File) skipDamage(err error, off int64, messages int64) error {
	if f.options.Strict || !isDamage(err) {
		return err
	}
	f.addFinding(
		robocache.SeverityError,
		"damaged-chunk",
		off,
		"a chunk is skipped: "+causeText(err),
		"fetch the file again; its other chunks are read",
		messages,
	)
	return nil
}

// scanFile lists the data section from its start and defines the schemas and channels in chunks.
func (f *File) scanFile(ctx context.Context) {
	f.end = f.ranged.Size()
	if f.ranged.Size() >= f.begin+int64(len(magic)) {
		// The closing magic, if present, is not a record.
		tail := make([]byte, len(magic))
		guard.Check(f.ranged.ReadAt(ctx, tail, f.end-int64(len(magic))))
		if string(tail) == magic {
			f.end -= int64(len(magic))
		}
	}
	f.Chunks = f.collectChunks(ctx, f.begin, f.end)
	ix := f.buildIndex(ctx)
	f.reportUndefined(ix)
	f.index.Store(ix)
}
