package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// heads goes over the records of a part of the file without reading what they hold: fn gets opcode, place and length of the content,
// and its first bytes. errStop ends it. A record that does not end before to is cut: fn decides.
func (f *File) heads(ctx context.Context, from, to int64, fn func(op Op, off int64, n uint64, content []byte) error) error {
	var buf []byte
	var base int64
	for at := from; at < to; {
		if int64(len(buf)) < at-base+headSize+64 && base+int64(len(buf)) < to || at < base {
			want := min(to-at, 64<<10)
			if cap(buf) < int(want) {
				buf = make([]byte, want)
			}
			buf, base = buf[:want], at
			if err := f.r.ReadAt(ctx, buf, at); err != nil {
				return err
			}
		}
		b := buf[at-base:]
		if len(b) < headSize {
			return fn(0, at, uint64(len(b)), b)
		}
		n := le64(b[1:])
		content := b[headSize:]
		if n < uint64(len(content)) {
			content = content[:n]
		}
		if err := fn(Op(b[0]), at, n, content); err != nil {
			return err
		}
		if n > uint64(to-at-headSize) {
			return nil
		}
		at += headSize + int64(n)
		if at-base >= int64(len(buf)) {
			buf, base = buf[:0], at
		}
	}
	return nil
}

// bareRun is how many bytes of plain records are read at a time.
const bareRun = 1 << 20

// collect lists what lies in a part of the data section: chunks, runs of plain messages, attachments, metadata; schemas and channels
// are defined. Where the part ends inside a record, what is whole stays and the cut is a finding. Chunks have unindexed set.
func (f *File) collect(ctx context.Context, from, to int64) ([]Chunk, error) {
	var out []Chunk
	run := Chunk{Bare: true, unindexed: true}
	flush := func() {
		if run.Length > 0 {
			run.Size, run.Compressed = run.Length, run.Length
			out = append(out, run)
			run = Chunk{Bare: true, unindexed: true}
		}
	}
	whole := func(off int64, n uint64, content []byte) ([]byte, error) {
		if uint64(len(content)) == n {
			return content, nil
		}
		if n > uint64(f.lim.Chunk) {
			return nil, tooLarge(off, fmt.Sprintf("a record of at most %d bytes", f.lim.Chunk), fmt.Sprint(n))
		}
		b := make([]byte, n)
		return b, f.r.ReadAt(ctx, b, off+headSize)
	}
	err := f.heads(ctx, from, to, func(op Op, off int64, n uint64, content []byte) error {
		room := uint64(max(0, to-off-headSize))
		if op == 0 || n > room {
			if op == OpChunk && room > 40 {
				flush()
				k, err := scanned(content, off, to-off)
				k.Cut = true
				if err == nil && k.check(to, f.lim) == nil {
					out = append(out, k)
				}
			}
			flush()
			f.end = off
			if f.opt.Strict {
				return malformed(off, "the file is cut inside a record", fmt.Sprintf("%d bytes of content", n), fmt.Sprint(room))
			}
			f.found(robocache.SeverityError, "cut-file", off, fmt.Sprintf("the file is cut inside a record (opcode %02x): expected %d bytes of content, found %d; everything before it is read", byte(op), n, room), "record it anew, or fetch it again", 0)
			return errDone
		}
		switch op {
		case OpMessage:
			if run.Length > 0 && (run.Offset+run.Length != off || run.Length+int64(n) > bareRun) {
				flush()
			}
			if run.Length == 0 {
				run.Offset = off
			}
			if n > uint64(f.lim.Chunk) {
				return tooLarge(off, fmt.Sprintf("a message of at most %d bytes", f.lim.Chunk), fmt.Sprint(n))
			}
			run.Length += headSize + int64(n)
		case OpSchema, OpChannel:
			b, err := whole(off, n, content)
			if err != nil {
				return err
			}
			return f.define(op, b, off)
		case OpChunk:
			flush()
			k, err := scanned(content, off, headSize+int64(n))
			if err = cmp.Or(err, k.check(to, f.lim)); err != nil {
				return f.skip(err, off, 0)
			}
			out = append(out, k)
		case OpAttachment, OpMetadata:
			p := Place{Offset: off, Length: headSize + int64(n)}
			c := cursor{b: content}
			if op == OpAttachment {
				c.take(16)
				p.Name = c.str()
				f.Attachments = append(f.Attachments, p)
			} else {
				p.Name = c.str()
				f.Metadata = append(f.Metadata, p)
			}
		case OpDataEnd, OpFooter:
			f.end = off
			return errDone
		}
		return nil
	})
	flush()
	if errors.Is(err, errDone) {
		err = nil
	}
	return out, err
}

// errDone ends a walk over heads.
var errDone = errors.New("done")

// scanned makes a chunk of the head of its record, of which length bytes are in the file.
func scanned(content []byte, off, length int64) (Chunk, error) {
	k, n, _, _, err := chunkHead(content, off)
	k.Length, k.unindexed = length, true
	k.Compressed = max(0, min(n, length-headSize-40-int64(len(k.Compression.String()))))
	return k, err
}

// skip passes over a damaged chunk, or is its error: where the file is strict, and where it is no damage.
func (f *File) skip(err error, off int64, messages int64) error {
	if f.opt.Strict || !damaged(err) {
		return err
	}
	f.found(robocache.SeverityError, "damaged-chunk", off, "a chunk is skipped: "+reason(err), "fetch the file again; its other chunks are read", messages)
	return nil
}

// scan lists the data section from its start, and defines what the chunks define.
func (f *File) scan(ctx context.Context) error {
	f.end = f.r.Size()
	if f.r.Size() >= f.begin+int64(len(magic)) {
		// The closing magic, where it is there, is no record.
		tail := make([]byte, len(magic))
		if err := f.r.ReadAt(ctx, tail, f.end-int64(len(magic))); err != nil {
			return err
		}
		if string(tail) == magic {
			f.end -= int64(len(magic))
		}
	}
	chunks, err := f.collect(ctx, f.begin, f.end)
	if err != nil {
		return err
	}
	f.Chunks = chunks
	ix, err := f.buildIndex(ctx)
	if err != nil {
		return err
	}
	f.strangers(ix)
	f.index.Store(ix)
	return nil
}
