// Package scratch is a temporary file without a name, for what files are decompressed to: the
// system takes it back with the process, however that ends, and other processes never see it.
package scratch

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/goatnote-inc/robocache"
)

const blockBytes = 1 << 20

// File is the temporary file, in blocks. It is made when the first part is written.
type File struct {
	limit int64
	full  error
	hint  string

	mu   sync.Mutex
	file *os.File
	used int64   // blocks
	free []int64 // blocks that were given back
}

// New makes a file of at most limit bytes; full is the error of who writes more, hint what to do
// where the temporary folder takes no more.
func New(limit int64, full error, hint string) *File {
	return &File{limit: limit, full: full, hint: hint}
}

// Close takes the file away.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func (f *File) failed(err error) error {
	return robocache.ResourceLimit("decompress", robocache.Where{"file": os.TempDir()}, "compressed files are decompressed into a temporary file").
		WithCause(err).
		WithHint("%s", f.hint)
}

// block gives a free block.
func (f *File) block() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		b := f.free[n-1]
		f.free = f.free[:n-1]
		return b, nil
	}
	if (f.used+1)*blockBytes > f.limit {
		return 0, f.full
	}
	if f.file == nil {
		file, err := os.CreateTemp("", "robocache-*")
		if err == nil {
			err = os.Remove(file.Name())
		}
		if err != nil {
			return 0, f.failed(err)
		}
		f.file = file
	}
	f.used++
	return f.used - 1, nil
}

// Part is bytes of the file that belong together: written one behind the other, then read as a
// robocache.Ranged.
type Part struct {
	in      *File
	blocks  []int64
	written int64
	size    int64
	version string
}

// Part begins a part, which will be of a version.
func (f *File) Part(version string) *Part { return &Part{in: f, version: version} }

// Write puts bytes behind those before.
func (p *Part) Write(b []byte) (done int, err error) {
	for done < len(b) {
		at := p.written % blockBytes
		if at == 0 {
			k, err := p.in.block()
			if err != nil {
				return done, err
			}
			p.blocks = append(p.blocks, k)
		}
		n := min(len(b)-done, int(blockBytes-at))
		if _, err := p.in.file.WriteAt(
			b[done:done+n],
			p.blocks[len(p.blocks)-1]*blockBytes+at,
		); err != nil {
			return done, p.in.failed(err)
		}
		done += n
		p.written += int64(n)
	}
	return done, nil
}

// Holds says how many of its first bytes count from here on.
func (p *Part) Holds(size int64) { p.size = size }

// Free gives the part's bytes back.
func (p *Part) Free() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.in.free = append(p.in.free, p.blocks...)
	p.blocks, p.size = nil, 0
}

// ReadAt reads of the bytes.
func (p *Part) ReadAt(ctx context.Context, b []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || off > p.size-int64(len(b)) {
		return robocache.Malformed("read", robocache.Where{"offset": off}, "a range outside the decompressed file").
			WithCause(io.ErrUnexpectedEOF)
	}
	for len(b) > 0 {
		at := off % blockBytes
		n := min(int64(len(b)), blockBytes-at)
		if _, err := p.in.file.ReadAt(b[:n], p.blocks[off/blockBytes]*blockBytes+at); err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		b, off = b[n:], off+n
	}
	return nil
}

// Size is the number of bytes.
func (p *Part) Size() int64 { return p.size }

// Version is that of the compressed file.
func (p *Part) Version() string { return p.version }

// Close does nothing: the file is closed as a whole.
func (p *Part) Close() error { return nil }

// Reader reads a file from its start. Err is what the file itself met, which a decompressor may
// hide.
type Reader struct {
	Ctx context.Context
	R   robocache.Ranged
	Err error
	off int64
}

func (r *Reader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.R.Size()-r.off)
	if n <= 0 {
		return 0, io.EOF
	}
	if r.Err = r.R.ReadAt(r.Ctx, p[:n], r.off); r.Err != nil {
		return 0, r.Err
	}
	r.off += n
	return int(n), nil
}
