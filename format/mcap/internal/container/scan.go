package container

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// head is a record of a part of the file: its opcode (0: what is there is too short for one), its
// place, the length of its content, and the content's first bytes.
type head struct {
	op      Op
	off     int64
	n       uint64
	content []byte
}

// heads goes over the records of a part of the file without reading what they hold. A record that
// does not end before to is cut, and the last.
func (f *File) heads(ctx context.Context, from, to int64) iter.Seq[head] {
	return func(yield func(head) bool) {
		var buf []byte
		var base int64
		for at := from; at < to; {
			if int64(len(buf)) < at-base+headSize+64 && base+int64(len(buf)) < to || at < base {
				want := min(to-at, 64<<10)
				if cap(buf) < int(want) {
					buf = make([]byte, want)
				}
				buf, base = buf[:want], at
				guard.Check(f.r.ReadAt(ctx, buf, at))
			}
			b := buf[at-base:]
			if len(b) < headSize {
				yield(head{0, at, uint64(len(b)), b})
				return
			}
			n := le64(b[1:])
			if !yield(head{Op(b[0]), at, n, b[headSize:][:min(n, uint64(len(b)-headSize))]}) ||
				n > uint64(to-at-headSize) {
				return
			}
			at += headSize + int64(n)
			if at-base >= int64(len(buf)) {
				buf, base = buf[:0], at
			}
		}
	}
}

// bareRun is how many bytes of plain records are read at a time.
const bareRun = 1 << 20

// collect lists what lies in a part of the data section: chunks, runs of plain messages,
// attachments, metadata; schemas and channels are defined. Where the part ends inside a record,
// what is whole stays and the cut is a finding. Chunks have unindexed set.
func (f *File) collect(ctx context.Context, from, to int64) (out []Chunk) {
	run := Chunk{Bare: true, unindexed: true}
	flush := func() {
		if run.Length > 0 {
			run.Size, run.Compressed = run.Length, run.Length
			out = append(out, run)
			run = Chunk{Bare: true, unindexed: true}
		}
	}
	defer flush()
	for h := range f.heads(ctx, from, to) {
		off, n := h.off, h.n
		room := uint64(max(0, to-off-headSize))
		if h.op == 0 || n > room {
			flush()
			if h.op == OpChunk && room > 40 {
				k, err := guard.Value(func() Chunk { return scanned(h.content, off, to-off) })
				if k.Cut = true; err == nil && k.check(to, f.lim) == nil {
					out = append(out, k)
				}
			}
			f.end = off
			if f.opt.Strict {
				guard.Fail(
					malformed(
						off,
						"the file is cut inside a record",
						fmt.Sprintf("%d bytes of content", n),
						fmt.Sprint(room),
					),
				)
			}
			f.found(
				robocache.SeverityError,
				"cut-file",
				off,
				fmt.Sprintf(
					"the file is cut inside a record (opcode %02x): expected %d bytes of content, found %d; everything before it is read",
					byte(h.op),
					n,
					room,
				),
				"record it anew, or fetch it again",
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
			if n > uint64(f.lim.Chunk) {
				guard.Fail(
					tooLarge(
						off,
						fmt.Sprintf("a message of at most %d bytes", f.lim.Chunk),
						fmt.Sprint(n),
					),
				)
			}
			run.Length += headSize + int64(n)
		case OpSchema, OpChannel:
			if uint64(len(h.content)) < n {
				h.content = f.content(
					ctx,
					Place{Offset: off, Length: headSize + int64(n)},
					h.op,
					f.lim.Chunk+headSize,
				)
			}
			f.define(h.op, h.content, off)
		case OpChunk:
			flush()
			k, err := guard.Value(
				func() Chunk { return scanned(h.content, off, headSize+int64(n)) },
			)
			if err = cmp.Or(err, k.check(to, f.lim)); err != nil {
				guard.Check(f.skip(err, off, 0))
				continue
			}
			out = append(out, k)
		case OpAttachment, OpMetadata:
			p := Place{Offset: off, Length: headSize + int64(n)}
			c := cursor{b: h.content}
			if h.op == OpAttachment {
				c.take(16)
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

// scanned makes a chunk of the head of its record, of which length bytes are in the file.
func scanned(content []byte, off, length int64) Chunk {
	k, n, _, _ := chunkHead(content, off)
	k.Length, k.unindexed = length, true
	k.Compressed = max(0, min(n, length-headSize-40-int64(len(k.Compression.String()))))
	return k
}

// skip passes over a damaged chunk, or is its error: where the file is strict, and where it is no
// damage.
func (f *File) skip(err error, off int64, messages int64) error {
	if f.opt.Strict || !damaged(err) {
		return err
	}
	f.found(
		robocache.SeverityError,
		"damaged-chunk",
		off,
		"a chunk is skipped: "+reason(err),
		"fetch the file again; its other chunks are read",
		messages,
	)
	return nil
}

// scan lists the data section from its start, and defines what the chunks define.
func (f *File) scan(ctx context.Context) {
	f.end = f.r.Size()
	if f.r.Size() >= f.begin+int64(len(magic)) {
		// The closing magic, where it is there, is no record.
		tail := make([]byte, len(magic))
		guard.Check(f.r.ReadAt(ctx, tail, f.end-int64(len(magic))))
		if string(tail) == magic {
			f.end -= int64(len(magic))
		}
	}
	f.Chunks = f.collect(ctx, f.begin, f.end)
	ix := f.buildIndex(ctx)
	f.strangers(ix)
	f.index.Store(ix)
}
